/**
 * Admission of a call by the limits of its key, its team and its provider: either all of them count
 * it, or none.
 *
 * @module
 */
import { parseCost, toNano } from "../config/cost.ts";
import type { KeyConfig } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { TeamConfig } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { isPromise } from "../exchange/exchange.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { isSuccess } from "../http/message.ts";
import {
  acquireLease,
  type Amounts,
  type Lease,
  limitsAmounts,
  limitsCalls,
  type LimitSubject,
  NO_AMOUNTS,
  NO_RESERVATION,
  type Reservation,
} from "../limits/limiter.ts";
import type { Account, CountedCall } from "./accounting.ts";
import type { Call } from "./call.ts";
import { isRepeated } from "./durable/wanted_recording.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import type { Flow, Provider } from "./flow.ts";

/**
 * Names the subjects whose limits count: the key, its team and the provider.
 *
 * @throws {GatewayError} `team_not_configured`
 */
export function subjectsOf(
  { id, team, limits }: KeyConfig,
  { subjects }: { readonly subjects: readonly LimitSubject[] },
  { teams }: { readonly teams: Readonly<Record<string, TeamConfig>> },
): readonly LimitSubject[] {
  if (limits === undefined && team === undefined) return subjects;
  const own = limits === undefined ? [] : [{ name: `key:${id}`, limits }];
  if (team === undefined) return [...own, ...subjects];
  const shared = Object.hasOwn(teams, team) ? teams[team] : undefined;
  if (shared === undefined) throw new GatewayError("team_not_configured");
  return [...own, { name: `team:${team}`, limits: shared.limits }, ...subjects];
}

/**
 * Returns the configured price of a call that states no usage, in units of 10^-9 of the currency.
 *
 * @returns `undefined` if the operator set none
 */
function callPriceOf(
  { name, group }: Pick<ResolvedOperation, "name" | "group">,
  { callPrices = {} }: Pick<ProviderConfig, "callPrices">,
): number | undefined {
  const price = [name, group].filter((each) => each !== undefined)
    .map((each) => Object.hasOwn(callPrices, each) ? callPrices[each] : undefined)
    .find((each) => each !== undefined);
  return price === undefined ? undefined : toNano(parseCost(String(price)));
}

/**
 * Refuses an operation whose cost no answer states, if tokens or money are limited.
 *
 * @throws {GatewayError} `operation_not_metered`
 */
export function assertMetered(
  operation: ResolvedOperation,
  provider: Provider,
  subjects: readonly LimitSubject[],
): void {
  if (operation.cost !== "unstated" || !subjects.some(limitsAmounts)) return;
  if (callPriceOf(operation, provider) === undefined) {
    throw new GatewayError("operation_not_metered");
  }
}

/** Account of a call that uses no tokens. */
const NO_ACCOUNT: Account = { reservation: NO_RESERVATION, toAmounts: () => NO_AMOUNTS };

/**
 * Returns the subject that counts a call before its body has arrived: its key, if that limits
 * calls.
 */
function subjectsBeforeBody([first]: readonly LimitSubject[]): readonly LimitSubject[] {
  const isKey = first !== undefined && first.name.startsWith("key:");
  return isKey && limitsCalls(first) ? [first] : [];
}

/**
 * Admits a call before its body is read. A call without a body that reserves nothing acquires its
 * request and its slot in all limits, or in none. Any other call acquires them only in the limits of
 * its key, because a body that does not arrive must not cost other keys anything.
 *
 * If a limit is reached, a retry of a recorded call still continues: it receives the recorded
 * answer, and counts against no limit.
 *
 * @throws {GatewayError} As the limiter does
 */
export async function admitBeforeBody(flow: Flow): Promise<void> {
  const { request, exchange, subjects, needsReservation } = flow;
  const firstSubjects = needsReservation || request.body !== null
    ? subjectsBeforeBody(subjects)
    : subjects;
  if (firstSubjects.length === 0) return;
  const coversAll = !needsReservation && firstSubjects.length === subjects.length;
  const reservation = coversAll
    ? NO_RESERVATION
    : { ...NO_RESERVATION, lastSubject: subjects.at(-1)?.name };
  try {
    flow.lease = await acquire(
      firstSubjects,
      reservation,
      flow,
      coversAll ? NO_ACCOUNT.toAmounts : undefined,
    );
  } catch (refusal) {
    const isLimit = GatewayError.is(refusal) && refusal.limit !== undefined;
    if (isLimit && await isRepeated(flow)) return;
    throw refusal;
  }
  flow.isAdmitted = coversAll;
  // If a second lease follows, its headers state the limits.
  if (coversAll) exchange.headers = flow.lease.headers;
}

/** Undoes {@link admitBeforeBody}, because no call is made. */
export function undoAdmission(flow: Flow): void {
  if (flow.lease === undefined) return;
  flow.lease.release(NO_AMOUNTS, true);
  flow.lease = undefined;
  flow.isAdmitted = false;
  flow.exchange.headers = {};
}

/**
 * Admits a call whose body was read: acquires the limits that {@link admitBeforeBody} did not. For a call
 * that costs tokens, it opens the account and reserves the amounts. A refused call returns all of
 * it.
 *
 * @throws {GatewayError} As the limiter and {@link Accounting.open} do
 */
