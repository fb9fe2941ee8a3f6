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
import { findUsageParameter } from "../inbound/query.ts";
import { limitsStrictly } from "../limits/limiter.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import { isCharged, isUnstatedOperation } from "../operations/table.ts";
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
  { isOwn }: Pick<ResolvedOperation, "isOwn">,
  secrets: CallerSecrets,
  { request, exchange, gateway }: Pick<Arrival, "request" | "exchange" | "gateway">,
): StatedRun | undefined {
  if (isOwn) return undefined;
  const { headers } = request;
  const { runRules } = gateway;
  const field = headers.get(RUN_HEADER);
  const stated = field === null
    ? readSession(headers, runRules.headers)
    : readRunField(field, runRules.currency);
  if (stated === undefined) return undefined;
  assertNoSecret(stated, secrets);
  exchange.facts.run = stated.id;
  return narrow(stated, runRules);
}

/** Reads the first header of a client that names its session. @throws {GatewayError} `invalid_run` */
function readSession(
  headers: GatewayRequest["headers"],
  names: readonly string[],
): StatedRun | undefined {
  for (const name of names) {
    const value = headers.get(name)?.trim() ?? "";
    if (value !== "") return readSessionField(value, name);
  }
  return undefined;
}

/** Refuses ids with a secret, because operators see ids. @throws {GatewayError} `invalid_run` */
function assertNoSecret({ id, parent = "" }: StatedRun, secrets: CallerSecrets): void {
  if (!isSecret(id, secrets) && !isSecret(parent, secrets)) return;
  throw new GatewayError("invalid_run", { detail: "its id looks like a secret" });
}

/** Narrows the limits of a run by the configuration. */
function narrow({ id, parent, limits }: StatedRun, { budget, calls }: RunRules): StatedRun {
  return {
    id,
    parent,
    limits: {
      budget: narrower(limits.budget, budget?.amount),
      calls: narrower(limits.calls, calls),
    },
  };
}

/** Returns the code that refuses a call under a budget; `undefined` if its cost is known. */
function findUnpriced({ isPriced }: Account, flow: Flow): RunReservation["unpriced"] {
  const { operation, provider, request: { url } } = flow;
  const isHidden = findUsageParameter(url, provider.shape) !== undefined;
  if (isHidden || (isUnstatedOperation(operation) && !isPriced)) return "operation_not_metered";
  return isPriced ? undefined : "model_not_priced";
}

/** Returns the amounts that a call reserves in its run: those that limits reserve. */
function toReservation(account: Account, flow: Flow): RunReservation {
  const { operation, subjects } = flow;
  if (!isCharged(operation)) return { spend: 0, isFree: true, isStrict: false };
  const isStrict = isUnstatedOperation(operation) || subjects.some(limitsStrictly);
  const { expected, most } = account.reservation;
  const { spend } = isStrict ? most : expected;
  return { spend, unpriced: findUnpriced(account, flow), isFree: false, isStrict };
}

/**
 * Returns the body of a call that can be a repeat. Programs that wait for something repeat calls
 * without a body or without cost.
 */
async function toRunBody(
  { body }: Call,
  { repeats, onRepeat }: RunRules,
  { request, operation }: Flow,
): Promise<RunBody | undefined> {
  if (!isCharged(operation)) return undefined;
  const bytes = bytesOf(body) as Uint8Array<ArrayBuffer>;
  if (bytes.byteLength === 0) return undefined;
  return {
    digest: toBase64Url(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))),
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
  const asked = { keyId: key.id, run, reservation, bounds: { idleMs, maxPerKey }, body };
  const onStopped = () => exchange.abort(new GatewayError("run_stopped"));
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
