/**
 * Admission of a call by the limits of its key, of its team and of its provider: to all of them, or to none.
 *
 * @module
 */
import type { Accounting, LimitedCall } from "./accounting.ts";
import type { BudgetNotes } from "./budget_alerts.ts";
import type { KeyConfig } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { TeamConfig } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { type Exchange, GOES_ON } from "../exchange/exchange.ts";
import type { TokenUsage } from "../exchange/record.ts";
import type { GatewayRequest } from "../http/message.ts";
import type { RequestBody } from "../inbound/body.ts";
import {
  acquireLease,
  type Amounts,
  type Lease,
  type Limiter,
  limitsAmounts,
  type LimitSubject,
  NO_AMOUNTS,
  NO_RESERVATION,
  type Reservation,
} from "../limits/limiter.ts";
import type { RequestFacts } from "../operations/request_facts.ts";
import { isBodyBounded } from "./request_body.ts";

/** The parts of a gateway by which calls are admitted. */
export interface AdmissionParts {
  readonly limiter: Limiter;
  readonly accounting: Accounting;
  readonly teams: Readonly<Record<string, TeamConfig>>;
  /** Watch of the budgets; `undefined` where nobody wants to know. */
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
  readonly provider: Pick<ProviderConfig, "maxOutput"> & { readonly name: string };
  readonly body: RequestBody | null;
  readonly facts: Pick<RequestFacts, "choices" | "maxOutput" | "inputBytes" | "isInputWhole" | "isBackground">;
}

/**
 * Names the subjects whose limits count: the key, its team and the provider.
 *
 * @param key The gateway key
 * @param provider The provider, with its own subject if it has limits
 * @param gateway The teams
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
  if (shared === undefined) throw new GatewayError("key_not_understood", { detail: "its team is not configured" });
  return [...own, { name: `team:${team}`, limits: shared.limits }, ...subjects];
}

const toNoAmounts = () => NO_AMOUNTS;

/**
 * Takes from all limits, or from none, and settles when the exchange is over.
 *
 * @param subjects Subjects to count against
 * @param reservation Amounts to reserve
 * @param asking The exchange, and the parts of its gateway
 * @param toAmounts Converts the usage of its record to amounts
 * @throws {GatewayError} As the limiter does
 */
export async function admit(
  subjects: readonly LimitSubject[],
  reservation: Reservation,
  { exchange, gateway }: Asking,
  toAmounts: (usage: TokenUsage | undefined) => Amounts = toNoAmounts,
): Promise<void> {
  const { limiter, clock } = gateway;
  const budgets = subjects.some(limitsAmounts) ? gateway.budgets : undefined;
  let lease: Lease;
  try {
    lease = await acquireLease(limiter, subjects, reservation, { exchange, clock });
  } catch (error) {
    budgets?.refused(error, subjects);
    throw error;
  }
  const note = budgets?.admitted(lease);
  exchange.onSettled(({ usage }) => {
    const used = toAmounts(usage);
    note?.(used);
    return lease.release(used);
  });
  if (lease.observed !== undefined) exchange.facts.observedLimit = lease.observed;
  exchange.headers = lease.headers;
}

/**
 * The most output that is believed of a call without a maximum of its provider: twice as much as a model had in 2026.
 * Its caller may state any number, leave, and so take a limit from all who share it. Tokens.
 */
const MAX_STATED_OUTPUT = 262_144;

/** Multiplies a maximum by the number of choices, which a caller may state as any number. */
const toWhole = (max: number | undefined, choices: number): number | undefined =>
  max && Math.min(Math.ceil(max * choices), Number.MAX_SAFE_INTEGER);

/** Returns the smaller of two maxima, of which either may not be set. */
const smaller = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined || other === undefined ? one ?? other : Math.min(one, other);

/**
 * Opens the account of a call that costs tokens, and admits it: where tokens are limited, its body says how much to
 * reserve.
 *
 * @param subjects Subjects to count against; none if it was admitted before
 * @param call The call
 * @param asking The exchange, and the parts of its gateway
 * @throws {GatewayError} As {@link admit} and {@link Accounting.open} do
 */
export async function reserve(
  subjects: readonly LimitSubject[],
  { key, provider, body, facts }: AskedCall,
  asking: Asking,
): Promise<void> {
  const { choices, maxOutput, inputBytes, isInputWhole, isBackground } = facts;
  const { request, exchange, gateway: { accounting } } = asking;
  const stated = exchange.facts.genAi === "embeddings" ? 0 : toWhole(maxOutput, choices);
  const outputBound = toWhole(provider.maxOutput, choices);
  const mostOutput = smaller(stated, outputBound);
  const call: LimitedCall = {
    provider: provider.name,
    model: exchange.facts.model ?? "",
    keyId: key.id,
    inputBytes,
    isInputWhole,
    isBackground,
    maxOutput: stated && smaller(mostOutput, Math.max(MAX_STATED_OUTPUT, provider.maxOutput ?? 0)),
    outputBound,
    mostOutput,
    isInputBounded: () => isBodyBounded(body?.bytes ?? new Uint8Array(), request),
  };
  accounting.watch(call, exchange);
  if (subjects.length === 0) return;
  if (!subjects.some(limitsAmounts)) return admit(subjects, NO_RESERVATION, asking);
  const { reservation, toAmounts } = accounting.open(subjects, call);
  await admit(subjects, reservation, asking, toAmounts);
  // Nothing but the provider's statement says what the call costs, and it comes last.
  if (!isInputWhole) exchange.reader ??= GOES_ON;
}
