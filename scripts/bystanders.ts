/**
 * `npm run bystanders -- --runtime bun --rounds 4 [--only "wrong keys"]`: runs a steady load of
 * well-behaved calls, and measures it alternately in quiet periods and while other callers do harm.
 * The result is the effect of the harm on these calls: no call may fail, and the 99th percentile of
 * their times may grow by a tenth.
 *
 * The provider of the steady load answers after 100 ms, which is fast for a model.
 */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Worker } from "node:worker_threads";
import { createSelfSignedCertificate } from "../src/cli/demo/certificate.ts";
import { STREAM_BODY } from "../tests/support/gateway.ts";
import { chunk, COMPLETION } from "../tests/support/provider.ts";
import {
  BODY_MEMORY_BYTES,
  type Harm,
  type HarmOrder,
  type HarmReport,
  HARMS,
  type Refusals,
} from "./chaos/harms.ts";
import { KEY, LongRun, pause, SteadyCaller } from "./chaos/long_run.ts";

const CALLS_A_SECOND = 100;
const ANSWER_MS = 100;
const TURN_MS = 3000;
/**
 * Milliseconds until the effects of a turn are over: the deadlines of the failing provider are a
 * second.
 */
const REST_MS = 1500;
const TICK_MS = 5;
const OTHER_KEY = "a-gateway-key-of-harmful-callers";
/** The highest allowed ratio of the slowest hundredth of the bystanders' times. */
const MAX_RATIO = 1.1;
/** Milliseconds within which the slowest hundredth of wrong keys must be refused. */
const MAX_REFUSAL_MS = 5;

const run = new LongRun({ rounds: { fallback: 4, max: 100 } }, ["only"]);
const percentile = (sorted: readonly number[], share: number) =>
  sorted[Math.floor((sorted.length - 1) * share)] ?? NaN;
const inOrder = (times: readonly number[]) => [...times].sort((one, other) => one - other);

async function answer(response: ServerResponse, body: string): Promise<void> {
  const { model } = JSON.parse(body);
  if (model === "resets") return void response.destroy();
  if (model === "unavailable") return void response.writeHead(503).end();
  if (body !== STREAM_BODY) {
    await pause(ANSWER_MS);
    return void response.writeHead(200, { "content-type": "application/json" }).end(COMPLETION);
  }
  response.writeHead(200, { "content-type": "text/event-stream" }).write(chunk("One"));
  await pause(ANSWER_MS / 2);
  response.write(chunk(" two"));
  await pause(ANSWER_MS / 2);
  response.end(`${chunk(null, "stop")}data: [DONE]\n\n`);
}

const provider = createServer((request, response) => {
  let text = "";
  request.setEncoding("utf8");
  request.on("data", (part: string) => text += part);
  request.on("end", () => void answer(response, text));
});
await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", resolve));
run.closeLater(() => {
  provider.closeAllConnections();
  provider.close();
});

const worker = new Worker(new URL("./chaos/harm_worker.ts", import.meta.url));
run.closeLater(() => worker.terminate());
worker.on("error", (error) => {
  throw error;
});
const order = (message: HarmOrder) => worker.postMessage(message);
const report = <Type extends HarmReport["type"]>(type: Type) =>
  new Promise<HarmReport & { type: Type }>((resolve, reject) => {
    worker.once("message", (message: HarmReport) => {
      if (message.type === type) resolve(message as HarmReport & { type: Type });
      else reject(new Error(`The worker said ${message.type}, not ${type}`));
    });
  });
const { chaotic, quiet } = await report("providers");

const gateway = await run.startGateway({
  providers: {
    a: { upstream: `http://127.0.0.1:${(provider.address() as AddressInfo).port}/v1` },
    b: {
      upstream: chaotic,
      deadlines: { connect: "500ms", firstByte: "1s", idle: "1s", total: "5s" },
    },
    c: { upstream: quiet },
  },
  otherKey: OTHER_KEY,
  limits: { bodyTime: "10s", writeStall: "10s", bodies: `${BODY_MEMORY_BYTES}B` },
  bodyTimeMs: 10_000,
  tls: createSelfSignedCertificate(["127.0.0.1"]),
});
const a = gateway.urlOf("a");
order({
  type: "target",
  key: KEY,
  otherKey: OTHER_KEY,
  a,
  b: gateway.urlOf("b"),
  c: gateway.urlOf("c"),
  tls: gateway.urlOf("tls"),
});

