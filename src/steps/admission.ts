/**
 * Admission of a call by the limits of its key, of its team and of its provider: to all of them, or
 * to none.
 *
 * @module
 */
import type { Account, Accounting, LimitedCall } from "./accounting.ts";
import type { BudgetNotes } from "./budget_alerts.ts";
import type { KeyConfig } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { TeamConfig } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { type Exchange, isPromise } from "../exchange/exchange.ts";
import type { TokenUsage } from "../exchange/record.ts";
import type { GatewayRequest } from "../http/message.ts";
import type { RequestBody } from "../inbound/body.ts";
import {
  acquireLease,
  type Amounts,
  type Lease,
  type Limiter,
  limitsAmounts,
  limitsCalls,
  type LimitSubject,
  NO_AMOUNTS,
  NO_RESERVATION,
  type Reservation,
} from "../limits/limiter.ts";
import type { RequestFacts } from "../operations/request_facts.ts";
import { isBodyBounded } from "./request_body.ts";

/** The parts of a gateway that admit calls. */
export interface AdmissionParts {
  readonly limiter: Limiter;
  readonly accounting: Accounting;
  readonly teams: Readonly<Record<string, TeamConfig>>;
  /** Watch of the budgets; `undefined` where none is wanted. */
  readonly budgets: BudgetNotes | undefined;
  readonly clock: Clock;
}

/** The exchange that asks, and the parts of its gateway. */
interface Asking {
  readonly request: GatewayRequest;
  readonly exchange: Exchange;
  readonly gateway: AdmissionParts;
}

/** The facts of a call that its account needs. */
export interface AskedCall {
  readonly key: KeyConfig;
  readonly provider: Pick<ProviderConfig, "maxOutput" | "maxInput"> & { readonly name: string };
  readonly body: RequestBody | null;
  readonly facts: Pick<
    RequestFacts,
    | "generated"
    | "otherModels"
    | "maxOutput"
    | "prompts"
    | "inputBytes"
    | "isInputWhole"
    | "isBackground"
  >;
}

/**
 * Names the subjects whose limits count: the key, its team and the provider.
 *
 * @throws {GatewayError} `key_not_understood` for a team that is not configured
 */
export function subjectsOf(
  { id, team, limits }: KeyConfig,
  { subjects }: { readonly subjects: readonly LimitSubject[] },
  { teams }: Pick<AdmissionParts, "teams">,
): readonly LimitSubject[] {
  if (limits === undefined && team === undefined) return subjects;
  const own = limits === undefined ? [] : [{ name: `key:${id}`, limits }];
  if (team === undefined) return [...own, ...subjects];
  const shared = Object.hasOwn(teams, team) ? teams[team] : undefined;
  if (shared === undefined) {
    throw new GatewayError("key_not_understood", { detail: "its team is not configured" });
  }
  return [...own, { name: `team:${team}`, limits: shared.limits }, ...subjects];
}

/** Admission of one call by its limits. */
export interface Admission {
  /** Subjects to count against. */
  readonly subjects: readonly LimitSubject[];
  /** True if tokens or money are to be reserved, for which the body has to be known. */
  readonly isMetered: boolean;
  /** True if its body has to arrive first. */
  readonly hasBody: boolean;
  /** True once nothing is left to take. */
  isWhole: boolean;
  /**
   * Lease of its request and its place; `undefined` before it has one, and after it was given back.
   */
  lease: Lease | undefined;
}

/** Account of a call that uses no tokens. */
const NO_ACCOUNT: Account = { reservation: NO_RESERVATION, toAmounts: () => NO_AMOUNTS };

/**
 * Returns the subject whose limits count a call before its body has arrived: its key, if it limits
 * calls.
 */
function ownOf([first]: readonly LimitSubject[]): readonly LimitSubject[] {
  const isKey = first !== undefined && first.name.startsWith("key:");
  return isKey && limitsCalls(first) ? [first] : [];
}

/**
 * Admits a call before its body is read. A call without a body takes its request and its place from
 * all limits, or from none. One with a body takes them from its key alone: a body that does not
 * arrive must cost other keys nothing.
 *
 * @throws {GatewayError} As the limiter does
 */
export async function enter(admission: Admission, asking: Asking): Promise<void> {
  const { subjects, isMetered, hasBody } = admission;
  const entered = isMetered || hasBody ? ownOf(subjects) : subjects;
  if (entered.length === 0) return;
  const isWhole = !isMetered && entered.length === subjects.length;
  const reservation = isWhole
    ? NO_RESERVATION
    : { ...NO_RESERVATION, countedWith: subjects.at(-1)?.name };
  admission.lease = await take(
    entered,
    reservation,
    asking,
    isWhole ? NO_ACCOUNT.toAmounts : undefined,
  );
  admission.isWhole = isWhole;
  // Where more follows, that states the limits.
  if (isWhole) asking.exchange.headers = admission.lease.headers;
}

/** Gives back what {@link enter} has taken: there is no call. */
export function giveBack(admission: Admission, { exchange }: Pick<Asking, "exchange">): void {
  if (admission.lease === undefined) return;
  admission.lease.release(NO_AMOUNTS, true);
  admission.lease = undefined;
  admission.isWhole = false;
  exchange.headers = {};
}

