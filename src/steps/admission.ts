/**
 * Admission of a call by the limits of its key, its team and its provider: either all of them count
 * it, or none. A lease counts a call until it is released. Most calls acquire two:
 *
 * | call | first lease, before its body is read | second lease |
 * | --- | --- | --- |
 * | has no body and reserves nothing | request and slot of all subjects | none |
 * | has a body or reserves, and its key limits calls | request and slot of its key | all else |
 * | all others | none | all |
 *
 * A body that does not arrive must not cost other keys anything, so the first lease of a call with a
 * body is only of its key. The run of a call is asked between the two leases.
 *
 * Limiters distinguish the leases by their reservations: the first of two has `lastSubject`, the
 * second has `countedByFirstLease`. Both are released at the end of the exchange. Only the second
 * one, or the only one, is charged.
 *
 * @module
 */
import { parseCost, toNano } from "../config/cost.ts";
import type { KeyConfig } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { TeamConfig } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { isPromise } from "../exchange/exchange.ts";
import { findUsageParameter } from "../inbound/query.ts";
import { isSuccess } from "../http/message.ts";
import {
  acquireLease,
  FREE_RESERVATION,
  type Lease,
  limitsAmounts,
  limitsCalls,
  type LimitSubject,
  NO_AMOUNTS,
  NO_RESERVATION,
  undoLease,
} from "../limits/limiter.ts";
import type { Call } from "./call.ts";
import { isRepeated } from "./durable/wanted_recording.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import { isCharged, isUnstatedOperation } from "../operations/table.ts";
import type { StatedRun } from "../runs/run_registry.ts";
import { type Account, type CountedCall, toCountedCall } from "./counted_call.ts";
import type { Flow, Provider } from "./flow.ts";
import { admitToRun } from "./runs.ts";
import { openAccount } from "./token_account.ts";
import { completeUsageAtEnd } from "./usage_at_end.ts";

/**
 * Names the subjects whose limits count: the key, its team and the provider.
 *
 * @param settings Settings of the team of the key; `undefined` if there is no such team
 * @throws {GatewayError} `team_not_configured`
 */
export function subjectsOf(
  { id, team, limits }: KeyConfig,
  { subjects }: { readonly subjects: readonly LimitSubject[] },
  settings: TeamConfig | undefined,
): readonly LimitSubject[] {
  if (limits === undefined && team === undefined) return subjects;
  const own = limits === undefined ? [] : [{ name: `key:${id}`, limits }];
  if (team === undefined) return [...own, ...subjects];
  if (settings === undefined) throw new GatewayError("team_not_configured");
  return [...own, { name: `team:${team}`, limits: settings.limits }, ...subjects];
}

/**
 * Returns the operator's price for a call whose answer states no usage (`callPrices`).
 *
 * @returns Units of 10^-9 of the currency; `undefined` if the operator set none
 */
function fixedPriceOf(
  { name, group }: Pick<ResolvedOperation, "name" | "group">,
  { callPrices = {} }: Pick<ProviderConfig, "callPrices">,
): number | undefined {
  const price = [name, group].filter((each) => each !== undefined)
    .map((each) => Object.hasOwn(callPrices, each) ? callPrices[each] : undefined)
    .find((each) => each !== undefined);
  return price === undefined ? undefined : toNano(parseCost(String(price)));
}

/**
 * Refuses a call whose cost no answer states, if tokens or money are limited.
 *
 * @throws {GatewayError} `operation_not_metered`
 */
export function assertMetered(
  operation: ResolvedOperation,
  url: string,
  provider: Provider,
  subjects: readonly LimitSubject[],
): void {
  if (!isCharged(operation) || !subjects.some(limitsAmounts)) return;
  const param = findUsageParameter(url, provider.shape);
  if (param !== undefined) {
    throw unmetered(`send it without ?${param}=, which hides the usage in the answer`, param);
  }
  if (isUnstatedOperation(operation) && fixedPriceOf(operation, provider) === undefined) {
    throw unmetered("the gateway's operator has to set its price in callPrices");
  }
}

