/** Runs an agent once, with an empty home, only loopback and a bounded time. */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Agent, CACHE, writeHome } from "./programs.ts";

/** How long an agent runs at most, in milliseconds. */
const LIFE_MS = 90_000;
/** A port where nothing listens, so that calls to other hosts than loopback fail. */
const NO_PROXY = "http://127.0.0.1:9";

/** The end of a run. */
export interface Ended {
  /** The exit status; the signal, if it was killed. */
  readonly status: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

function environmentOf(home: string, env: Readonly<Record<string, string>>) {
  return {
    PATH: process.env.PATH,
    HOME: home,
    TMPDIR: join(home, "tmp"),
    LANG: "C.UTF-8",
    HTTP_PROXY: NO_PROXY,
    HTTPS_PROXY: NO_PROXY,
    https_proxy: NO_PROXY,
    http_proxy: NO_PROXY,
    NO_PROXY: "127.0.0.1,localhost",
    no_proxy: "127.0.0.1,localhost",
    DO_NOT_TRACK: "1",
    ...env,
  };
}

/** Runs an agent for a provider at this origin. */
export async function runAgent(agent: Agent, origin: string): Promise<Ended> {
  const home = mkdtempSync(join(tmpdir(), "sallyport-agent-"));
  const work = join(home, "work");
  mkdirSync(work);
  mkdirSync(join(home, "tmp"));
  const invocation = agent.invoke(origin);
  writeHome(home, invocation);
  const file = join(CACHE, "node_modules", agent.file);
  const isScript = file.endsWith(".js");
  const child = spawn(
    isScript ? process.execPath : file,
    [...(isScript ? [file] : []), ...invocation.args],
    {
      cwd: work,
      env: environmentOf(home, invocation.env),
      stdio: ["ignore", "pipe", "pipe"],
      detached: true, // a separate process group, so that its children end with it
    },
  );
  const group = child.pid;
  const killAll = () => {
    try {
      if (group !== undefined) process.kill(-group, "SIGKILL");
    } catch {
      // All have ended.
    }
  };
  const timer = setTimeout(killAll, LIFE_MS);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (part) => stdout += part);
  child.stderr.on("data", (part) => stderr += part);
  const status = await new Promise<number | string>((done, fail) => {
    child.on("error", fail);
    child.on("exit", (code, signal) => done(code ?? signal ?? "unknown"));
  });
  clearTimeout(timer);
  killAll();
  rmSync(home, { recursive: true, force: true, maxRetries: 5 });
  return { status, stdout, stderr };
}