/**
 * Admits a call whose body was read, and that reserves nothing: takes what {@link enter} has left.
 * A call that is refused gives all of it back.
 *
 * @throws {GatewayError} As the limiter does
 */
export function enterWhole(admission: Admission, asking: Asking): Promise<void> | undefined {
  return admission.isWhole || admission.subjects.length === 0
    ? undefined
    : takeRest(admission, asking);
}

/**
 * Takes from all limits of a call what it does not have yet. If one refuses, or there is no
 * account, it keeps nothing.
 *
 * @param limited The call; left out if it reserves nothing
 */
async function takeRest(
  admission: Admission,
  asking: Asking,
  limited?: LimitedCall,
): Promise<void> {
  const { subjects, lease } = admission;
  const { exchange, gateway: { accounting } } = asking;
  try {
    const { reservation, toAmounts } = limited === undefined
      ? NO_ACCOUNT
      : accounting.open(subjects, limited);
    const admitted = lease && subjects[0]?.name;
    exchange.headers =
      (await take(subjects, { ...reservation, admitted }, asking, toAmounts)).headers;
  } catch (error) {
    giveBack(admission, asking);
    throw error;
  }
  // Nothing but the provider's statement says what the call costs, and it comes last.
  exchange.goesOn = limited?.isInputWhole === false;
}

/**
 * Takes from all limits, or from none, and settles when the exchange is over.
 *
 * @param toAmounts Converts the usage of the exchange; left out where another lease is charged for
 * it
 */
function take(
  subjects: readonly LimitSubject[],
  reservation: Reservation,
  { exchange, gateway }: Asking,
  toAmounts: ((usage: TokenUsage | undefined) => Amounts) | undefined,
): Lease | Promise<Lease> {
  const { limiter, clock } = gateway;
  const budgets = subjects.some(limitsAmounts) ? gateway.budgets : undefined;
  const onRefused = (error: unknown): never => {
    budgets?.refused(error, subjects);
    throw error;
  };
  const onTaken = (lease: Lease): Lease => {
    const note = toAmounts && budgets?.admitted(lease);
    exchange.onSettled(({ usage }) => {
      const used = toAmounts?.(usage) ?? NO_AMOUNTS;
      note?.(used);
      return lease.release(used);
    });
    if (lease.observed !== undefined) exchange.facts.observedLimit = lease.observed;
    return lease;
  };
  let asked: Lease | Promise<Lease>;
  try {
    asked = acquireLease(limiter, subjects, reservation, { exchange, clock });
  } catch (error) {
    return onRefused(error);
  }
  return isPromise(asked) ? asked.then(onTaken, onRefused) : onTaken(asked);
}

/**
 * The most output that is believed of a call without a maximum of its provider: twice as much as a
 * model had in 2026. Its caller may state any number, leave, and so take a limit from all who share
 * it. Tokens.
 */
const MAX_STATED_OUTPUT = 262_144;

/**
 * The most input that is believed of a call without a maximum of its provider: the largest context
 * of a hosted model in 2026 (xAI's Grok 4.20, https://docs.x.ai/docs/models). Its caller may send
 * any text, leave before the provider refuses it, and so take a limit from all who share it.
 * Tokens.
 */
const MAX_BELIEVED_INPUT = 2_000_000;

/** Multiplies a maximum by the number of answers, which a caller may state as any number. */
const toWhole = (max: number | undefined, answers: number): number | undefined =>
  max && Math.min(Math.ceil(max * answers), Number.MAX_SAFE_INTEGER);

/** Returns the smaller of two maxima, of which either may not be set. */
const smaller = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined || other === undefined ? one ?? other : Math.min(one, other);

/**
 * Admits a call that costs tokens and whose body was read: opens its account, reserves what its
 * limits count of that, and takes what {@link enter} has left. A call that is refused gives all of
 * it back.
 *
 * @throws {GatewayError} As the limiter and {@link Accounting.open} do
 */
export function reserve(
  admission: Admission,
  call: AskedCall,
  asking: Asking,
): Promise<void> | undefined {
  const { exchange, gateway: { accounting } } = asking;
  const limited = toLimitedCall(call, asking);
  accounting.watch(limited, exchange);
  return admission.isMetered ? takeRest(admission, asking, limited) : enterWhole(admission, asking);
}

/** Returns a call as the accounting knows it. */
function toLimitedCall(call: AskedCall, { request, exchange }: Asking): LimitedCall {
  const { key, provider, body, facts } = call;
  const { generated, prompts, inputBytes, isInputWhole, isBackground, otherModels } = facts;
  const stated = exchange.facts.genAi === "embeddings" ? 0 : toWhole(facts.maxOutput, generated);
  const outputBound = toWhole(provider.maxOutput, generated);
  const mostOutput = smaller(stated, outputBound);
  return {
    provider: provider.name,
    model: exchange.facts.model ?? "",
    keyId: key.id,
    otherModels,
    inputBytes,
    inputBound: (provider.maxInput ?? MAX_BELIEVED_INPUT) * prompts,
    isInputWhole,
    isBackground,
    maxOutput: stated && smaller(mostOutput, Math.max(MAX_STATED_OUTPUT, provider.maxOutput ?? 0)),
    outputBound,
    mostOutput,
    isInputBounded: () => isBodyBounded(body?.bytes ?? new Uint8Array(), request),
  };
}
