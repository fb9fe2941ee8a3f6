/**
 * Measures the cost of limits in Redis for a gateway: its CPU for each call under wrk with 32
 * connections, alternating with the same limits in memory. It runs on each runtime, for limits that
 * are reserved in blocks and for limits that ask Redis for each call.
 *
 * Usage: `npm run build && node scripts/bench/redis_gateway.ts [--runtime bun,deno,node] [FILE
 * [OTHER_FILE]]`, with the gateways to measure, `dist/sallyport.js` if left out.
 */
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { startRedis } from "../../tests/support/redis.ts";
import type { RuntimeOnMachine } from "../runtimes.ts";
import { measureThroughput, prepareTools, startProvider } from "./load.ts";
import { pinSelf } from "./machine.ts";
import { PLAIN } from "./requests.ts";
import { toSpread } from "./statistics.ts";
import {
  gatewayOn,
  type RunningSubject,
  selectRuntimes,
  startSubject,
  type Subject,
} from "./subjects.ts";

const STARTS = 3;
const ROUNDS = 5;
const SECONDS = 1;
const WARM_UP_SECONDS = 4;
const CONNECTIONS = 32;

/** No call of a run reaches a limit. Limits below a million tokens are not divided into blocks. */
const LIMITS: Readonly<Record<string, object>> = {
  "requests, in blocks": { requests: "1G/min" },
  "requests and tokens, in blocks": { requests: "1G/min", tokens: "1G/min" },
  "tokens": { tokens: "900k/s" },
  "concurrency": { concurrency: 100_000 },
  "requests, tokens and concurrency": {
    requests: "1G/min",
    tokens: "1G/min",
    concurrency: 100_000,
  },
};

const { values, positionals } = parseArgs({
  options: { runtime: { type: "string" } },
  allowPositionals: true,
});
const files = positionals.length > 0 ? positionals : [join("dist", "sallyport.js")];

/** For each file: the gateway with limits in memory, then the gateway with limits in Redis. */
function subjectsOn(runtime: RuntimeOnMachine, limits: object, redis: string): Subject[] {
  return files.flatMap((file) =>
    ([["memory"], ["redis", redis]] as const).map(([name, url]) => ({
      ...gatewayOn(runtime, file, 1, { limits, redis: url }),
      name: `${runtime.label} ${basename(file)} ${name}`,
    }))
  );
}

/** Microseconds of CPU for a call, for each subject in order. */
async function measureOnce(
  subjects: readonly Subject[],
  costs: readonly number[][],
): Promise<void> {
  const running: RunningSubject[] = [];
  const measure = (subject: RunningSubject, seconds: number) =>
    measureThroughput(subject, PLAIN, { expected, connections: CONNECTIONS, seconds });
  try {
    for (const subject of subjects) {
      const started = await startSubject(subject, provider.url);
      running.push(started);
      await measure(started, WARM_UP_SECONDS);
    }
    for (let round = 0; round < ROUNDS; round++) {
      for (const [index, subject] of running.entries()) {
        const { details, wrong, example } = await measure(subject, SECONDS);
        if (wrong > 0) {
          throw new Error(`${subject.name}: ${wrong} wrong answers, such as ${example}`);
        }
        costs[index]?.push(details.cpuUs ?? NaN);
      }
    }
  } finally {
    for (const { process: child } of running) await child.stop();
  }
}

prepareTools();
pinSelf();
const provider = await startProvider();
const expected = await provider.expect(PLAIN);
const redis = await startRedis();
try {
  for (const runtime of selectRuntimes(values.runtime?.split(",") ?? ["bun", "deno", "node"])) {
    for (const [title, limits] of Object.entries(LIMITS)) {
      const subjects = subjectsOn(runtime, limits, redis.url);
      const costs = subjects.map((): number[] => []);
      for (let start = 0; start < STARTS; start++) await measureOnce(subjects, costs);
      const medians = costs.map((all) => toSpread(all).median);
      const words = files.map((file, index) => {
        const [memory = NaN, inRedis = NaN] = medians.slice(2 * index);
        const figures = `memory ${memory.toFixed(1)}, Redis ${inRedis.toFixed(1)} us: ${
          (inRedis / memory).toFixed(2)
        }`;
        return `${files.length > 1 ? `${basename(file)} ` : ""}${figures}`;
      });
      console.log(`${runtime.label.padEnd(8)} ${title.padEnd(34)} ${words.join("; ")}`);
    }
  }
} finally {
  await provider.process.stop();
  await redis.stop();
}
