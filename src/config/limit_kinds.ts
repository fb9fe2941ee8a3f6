/**
 * The kinds of limit. All engine-independent differences between them are described here. To add a
 * kind of a known unit, add a field to `LimitSet` and an entry to {@link LIMIT_KINDS}. The compiler
 * then names the other code that must handle it, except options that are numbers
 * (`environment.ts`, `cli/keys.ts`, `admin/console/limit_fields.tsx`). A new unit also needs an
 * amount in `Amounts` (`limits/limiter.ts`), its reservation and settlement
 * (`steps/token_account.ts`, `steps/later_usage.ts`), its form in messages (`limit_messages.ts` of
 * workers), and its credits (`admin/credits.ts`), which the compiler does not all name.
 *
 * @module
 */
import type { LimitSet } from "./limit_set.ts";
import type { ErrorCode } from "../errors/codes.ts";

/** Kinds of limit. */
export type LimitName = Exclude<keyof LimitSet, "mode">;

interface LimitKind {
  /** Unit that is counted: calls, or an amount that a call uses, which is settled at its end. */
  readonly unit: "calls" | "tokens" | "spend";
  /**
   * Time for which a call counts: a window that starts with its first request, a day, week or
   * month of the calendar (UTC), or until the call ends.
   */
  readonly span: "window" | "period" | "call";
  /** Error that refuses a call. */
  readonly code: ErrorCode;
  /** Quota unit of its header fields, `qu`; requests are the default. */
  readonly quotaUnit: string | undefined;
}

/** Each kind of limit, in the order in which limiters report them. */
export const LIMIT_KINDS = {
  requests: {
    unit: "calls",
    span: "window",
    code: "rate_limit_exceeded",
    quotaUnit: undefined,
  },
  tokens: {
    unit: "tokens",
    span: "window",
    code: "rate_limit_exceeded",
    quotaUnit: "tokens",
  },
  budget: {
    unit: "tokens",
    span: "period",
    code: "budget_exceeded",
    quotaUnit: "tokens",
  },
  spend: {
    unit: "spend",
    span: "period",
    code: "budget_exceeded",
    quotaUnit: "nano-currency",
  },
  concurrency: {
    unit: "calls",
    span: "call",
    code: "concurrency_limit_exceeded",
    quotaUnit: "concurrent-requests",
  },
} as const;
// isolatedDeclarations does not allow it in the declaration.
LIMIT_KINDS satisfies Readonly<Record<LimitName, LimitKind>>;

type NamesOf<Kind> = {
  [Name in LimitName]: (typeof LIMIT_KINDS)[Name] extends Kind ? Name : never;
}[LimitName];

/** A limit that counts calls, and not their use. */
export type CallLimit = NamesOf<{ unit: "calls" }>;
/** A limit that is reserved before a call, and settled after it. */
export type SettledLimit = Exclude<LimitName, CallLimit>;
/** Unit of an amount that a call uses. */
export type AmountUnit = (typeof LIMIT_KINDS)[SettledLimit]["unit"];
/** A budget of tokens or money, for a day, week or month of the calendar. */
export type BudgetName = NamesOf<{ span: "period" }>;
/** A budget of money, for a day, week or month of the calendar. */
export type MoneyName = NamesOf<{ unit: "spend" }>;
/** A limit that has a window, or a period of the calendar. */
export type WindowedLimit = NamesOf<{ span: "window" | "period" }>;

/** Names of all limits, in the order in which limiters report them. */
export const LIMIT_NAMES: readonly LimitName[] = Object.keys(LIMIT_KINDS) as LimitName[];

/** Returns whether a limit counts calls, and not their use. */
export const isOfCalls = (name: LimitName): name is CallLimit => LIMIT_KINDS[name].unit === "calls";

/** Returns whether a limit is a budget for a day, week or month of the calendar. */
export const isBudget = (name: LimitName): name is BudgetName =>
  LIMIT_KINDS[name].span === "period";

/** Returns whether a limit is a budget of money. */
export const isMoney = (name: LimitName): name is MoneyName => LIMIT_KINDS[name].unit === "spend";

/** Returns the unit in which a budget of some limits is shown: a currency, or `tokens`. */
export function budgetUnitOf(name: BudgetName, { spend }: LimitSet): string {
  return spend !== undefined && isMoney(name) ? spend.currency : LIMIT_KINDS[name].unit;
}

/** Returns whether a limit has a window, or a period of the calendar. */
export const isWindowed = (name: LimitName): name is WindowedLimit =>
  LIMIT_KINDS[name].span !== "call";

/** Names of the limits that count calls. */
export const CALL_LIMITS: readonly CallLimit[] = LIMIT_NAMES.filter(isOfCalls);
/** Names of the limits that are settled. */
export const SETTLED_LIMITS: readonly SettledLimit[] = LIMIT_NAMES.filter((name) =>
  !isOfCalls(name)
);
/** Units of the amounts that a call uses, each once. */
export const AMOUNT_UNITS: readonly AmountUnit[] = Array.from(
  new Set(SETTLED_LIMITS.map((name) => LIMIT_KINDS[name].unit)),
);
/** Names of the limits of open calls. */
const OPEN_LIMITS = LIMIT_NAMES.filter((name) => !isWindowed(name));
/** Returns whether limits count open calls. */
export const hasOpenLimit = (limits: LimitSet): boolean =>
  OPEN_LIMITS.some((name) => limits[name] !== undefined);

/** Returns whether limits count tokens or money, which a call states only at its end. */
export const hasAmountLimit = (limits: LimitSet): boolean =>
  SETTLED_LIMITS.some((name) => limits[name] !== undefined);

/** Names of the budgets. */
export const BUDGET_NAMES: readonly BudgetName[] = LIMIT_NAMES.filter(isBudget);
/** Names of the limits that have a window or a period. */
export const WINDOWED_LIMITS: readonly WindowedLimit[] = LIMIT_NAMES.filter(isWindowed);
