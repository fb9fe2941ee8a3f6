/**
 * Measures the cost of limits for the supervisor of `serve --workers 2`: its CPU for each call
 * through two workers, which ask it for a decision, settle it and report its usage. The supervisor
 * does nothing else. It runs alternately without and with a limit of tokens, on Node and Bun, under
 * wrk with 64 connections.
 *
 * Usage: `npm run build && node scripts/bench/supervisor_cost.ts [FILE [OTHER_FILE]]`, with the
 * gateways to compare, `dist/sallyport.js` if left out. Ends with 1 if a call costs 15 µs or more.
 */
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { GATEWAY_KEY, HOST, UPSTREAM_KEY } from "./gateway_config.ts";
import { measureThroughput, prepareTools, startProvider } from "./load.ts";
import { CACHE, CORES, findPort, pinSelf, start } from "./machine.ts";
import { PLAIN } from "./requests.ts";
import { callOnce, type RunningSubject, selectRuntimes } from "./subjects.ts";

/** The goal, in microseconds. */
const GOAL = 15;
const ROUNDS = 5;
const SECONDS = 2;
const CONNECTIONS = 64;
const START_MS = 30_000;

const LIMITS: Readonly<Record<string, object>> = {
  "requests": { requests: "1G/min" },
  "requests and tokens": { requests: "1G/min", tokens: "1G/min" },
};

const headers = {
  host: HOST,
  authorization: `Bearer ${UPSTREAM_KEY}`,
  "gateway-auth": `Bearer ${GATEWAY_KEY}`,
};

function writeConfig(name: string, port: number, upstream: string, limits: object): string {
  const directory = join(CACHE, "config");
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `${name.replaceAll(/\W+/g, "-")}.jsonc`);
  const digest = createHash("sha256").update(GATEWAY_KEY).digest("hex");
  const providers = { a: { hosts: [HOST], upstream: `${upstream}/v1`, maxOutput: 4096 } };
  const config = {
    listen: [{ port }],
    providers,
    keys: [{ id: "bench", digest, limits }],
    log: "off",
  };
  writeFileSync(path, JSON.stringify(config));
  return path;
}

async function startWorkers(
  command: readonly string[],
  name: string,
  upstream: string,
  limits: object,
) {
  const port = await findPort();
  const args = ["serve", "--config", writeConfig(name, port, upstream, limits), "--workers", "2"];
  const running = start(CORES.subject, [...command, ...args], { name });
  const end = performance.now() + START_MS;
  while (await callOnce(port, headers) === undefined) {
    if (performance.now() > end || !running.isRunning()) {
      throw new Error(`Cannot start ${name}: ${running.log()}`);
    }
  }
  const subject = { name, isExact: false, headers: () => headers, command: () => ({ command }) };
  const answering: RunningSubject = {
    subject,
    name,
    headers,
    port,
    process: running,
    startUpMs: 0,
    heated: new Set(),
  };
  return answering;
}

const median = (values: readonly number[]) =>
  values.toSorted((one, other) => one - other)[values.length >> 1] ?? NaN;

const files = process.argv.length > 2 ? process.argv.slice(2) : [join("dist", "sallyport.js")];
prepareTools();
pinSelf();
const provider = await startProvider();
const expected = await provider.expect(PLAIN);
let worst = 0;
for (const { kind, label, command } of selectRuntimes(["node", "bun"])) {
  const subjects: RunningSubject[] = [];
  for (const file of files) {
    for (const [limited, limits] of Object.entries(LIMITS)) {
      const words = kind === "bun" ? [command, "run", resolve(file)] : [command, resolve(file)];
      subjects.push(await startWorkers(words, `${label} ${file} ${limited}`, provider.url, limits));
    }
  }
  const costs = subjects.map((): number[] => []);
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [index, subject] of subjects.entries()) {
      const options = { expected, connections: CONNECTIONS, seconds: SECONDS };
      const { details, wrong, example } = await measureThroughput(subject, PLAIN, options);
      if (wrong > 0) throw new Error(`${subject.name}: ${wrong} wrong answers, such as ${example}`);
      if (round > 0) costs[index]?.push(details.cpuUs ?? NaN); // the first round is the warm-up
    }
  }
  for (const [index, { name, process: { stop } }] of subjects.entries()) {
    const all = costs[index] ?? [];
    worst = Math.max(worst, median(all));
    console.log(
      `${name.padEnd(50)} ${median(all).toFixed(1)} us a call (${
        all.map((us) => us.toFixed(1)).join(" ")
      })`,
    );
    await stop();
  }
}
await provider.process.stop();
process.exitCode = worst < GOAL ? 0 : 1;
