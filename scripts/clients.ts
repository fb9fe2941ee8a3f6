/**
 * `npm run clients [-- --agent NAME --runtime bun --show]`. Installs coding agents from npm into
 * `.cache/clients`, and runs each of them directly and through a gateway on each runtime, with
 * answers that are whole and answers that are cut. Reports every difference.
 * It downloads 1.4 GB when it first runs.
 */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { freePort } from "../tests/support/free_port.ts";
import { compareRuns, type Run } from "./clients/compare.ts";
import { type Agent, AGENTS, CACHE, GATEWAY_KEY } from "./clients/programs.ts";
import { runAgent } from "./clients/run_agent.ts";
import { startStandIn, startTap } from "./clients/wire.ts";
import { findRuntimes, type RuntimeOnMachine } from "./runtimes.ts";

const { values } = parseArgs({
  options: {
    agent: { type: "string", default: "" },
    runtime: { type: "string", default: "" },
    show: { type: "boolean", default: false },
  },
});

function isInstalled({ package: name, version }: Agent): boolean {
  const file = join(CACHE, "node_modules", name, "package.json");
  if (!existsSync(file)) return false;
  return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version === version;
}

/** Installs what is missing, without install scripts. */
function install(agents: readonly Agent[]): void {
  const missing = agents.filter((agent) => !isInstalled(agent));
  if (missing.length === 0) return;
  mkdirSync(CACHE, { recursive: true });
  const manifest = join(CACHE, "package.json");
  if (!existsSync(manifest)) writeFileSync(manifest, '{ "private": true }\n');
  const packages = missing.map((agent) => `${agent.package}@${agent.version}`);
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"];
  execFileSync("npm", ["install", ...flags, ...packages], { cwd: CACHE, stdio: "inherit" });
}

/** A gateway that listens. */
interface Gateway {
  readonly origin: string;
  /** Attribution in the last line of its log. */
  attribution(): string;
  close(): void;
}

async function startGateway(
  { kind, command }: RuntimeOnMachine,
  agent: Agent,
  upstream: string,
): Promise<Gateway> {
  const folder = mkdtempSync(join(tmpdir(), "sallyport-clients-"));
  const port = await freePort();
  const provider = {
    hosts: [`127.0.0.1:${port}`],
    messages: "any",
    ...(agent.interface === "messages" && { credential: "x-api-key" }),
    ...(agent.interface === "gemini"
      ? { shape: "gemini", upstream }
      : { upstream: `${upstream}/v1` }),
  };
  const config = {
    listen: [{ port, hostname: "127.0.0.1" }],
    log: "json",
    attribution: { presets: ["claude-code", "codex", "opencode", "gemini-cli"] },
    providers: { a: provider },
    keys: [{ id: "agents", key: GATEWAY_KEY }],
  };
  const file = join(folder, "gateway.jsonc");
  writeFileSync(file, JSON.stringify(config));
  const program = [resolve("dist/sallyport.js"), "serve", "--config", file];
  const args = kind === "deno" ? ["run", "-A", ...program] : program;
  const child = spawn(command, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stderr.on("data", (part) => output += part);
  await new Promise<void>((done, fail) => {
    child.stdout.on("data", (part) => {
      output += part;
      if (output.includes(String(port))) done();
    });
    child.on("exit", () => fail(new Error(`The gateway has ended: ${output}`)));
  });
  return {
    origin: `http://127.0.0.1:${port}`,
    attribution: () => output.match(/"attribution":\{[^}]*\}/g)?.at(-1) ?? "no attribution",
    close() {
      child.removeAllListeners("exit");
      child.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Runs an agent once; directly, if there is no runtime. */
async function runOnce(
  agent: Agent,
  isCutting: boolean,
  runtime?: RuntimeOnMachine,
): Promise<Run> {
  const standIn = await startStandIn({ interface: agent.interface, isCutting });
  const gateway = runtime && await startGateway(runtime, agent, standIn.origin);
  const tap = await startTap(gateway?.origin ?? standIn.origin);
  try {
    const ended = await runAgent(agent, tap.origin);
    const attribution = gateway?.attribution() ?? "";
    return { ended, calls: tap.seen, arrived: standIn.seen, attribution };
  } finally {
    await tap.close();
    gateway?.close();
    await standIn.close();
  }
}

function show(run: Run): void {
  console.log(run.ended.stdout.slice(-500), run.ended.stderr.slice(-800));
  for (const call of run.calls) {
    const names = call.headers.filter((_, at) => at % 2 === 0).join(" ");
    console.log(`    ${call.method} ${call.path} ${call.body.length} ${call.status} ${names}`);
    if (run.calls.length > 0 && call.isCut) console.log(call.answer?.toString().slice(-300));
  }
}

const describeEnd = ({ calls, ended }: Run): string =>
  `${calls.length} calls, exit status ${ended.status}`;

/** Compares all runs of an agent, and returns the number of runs that differ. */
async function compareAgent(agent: Agent, runtimes: readonly RuntimeOnMachine[]): Promise<number> {
  let failed = 0;
  for (const isCutting of [false, true]) {
    const direct = await runOnce(agent, isCutting);
    const kind = isCutting ? "cut" : "whole";
    console.log(`${agent.name} ${agent.version}, ${kind}, direct: ${describeEnd(direct)}`);
    if (values.show) show(direct);
    for (const runtime of runtimes) {
      if (agent.usesZstd === true && runtime.label === "node 20") continue;
      const through = await runOnce(agent, isCutting, runtime);
      const differences = compareRuns(direct, through, isCutting);
      const result = differences.join("; ") || "equal";
      const end = describeEnd(through);
      console.log(
        `  ${agent.name}, ${kind}, ${runtime.label}: ${result}; ${end}; ${through.attribution}`,
      );
      if (values.show) show(through);
      if (differences.length > 0) failed++;
    }
  }
  return failed;
}

const agents = AGENTS.filter(({ name }) => name.toLowerCase().includes(values.agent.toLowerCase()));
const runtimes = findRuntimes().filter(({ label }) => label.startsWith(values.runtime));
install(agents);
let failed = 0;
for (const agent of agents) failed += await compareAgent(agent, runtimes);
console.log(failed === 0 ? "All runs are equal" : `${failed} runs differ`);
process.exitCode = failed === 0 ? 0 : 1;
