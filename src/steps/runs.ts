/**
 * Runs of agents: reads the run that a call belongs to, and admits the call to it.
 *
 * @module
 */
import type { RunRules } from "../config/runs.ts";
import { toBase64Url } from "../durable/recording_store.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { withDeadline } from "../exchange/deadline.ts";
import type { GatewayRequest } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";
import { findUsageParameter } from "../inbound/query.ts";
import { limitsStrictly } from "../limits/limiter.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import { hasCost, hasUnstatedCost } from "../operations/table.ts";
import { readRunField, readSessionField, RUN_HEADER } from "../runs/run_field.ts";
import {
  narrower,
  type RunBody,
  type RunLease,
  type RunReservation,
  type StatedRun,
} from "../runs/run_registry.ts";
import { type CallerSecrets, isSecret } from "./attribution.ts";
import { bytesOf, type Call } from "./call.ts";
import { isClientRetry } from "./client_retry.ts";
import type { Account } from "./counted_call.ts";
import type { Arrival, Flow } from "./flow.ts";

/**
 * Reads the run of a call, and notes it.
 *
 * @returns `undefined` for a call without a run
 * @throws {GatewayError} `invalid_run`
 */
export function readRun(
  { isOfGateway }: Pick<ResolvedOperation, "isOfGateway">,
  secrets: CallerSecrets,
  { request, exchange, gateway }: Pick<Arrival, "request" | "exchange" | "gateway">,
): StatedRun | undefined {
  if (isOfGateway) return undefined;
  const { headers } = request;
  const { runRules } = gateway;
  const field = headers.get(RUN_HEADER);
  const stated = field === null
    ? readSession(headers, runRules.headers, secrets)
    : withoutSecret(readRunField(field, runRules.currency), secrets);
  if (stated === undefined) return undefined;
  exchange.facts.run = stated.id;
  return narrow(stated, runRules);
}

/** Reads the first header of a client that names its session. @throws {GatewayError} `invalid_run` */
function readSession(
  headers: GatewayRequest["headers"],
  names: readonly string[],
  secrets: CallerSecrets,
): StatedRun | undefined {
  for (const name of names) {
    const value = headers.get(name)?.trim() ?? "";
    if (value !== "") return withoutSecret(readSessionField(value, name), secrets, name);
  }
  return undefined;
}

/** Refuses ids with a secret, because operators see ids. @throws {GatewayError} `invalid_run` */
function withoutSecret(
  stated: StatedRun,
  secrets: CallerSecrets,
  param = "Gateway-Run",
): StatedRun {
  const { id, parent = "" } = stated;
  if (!isSecret(id, secrets) && !isSecret(parent, secrets)) return stated;
  throw new GatewayError("invalid_run", { param, detail: "its id looks like a secret" });
}

/** Narrows the limits of a run by the configuration. */
function narrow(stated: StatedRun, { budget, calls }: RunRules): StatedRun {
  const { limits } = stated;
  return {
    ...stated,
    limits: {
      budget: narrower(limits.budget, budget?.amount),
      calls: narrower(limits.calls, calls),
    },
  };
}

/** Returns the code that refuses a call under a budget; `undefined` if its cost can be reserved. */
function findUnpriced({ isPriced, unbounded }: Account, flow: Flow): RunReservation["unpriced"] {
  const { operation, provider, request: { url } } = flow;
  const isHidden = findUsageParameter(url, provider.shape) !== undefined;
  if (isHidden || (hasUnstatedCost(operation) && !isPriced)) return "operation_not_metered";
  return isPriced ? unbounded : "model_not_priced";
}

/** Returns the amounts that a call reserves in its run: those that limits reserve. */
function toReservation(account: Account, flow: Flow): RunReservation {
  const { operation, subjects } = flow;
  if (!hasCost(operation)) return { spend: 0, isFree: true, isStrict: false };
  const isStrict = hasUnstatedCost(operation) || subjects.some(limitsStrictly);
  const { expected, most } = account.reservation;
  const { spend } = isStrict ? most : expected;
  return { spend, unpriced: findUnpriced(account, flow), isFree: false, isStrict };
}

async function digest(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

/**
 * Returns the body of a call that can be a repeat. Programs that wait for something repeat calls
 * without a body or without cost. The same body for another model is no repeat, and the path can be
 * the only place that names the model.
 */
async function toRunBody(
  { body }: Call,
  { repeats, onRepeat }: RunRules,
  { request, operation, provider }: Flow,
): Promise<RunBody | undefined> {
  if (!hasCost(operation)) return undefined;
  const bytes = bytesOf(body);
  if (bytes.byteLength === 0) return undefined;
  const address = new TextEncoder().encode(`${provider.name} ${operation.path}`);
  return {
    digest: toBase64Url(await digest(joinChunks([await digest(bytes), address]))),
    most: onRepeat === "refuse" ? repeats : undefined,
    isRetry: isClientRetry(request.headers) === true,
  };
}

/**
 * Admits a call to its run, and settles it when the exchange is over.
 *
 * @param account The amounts of the call
 * @throws {GatewayError} As the registry of runs does
 */
export async function admitToRun(
  run: StatedRun,
  account: Account,
  call: Call,
  flow: Flow,
): Promise<void> {
  const { exchange, gateway, key } = flow;
  const { runRules } = gateway;
  const { idleMs, maxPerKey, repeats: most } = runRules;
  const reservation = toReservation(account, flow);
  const body = most === undefined ? undefined : await toRunBody(call, runRules, flow);
  const bounds = { idleMs, maxPerKey };
  const defaults = { budget: runRules.budget?.amount, calls: runRules.calls };
  const asked = { keyId: key.id, run, reservation, bounds, defaults, body };
  const { header } = run;
  const details = header === undefined ? {} : { param: header };
  const onStopped = () => exchange.abort(new GatewayError("run_stopped", details));
  const lease = await withDeadline(gateway.runs.admit(asked, onStopped), {
    exchange,
    clock: gateway.clock,
    toError: () => new GatewayError("runs_unavailable"),
    onLate: (late: RunLease) => late.release(0, true),
  });
  const { repeats = 0 } = lease;
  if (most !== undefined && repeats > most) exchange.facts.repeats = repeats;
  exchange.onSettled(({ usage, calledMs }) =>
    lease.release(account.toAmounts(usage).spend, calledMs === undefined)
  );
}