const unmetered = (detail: string, param?: string): GatewayError =>
  new GatewayError("operation_not_metered", { detail, ...(param !== undefined && { param }) });

/**
 * Account of one lease. Without `toAmounts` it is the first of two leases, and the second one is
 * charged for the call.
 */
type LeaseAccount = Pick<Account, "reservation"> & Partial<Pick<Account, "toAmounts">>;

/** Account of a call that costs nothing. */
const FREE_ACCOUNT: Account = {
  reservation: FREE_RESERVATION,
  isPriced: true,
  toAmounts: () => NO_AMOUNTS,
};

/**
 * Returns the subject that counts a call before its body has arrived: its key, if that limits
 * calls.
 */
function subjectsBeforeBody([first]: readonly LimitSubject[]): readonly LimitSubject[] {
  const isKey = first !== undefined && first.name.startsWith("key:");
  return isKey && limitsCalls(first) ? [first] : [];
}

/**
 * Acquires the first lease.
 *
 * If a limit is reached, a retry of a recorded call still continues: it receives the recorded
 * answer, and counts against no limit.
 *
 * @throws {GatewayError} As the limiter does
 */
export async function admitBeforeBody(flow: Flow): Promise<void> {
  const { request, exchange, subjects, needsReservation } = flow;
  const waitsForBody = needsReservation || request.body !== null;
  const firstSubjects = waitsForBody ? subjectsBeforeBody(subjects) : subjects;
  if (firstSubjects.length === 0) return;
  const isOnly = !needsReservation && firstSubjects.length === subjects.length;
  const reservation = needsReservation ? NO_RESERVATION : FREE_RESERVATION;
  const account: LeaseAccount = isOnly
    ? FREE_ACCOUNT
    : { reservation: { ...reservation, lastSubject: subjects.at(-1)?.name } };
  try {
    flow.firstLease = { lease: await acquireAndSettle(firstSubjects, account, flow), isOnly };
  } catch (refusal) {
    const isLimit = GatewayError.is(refusal) && refusal.limit !== undefined;
    if (isLimit && await isRepeated(flow)) return;
    throw refusal;
  }
  // If a second lease follows, its headers state the limits.
  if (isOnly) exchange.headers = flow.firstLease.lease.headers;
}

/** Undoes {@link admitBeforeBody}, because no call is made. */
export function undoAdmission(flow: Flow): void {
  if (flow.firstLease === undefined) return;
  undoLease(flow.firstLease.lease);
  flow.firstLease = undefined;
  flow.exchange.headers = {};
}

/**
 * Admits a call whose body was read, if there is one: acquires the second lease. For a call that
 * costs tokens, it opens the account and reserves the amounts. A refused call returns all of it.
 *
 * @throws {GatewayError} As the limiter and {@link openAccount} do
 */
export function admit(call: Call, flow: Flow): Promise<void> | undefined {
  const { exchange, gateway, operation } = flow;
  const counted = operation.cost === "tokens" ? toCountedCall(call, flow) : undefined;
  if (counted !== undefined) completeUsageAtEnd(counted, exchange, gateway.accounting);
  if (counted?.isBackground === true || operation.cost === "later") awaitUsage(call, flow);
  if (operation.cost === "earlier" && operation.objectId !== undefined) {
    gateway.laterUsage.settleAtEnd(operation.objectId, exchange);
  }
  if (flow.run !== undefined) return admitWithRun(flow.run, counted, call, flow);
  if (!needsSecondLease(flow)) return undefined;
  return acquireSecond(flow.needsReservation ? counted : undefined, call, flow);
}

/**
 * Admits a call of a run: to the run, and then to the limits. If the limits refuse it, the run
 * counts no call.
 */
