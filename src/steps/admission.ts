/**
 * Admission of a call by the limits of its key, its team and its provider: either all of them count
 * it, or none. A lease counts a call until it is released:
 *
 * | call | first lease, before its body is read | second lease |
 * | --- | --- | --- |
 * | has no body and reserves nothing | request and slot of all subjects | none |
 * | has a body or reserves, and its key limits calls | request and slot of its key | all else, if anything |
 * | all others | none | all |
 *
 * A body that does not arrive must not cost other keys anything, so the first lease of a call with a
 * body is only of its key. The run of a call is asked between the two leases.
 *
 * Limiters distinguish the leases by their reservations: the first of two has `lastSubject`, the
 * second has `firstLeaseSubject`. Both are released at the end of the exchange. Only the second
 * one, or the only one, is charged.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import { isPromise } from "../exchange/exchange.ts";
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
import { type Account, type CountedCall, toCountedCall } from "./counted_call.ts";
import { isRepeated } from "./durable/wanted_recording.ts";
import { countsCost, NO_AMOUNTS_ACCOUNT, toFixedAccount } from "./fixed_price.ts";
import type { Flow } from "./flow.ts";
import { admitToRun } from "./runs.ts";
import { openAccount } from "./token_account.ts";
import { completeUsageAtEnd } from "./usage_at_end.ts";

/**
 * Account of one lease. Without `toAmounts` it is the first of two leases, and the second one is
 * charged for the call.
 */
type LeaseAccount = Pick<Account, "reservation"> & Partial<Pick<Account, "toAmounts">>;

/** Returns the key among the subjects of a call: it is the first, if it has limits. */
function keyAmong([first]: readonly LimitSubject[]): LimitSubject | undefined {
  return first?.name.startsWith("key:") ? first : undefined;
}

/** Returns the subjects that count a call before its body has arrived: the key, or none. */
function subjectsBeforeBody(subjects: readonly LimitSubject[]): readonly LimitSubject[] {
  const key = keyAmong(subjects);
  return key !== undefined && limitsCalls(key) ? [key] : [];
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
  const countsAll = !needsReservation && firstSubjects.length === subjects.length;
  // Both reservations are 0. The free one also passes a limit of amounts that is used up.
  const reservation = needsReservation ? NO_RESERVATION : FREE_RESERVATION;
  const account: LeaseAccount = countsAll
    ? NO_AMOUNTS_ACCOUNT
    : { reservation: { ...reservation, lastSubject: subjects.at(-1)?.name } };
  try {
    flow.firstLease = { lease: await acquireUntilSettled(firstSubjects, account, flow), countsAll };
  } catch (refusal) {
    const isLimit = GatewayError.is(refusal) && refusal.limit !== undefined;
    if (isLimit && await isRepeated(flow)) return;
    throw refusal;
  }
  // If a second lease follows, its headers state the limits.
  if (countsAll) exchange.ownHeaders = flow.firstLease.lease.headers;
}

/** Undoes {@link admitBeforeBody}, because no call is made. */
export function undoAdmission(flow: Flow): void {
  if (flow.firstLease === undefined) return;
  undoLease(flow.firstLease.lease);
  flow.firstLease = undefined;
  flow.exchange.ownHeaders = {};
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
    gateway.laterUsage.correctAtEnd(operation.objectId, exchange);
  }
  if (flow.run === undefined && !needsSecondLease(flow)) return undefined;
  return admitAfterBody(counted, call, flow);
}

/**
 * Opens the account of a call, admits the call to its run, if it has one, and acquires the second
 * lease. If any of them fails, the call keeps nothing, and its run counts no call.
 */
async function admitAfterBody(
  counted: CountedCall | undefined,
  call: Call,
  flow: Flow,
): Promise<void> {
  const { exchange, gateway, subjects, needsReservation, run } = flow;
  try {
    if (counted !== undefined && countsCost(flow)) {
      const opened = { call, at: exchange.startedAt, isInRun: run !== undefined };
      counted.account = openAccount(subjects, counted, opened, gateway.accounting);
    }
    // A run can need the account although no limit does.
    const account = counted?.account ?? toFixedAccount(flow);
    if (run !== undefined) await admitToRun(run, account, call, flow);
    if (needsSecondLease(flow)) {
      await acquireSecond(needsReservation ? account : NO_AMOUNTS_ACCOUNT, flow);
    }
  } catch (error) {
    undoAdmission(flow);
    throw error;
  }
  // Only the provider's statement shows the cost of the call, and it is at the end of the answer.
  if (counted?.account !== undefined && !counted.isInputWhole) exchange.unbind();
}

/** Awaits the usage of a call whose own answer does not state it, in the answer of a later call. */
function awaitUsage(call: Call, flow: Flow): void {
  const { exchange, gateway, subjects } = flow;
  const { tariff, otherModels } = call.facts;
  const { toAmounts } = toFixedAccount(flow);
  const toFixed = () => toAmounts(undefined);
  gateway.laterUsage.awaitAtEnd(
    { tariff, otherModels: otherModels?.names, subjects, toFixed },
    exchange,
  );
}

/** Returns whether limits are left that the first lease does not count. */
const needsSecondLease = ({ firstLease, subjects }: Flow): boolean =>
  subjects.length > 0 && firstLease?.countsAll !== true;

/** Acquires the second lease, which is charged for the call. */
async function acquireSecond({ reservation, toAmounts }: Account, flow: Flow): Promise<void> {
  const { subjects, firstLease, exchange } = flow;
  const firstLeaseSubject = firstLease === undefined ? undefined : keyAmong(subjects)?.name;
  const account = { reservation: { ...reservation, firstLeaseSubject }, toAmounts };
  const { headers } = await acquireUntilSettled(subjects, account, flow);
  exchange.ownHeaders = headers;
}

/**
 * Acquires all limits, or none, and settles when the exchange is over. A limiter in memory answers
 * at once, and throws its refusal.
 */
function acquireUntilSettled(
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
    // `completeUsageAtEnd` has decided the usage just before.
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