const caller = run.own(new SteadyCaller(a));
let failed = 0;
/**
 * Calls at an even rate for one turn. Times count from when a call was due, so that a stall is
 * included.
 */
async function turn(): Promise<number[]> {
  const times: number[] = [];
  const calls: Promise<void>[] = [];
  const started = performance.now();
  for (let begun = 0; performance.now() - started < TURN_MS;) {
    const dueMs = begun * 1000 / CALLS_A_SECOND;
    if (performance.now() - started < dueMs) {
      await pause(TICK_MS);
      continue;
    }
    const made = caller.call(begun % 2 === 0).then((isWhole) => {
      if (!isWhole) failed++;
      times.push(performance.now() - started - dueMs);
    });
    calls.push(made);
    begun++;
  }
  await Promise.all(calls);
  return times;
}

/** Calls at the same rate while another caller does harm. */
async function harmedTurn(harm: Harm, look: () => Promise<number[]> = turn) {
  order({ type: "begin", harm });
  await report("begun");
  const times = await look();
  order({ type: "end" });
  const ended = await report("ended");
  await pause(REST_MS);
  return { times, ended };
}

const harms = (Object.keys(HARMS) as Harm[]).filter((harm) =>
  run.texts.only === undefined || harm === run.texts.only
);
const calm = new Map<Harm, number[]>(harms.map((harm) => [harm, []]));
const harmed = new Map<Harm, number[]>(harms.map((harm) => [harm, []]));
const refusals: Refusals[] = [];
await run.finish(async () => {
  await turn();
  await harmedTurn("wrong keys"); // warm-up: the runtime compiles the code of a flood of wrong keys
  for (let round = 0; round < run.counts.rounds; round++) {
    for (const harm of harms) {
      calm.get(harm)?.push(...await turn());
      const { times, ended } = await harmedTurn(harm);
      harmed.get(harm)?.push(...times);
      for (const complaint of ended.complaints) run.fail(`${harm}: ${complaint}`);
    }
    // Without the load of the bystanders: two cores are too few for three programs, and the result
    // would measure their scheduling.
    const { ended } = await harmedTurn("wrong keys", () => pause(TURN_MS).then(() => []));
    if (ended.refusals !== undefined) refusals.push(ended.refusals);
  }
  console.log(
    `bystanders on ${run.runtime.label}: ${CALLS_A_SECOND} calls a second that take ${ANSWER_MS} ms`,
  );
  console.log(`${"".padEnd(20)}calm p50     p99   harm p50     p99   p99 ratio`);
  for (const harm of harms) {
    const [before, during] = [inOrder(calm.get(harm) ?? []), inOrder(harmed.get(harm) ?? [])];
    const [calmP99, harmP99] = [percentile(before, 0.99), percentile(during, 0.99)];
    const ratio = harmP99 / calmP99;
    const times = [percentile(before, 0.5), calmP99, percentile(during, 0.5), harmP99];
    const cells = times.map((ms, index) => ms.toFixed(1).padStart(index === 2 ? 11 : 8));
    console.log(
      `${harm.padEnd(20)}${cells.join("")}${ratio.toFixed(2).padStart(12)}   ${HARMS[harm]}`,
    );
    if (!(ratio <= MAX_RATIO)) {
      run.fail(`${harm}: the p99 of bystanders is ${ratio.toFixed(2)} times that of calm`);
    }
  }
  if (refusals.length > 0) {
    const median = (name: keyof Refusals) =>
      percentile(inOrder(refusals.map((each) => each[name])), 0.5);
    const p99 = median("p99Ms");
    console.log(
      `wrong keys: ${median("perSecond").toFixed(0)} refused a second, p50 ${
        median("p50Ms").toFixed(2)
      } ms, p99 ${p99.toFixed(2)} ms`,
    );
    if (!(p99 < MAX_REFUSAL_MS)) {
      run.fail(`wrong keys were refused within ${p99.toFixed(2)} ms (p99)`);
    }
  }
  if (failed > 0) run.fail(`${failed} calls of bystanders failed`);
});
