/**
 * The gateway as a Cloudflare Worker. `ops/workers/main.js` only exports it.
 *
 * On that platform, objects of one request, such as timers and streams, must not be used by another
 * request. Each deadline therefore has its own timer, and an isolate keeps only plain data between
 * requests.
 *
 * @module
 */
import { waitUntil } from "cloudflare:workers";
import type { RecordingMessage, RecordingReply } from "../durable/recording_server.ts";
import type { RunMessage, RunReply } from "../runs/run_server.ts";
import type { LimiterMessage, LimiterReply } from "../limits/limiter_server.ts";
import { type Config, ConfigError } from "../config/config.ts";
import type { ExchangeObserver, Tracer } from "../exchange/observer.ts";
import { createGateway, type Gateway, portableDigest } from "../gateway.ts";
import { embedIdentity } from "../steps/token_verifier_setup.ts";
import { toJsonLine, toPrettyLine } from "../observe/access_log.ts";
import { createRefusalReporter } from "../observe/held_key_refusals.ts";
import {
  type Bindings,
  createHeldKeyReader,
  createParts,
  type ObjectState,
  readConfig,
} from "./bindings.ts";
import { SallyportLimits as LimitsObject } from "./limits_object.ts";
import { SallyportRecordings as RecordingsObject } from "./recordings_object.ts";
import { print, toWorker, warn, type Worker } from "./worker.ts";
import { clock } from "./worker_clock.ts";

export { admin } from "./admin.ts";
export type { Bindings, ObjectNamespace, ObjectState } from "./bindings.ts";
export type { Worker } from "./worker.ts";
export type { KvNamespace } from "./keys_kv.ts";
export type { RecordingMessage, RecordingReply } from "../durable/recording_server.ts";
export type { RunMessage, RunReply } from "../runs/run_server.ts";
export type { LimiterMessage, LimiterReply } from "../limits/limiter_server.ts";

/**
 * The class of the Durable Object that counts limits and runs. Its type does not refer to the
 * platform's own types.
 */
export const SallyportLimits: new (ctx: ObjectState, env: unknown) => {
  handle(message: LimiterMessage): LimiterReply;
  handleRuns(message: RunMessage): Promise<RunReply>;
} = LimitsObject;

/** The class of the Durable Object that stores recordings of durable exchanges. */
export const SallyportRecordings: new (ctx: ObjectState, env: unknown) => {
  handle(message: RecordingMessage): Promise<RecordingReply>;
} = RecordingsObject;

/** Compatibility flag. Without it, the gateway is not notified when a caller leaves. */
const FLAG = "enable_request_signal";

/**
 * Keeps the runtime running until an exchange has ended, even if its caller has left. Otherwise the
 * exchange would never settle.
 */
const untilSettled: Tracer = {
  begin(exchange) {
    waitUntil(new Promise<void>((resolve) => exchange.onSettled(() => resolve())));
    return { called: ({ headers }) => headers, answered() {}, failed() {} };
  },
};

/** Logs one line for each exchange to the console. */
function logTo(wanted: Config["log"]): ExchangeObserver {
  const toLine = wanted === "pretty" ? toPrettyLine : toJsonLine;
  return { settled: (record) => print(toLine(record)), wantsWithheld: wanted === "debug" };
}

function assertFlag(): void {
  const { Cloudflare } = globalThis as {
    Cloudflare?: { compatibilityFlags?: Record<string, boolean> };
  };
  if (Cloudflare?.compatibilityFlags?.[FLAG] === true) return;
  throw new ConfigError([{
    path: "compatibility_flags",
    message: `expected "${FLAG}" among them`,
  }]);
}

function create(env: Bindings): Gateway {
  assertFlag();
  const config = readConfig(env);
  return createGateway(config, {
    ...createParts(env, config, { clock, keepAlive: waitUntil, report: warn }),
    clock,
    readHeldKey: createHeldKeyReader(env, warn),
    identity: embedIdentity(config, {
      digest: portableDigest,
      clock,
      report: warn,
      hasTimers: false, // a timer must not outlive its request
      keepAlive: waitUntil,
    }),
    tracer: untilSettled,
    observers: [
      createRefusalReporter(config, warn),
      ...(config.log === "off" ? [] : [logTo(config.log)]),
    ],
  });
}

/** The Worker that serves callers. */
const worker: Worker = toWorker(create);
export default worker;
