/** `prometheus` and `promtool` from Debian. */
import { spawn, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { freePort } from "./free_port.ts";
import { until } from "./until.ts";

/** Runs promtool. Returns its complaints, or an empty text. */
export function runPromtool(
  args: readonly string[],
  options: { input?: string; cwd?: string } = {},
): string {
  const { status, stdout, stderr, error } = spawnSync("promtool", args, {
    encoding: "utf8",
    ...options,
  });
  return status === 0 && stderr === ""
    ? ""
    : `${error?.message ?? ""}${stdout}${stderr} (${status})`;
}

/** A running Prometheus. */
export interface Prometheus {
  /** The answer of its HTTP API: `data`. Throws where it has none. */
  // deno-lint-ignore no-explicit-any
  ask(path: string, parameters?: Readonly<Record<string, string>>): Promise<any>;
  stop(): Promise<void>;
}

/**
 * Starts a Prometheus that scrapes every second: a slow gateway can need that long for an answer.
 *
 * @param folder The folder of its files
 * @param rules Rule files
 * @param targets Such as `127.0.0.1:8789`
 */
export async function startPrometheus(
  folder: string,
  { rules, targets }: { rules: readonly string[]; targets: readonly string[] },
): Promise<Prometheus> {
  const file = join(folder, "prometheus.json");
  // JSON is valid YAML.
  writeFileSync(
    file,
    JSON.stringify({
      global: { scrape_interval: "1s", scrape_timeout: "1s", evaluation_interval: "500ms" },
      rule_files: rules.map((rule) => resolve(rule)),
      scrape_configs: [{ job_name: "sallyport", static_configs: [{ targets }] }],
    }),
  );
  return await startPrometheusWith(folder, file);
}

/**
 * Starts one with this configuration.
 *
 * @param folder The folder of its files
 * @param file The configuration
 */
export async function startPrometheusWith(folder: string, file: string): Promise<Prometheus> {
  const port = await freePort();
  const child = spawn("prometheus", [
    `--config.file=${file}`,
    `--storage.tsdb.path=${join(folder, "tsdb")}`,
    `--web.listen-address=127.0.0.1:${port}`,
    "--log.level=error",
  ], { stdio: "ignore" });
  const end = () => void child.kill("SIGKILL");
  process.on("exit", end);
  let isOver = false;
  const ended = new Promise<void>((settle) => {
    const over = () => {
      isOver = true;
      settle();
    };
    child.once("close", over);
    child.once("error", over);
  });
  const stop = async () => {
    process.removeListener("exit", end);
    end();
    await ended;
  };
  const url = `http://127.0.0.1:${port}`;
  const isReady = () =>
    fetch(`${url}/-/ready`).then((answer) => answer.text().then(() => answer.ok), () => false);
  try {
    await until(async () => isOver || await isReady(), "prometheus is ready");
    if (isOver) throw new Error("prometheus ended at once");
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    async ask(path, parameters = {}) {
      const answer = await fetch(`${url}/api/v1/${path}?${new URLSearchParams(parameters)}`);
      const { status, data, error } = await answer.json();
      if (status !== "success") throw new Error(`${error}: ${JSON.stringify(parameters)}`);
      return data;
    },
    stop,
  };
}