export function admit(call: Call, flow: Flow): Promise<void> | undefined {
  const { exchange, gateway, operation, subjects } = flow;
  const counted = operation.cost === "tokens" ? toCountedCall(call, flow) : undefined;
  if (counted !== undefined) gateway.accounting.completeAtEnd(counted, exchange);
  if (counted?.isBackground === true) gateway.laterUsage.awaitAtEnd(counted, subjects, exchange);
  if (operation.cost === "earlier" && operation.objectId !== undefined) {
    gateway.laterUsage.settleAtEnd(operation.objectId, exchange);
  }
  if (flow.isAdmitted || subjects.length === 0) return undefined;
  return acquireRest(flow.needsReservation ? counted : undefined, call, flow);
}

/** Returns the account of a call whose answer states no usage: the operator's price, if it works. */
function toPricedAccount({ operation, provider, exchange, needsReservation }: Flow): Account {
  if (!needsReservation) return NO_ACCOUNT;
  const amounts = { tokens: 0, spend: callPriceOf(operation, provider) ?? 0 };
  return {
    reservation: { ...NO_RESERVATION, expected: amounts, most: amounts },
    toAmounts: () => isSuccess(exchange.answeredStatus ?? 0) ? amounts : NO_AMOUNTS,
  };
}

/**
 * Acquires the limits of a call that it has not acquired yet. If one refuses, or the account cannot
 * be opened, it keeps nothing.
 *
 * @param counted The facts of the call that are counted; `undefined` if it reserves nothing
 */
async function acquireRest(
  counted: CountedCall | undefined,
  call: Call,
  flow: Flow,
): Promise<void> {
  const { exchange, gateway, subjects, lease } = flow;
  try {
    const { reservation, toAmounts } = counted === undefined
      ? toPricedAccount(flow)
      : gateway.accounting.open(subjects, counted, { call, at: exchange.startedAt });
    const countedByFirstLease = lease && subjects[0]?.name;
    exchange.headers =
      (await acquire(subjects, { ...reservation, countedByFirstLease }, flow, toAmounts)).headers;
  } catch (error) {
    undoAdmission(flow);
    throw error;
  }
  // Only the provider's statement shows the cost of the call, and it is at the end of the answer.
  exchange.outlivesCaller = counted?.isInputWhole === false;
}

/**
 * Acquires all limits, or none, and settles when the exchange is over.
 *
 * @param toAmounts Converts the usage of the exchange; left out if another lease is charged for it
 */
function acquire(
  subjects: readonly LimitSubject[],
  reservation: Reservation,
  { exchange, gateway }: Flow,
  toAmounts: ((usage: TokenUsage | undefined) => Amounts) | undefined,
): Lease | Promise<Lease> {
  const { limiter, clock } = gateway;
  const budgets = subjects.some(limitsAmounts) ? gateway.budgetNotes : undefined;
  const onRefused = (error: unknown): never => {
    budgets?.refused(error, subjects);
    throw error;
  };
  const onAcquired = (lease: Lease): Lease => {
    const note = toAmounts && budgets?.admitted(lease);
    exchange.onSettled(({ usage }) => {
      const used = toAmounts?.(usage) ?? NO_AMOUNTS;
      note?.(used);
      return lease.release(used);
    });
    if (lease.observed !== undefined) exchange.facts.observedLimit = lease.observed;
    return lease;
  };
  let lease: Lease | Promise<Lease>;
  try {
    lease = acquireLease(limiter, subjects, reservation, { exchange, clock });
  } catch (error) {
    return onRefused(error);
  }
  return isPromise(lease) ? lease.then(onAcquired, onRefused) : onAcquired(lease);
}

/**
 * The most output to reserve if the provider has no maximum: twice the largest of any model in
 * 2026. Without this bound, a caller could state any number, leave, and exhaust a limit that it
 * shares. Tokens.
 */
const MAX_STATED_OUTPUT = 262_144;

/**
 * The most input to reserve if the provider has no maximum: the largest context of a hosted model
 * in 2026 (xAI's Grok 4.20, https://docs.x.ai/docs/models). Without this bound, a caller could send
 * any text, leave before the provider refuses it, and exhaust a limit that it shares. Tokens.
 */
const MAX_BELIEVED_INPUT = 2_000_000;

/** Multiplies a maximum by the number of answers, for which a caller can state any number. */
const multiplyMax = (max: number | undefined, answers: number): number | undefined =>
  max && Math.min(Math.ceil(max * answers), Number.MAX_SAFE_INTEGER);

/** Returns the smaller of two maxima. Either can be unset. */
const smaller = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined || other === undefined ? one ?? other : Math.min(one, other);

/** Returns the facts of a call from which its tokens are counted. */
function toCountedCall({ facts }: Call, { provider, operation, key }: Flow): CountedCall {
  const { generated, prompts, inputBytes, isInputWhole, isBackground } = facts;
  const maxAsked = operation.genAi === "embeddings" ? 0 : multiplyMax(facts.maxOutput, generated);
  const providerMaxOutput = multiplyMax(provider.maxOutput, generated);
  const strictMaxOutput = smaller(maxAsked, providerMaxOutput);
  return {
    provider: provider.name,
    model: facts.model ?? "",
    keyId: key.id,
    inputBytes,
    maxInput: (provider.maxInput ?? MAX_BELIEVED_INPUT) * prompts,
    isInputWhole,
    isBackground,
    tariff: facts.tariff,
    maxOutput: maxAsked &&
      smaller(strictMaxOutput, Math.max(MAX_STATED_OUTPUT, provider.maxOutput ?? 0)),
    providerMaxOutput,
    strictMaxOutput,
    reserved: undefined,
    isStrict: false,
  };
}