async function admitWithRun(
  run: StatedRun,
  counted: CountedCall | undefined,
  call: Call,
  flow: Flow,
): Promise<void> {
  const { exchange, gateway, operation, subjects } = flow;
  try {
    if (counted !== undefined) {
      const made = { call, at: exchange.startedAt, isInRun: true };
      counted.account = openAccount(subjects, counted, made, gateway.accounting);
    }
    const account = counted?.account ?? toFixedAccount(flow, isCharged(operation));
    await admitToRun(run, account, call, flow);
  } catch (error) {
    undoAdmission(flow);
    throw error;
  }
  if (needsSecondLease(flow)) {
    await acquireSecond(flow.needsReservation ? counted : undefined, call, flow);
  }
  if (counted?.isInputWhole === false) exchange.unbind();
}

/** Awaits the usage of a call whose own answer does not state it, in the answer of a later call. */
function awaitUsage(call: Call, flow: Flow): void {
  const { exchange, gateway, subjects, needsReservation, run } = flow;
  const { tariff } = call.facts;
  const { toAmounts } = toFixedAccount(flow, needsReservation || run !== undefined);
  const toFixed = () => toAmounts(undefined);
  gateway.laterUsage.awaitAtEnd({ tariff, subjects, toFixed }, exchange);
}

/**
 * Returns the account of a call whose answer states no usage: the operator's price, if the call
 * succeeds.
 */
function toFixedAccount(
  { operation, provider, exchange }: Flow,
  needsReservation: boolean,
): Account {
  if (!needsReservation) return FREE_ACCOUNT;
  const price = fixedPriceOf(operation, provider);
  const amounts = { tokens: 0, spend: price ?? 0 };
  return {
    isPriced: price !== undefined,
    reservation: { ...NO_RESERVATION, expected: amounts, most: amounts },
    toAmounts: () => {
      const { answeredStatus } = exchange;
      const hasSucceeded = answeredStatus !== undefined && isSuccess(answeredStatus);
      return hasSucceeded ? amounts : NO_AMOUNTS;
    },
  };
}

/** Returns whether limits are left that the first lease does not count. */
const needsSecondLease = ({ firstLease, subjects }: Flow): boolean =>
  subjects.length > 0 && firstLease?.isOnly !== true;

/**
 * Acquires the second lease. If a limit refuses, or the account cannot be opened, the call keeps
 * nothing.
 *
 * @param counted The facts of the call that are counted; `undefined` if it reserves nothing
 */
async function acquireSecond(
  counted: CountedCall | undefined,
  call: Call,
  flow: Flow,
): Promise<void> {
  const { exchange, gateway, subjects, firstLease } = flow;
  try {
    if (counted !== undefined) {
      const made = { call, at: exchange.startedAt };
      counted.account ??= openAccount(subjects, counted, made, gateway.accounting);
    }
    const { reservation, toAmounts } = counted?.account ??
      toFixedAccount(flow, flow.needsReservation);
    const countedByFirstLease = firstLease && subjects[0]?.name;
    const account = { reservation: { ...reservation, countedByFirstLease }, toAmounts };
    const { headers } = await acquireAndSettle(subjects, account, flow);
    exchange.headers = headers;
  } catch (error) {
    undoAdmission(flow);
    throw error;
  }
  // Only the provider's statement shows the cost of the call, and it is at the end of the answer.
  if (counted?.isInputWhole === false) exchange.unbind();
}

/**
 * Acquires all limits, or none, and settles when the exchange is over. A limiter in memory answers
 * at once, and throws its refusal.
 */
function acquireAndSettle(
  subjects: readonly LimitSubject[],
  { reservation, toAmounts }: LeaseAccount,
  { exchange, gateway }: Flow,
): Lease | Promise<Lease> {
  const { limiter, clock } = gateway;
  const budgets = subjects.some(limitsAmounts) ? gateway.budgetNotes : undefined;
  const onRefused = (error: unknown): never => {
    budgets?.refused(error, subjects);
    throw error;
  };
  const onAcquired = (lease: Lease): Lease => {
    const noteUsed = toAmounts && budgets?.admitted(lease);
    exchange.onSettled(({ usage }) => {
      const used = toAmounts?.(usage) ?? NO_AMOUNTS;
      noteUsed?.(used);
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
