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
import type { RecordingAnswer, RecordingMessage } from "../durable/recording_server.ts";
import type { RunAnswer, RunMessage } from "../runs/run_server.ts";
import type { LimiterAnswer, LimiterMessage } from "../limits/limiter_server.ts";
import { type Config, ConfigError } from "../config/config.ts";
import { GatewayError, toErrorResponse } from "../errors/gateway_error.ts";
import type { ExchangeObserver, Tracer } from "../exchange/observer.ts";
import { toResponse } from "../http/web.ts";
import { createGateway, type Gateway, portableDigest } from "../gateway.ts";
import { embedIdentity } from "../steps/token_verifier_setup.ts";
import { toJsonLine, toPrettyLine } from "../observe/access_log.ts";
import {
  type Bindings,
  createHeldKeyReader,
  createParts,
  type ObjectState,
  readConfig,
} from "./bindings.ts";
import { SallyportLimits as LimitsObject } from "./limits_object.ts";
import { SallyportRecordings as RecordingsObject } from "./recordings_object.ts";
import { clock } from "./worker_clock.ts";

export type { Bindings, ObjectNamespace, ObjectState } from "./bindings.ts";
export type { KvNamespace } from "./keys_kv.ts";
export type { RecordingAnswer, RecordingMessage } from "../durable/recording_server.ts";
export type { RunAnswer, RunMessage } from "../runs/run_server.ts";
export type { LimiterAnswer, LimiterMessage } from "../limits/limiter_server.ts";

/**
 * The class of the Durable Object that counts limits and runs. Its type does not refer to the
 * platform's own types.
 */
export const SallyportLimits: new (ctx: ObjectState, env: unknown) => {
  handle(message: LimiterMessage): LimiterAnswer;
  handleRuns(message: RunMessage): Promise<RunAnswer>;
} = LimitsObject;

/** The class of the Durable Object that stores recordings of durable exchanges. */
export const SallyportRecordings: new (ctx: ObjectState, env: unknown) => {
  handle(message: RecordingMessage): Promise<RecordingAnswer>;
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

/** Logs one line for each exchange to the console, whose output the platform stores. */
function logTo(wanted: Config["log"]): ExchangeObserver {
  const toLine = wanted === "pretty" ? toPrettyLine : toJsonLine;
  // deno-lint-ignore no-console -- a Worker has no other output
  return { settled: (record) => console.log(toLine(record)), wantsWithheld: wanted === "debug" };
}

function warn(text: string): void {
  // deno-lint-ignore no-console -- a Worker has no other output
  console.warn(`sallyport: ${text}`);
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
    readHeldKey: createHeldKeyReader(env),
    identity: embedIdentity(config, {
      digest: portableDigest,
      clock,
      report: warn,
      hasTimers: false, // a timer must not outlive its request
      keepAlive: waitUntil,
    }),
    tracer: untilSettled,
    observers: config.log === "off" ? [] : [logTo(config.log)],
  });
}

let gateway: Gateway | undefined;

/**
 * The Worker. Its gateway is created at the first request. A mistake in the configuration is
 * logged, and answered with 500.
 */
const worker: { fetch(request: Request, env: Bindings): Promise<Response> } = {
  async fetch(request, env) {
    try {
      gateway ??= create(env);
    } catch (error) {
      const why = error instanceof ConfigError ? error.message : "Cannot start: an internal error";
      // deno-lint-ignore no-console -- as above
      console.error(`sallyport: ${why}`);
      return toResponse(toErrorResponse(new GatewayError("internal_error")));
    }
    return await gateway.fetch(request);
  },
};
export default worker;
