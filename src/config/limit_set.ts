/**
 * Limits of keys, teams and providers in the configuration.
 *
 * @module
 */
import * as v from "valibot";
import { BUDGET_FORM, COUNT_FORM, explainBudget, explainRate, RATE_FORM } from "./limit_forms.ts";
import { about, patchOf, strictObject } from "./schema.ts";
import {
  type Budget,
  formatBudget,
  formatMoneyBudget,
  formatRate,
  type MoneyBudget,
  parseBudget,
  parseMoneyBudget,
  parseRate,
  type Rate,
} from "./units.ts";

/** Treatment of reached limits. */
export type LimitMode = "enforce" | "observe" | "strict";

/** Limits of a key, a team or a provider. A limit that is left out does not apply. */
export interface LimitSet {
  /** Requests in a window. */
  readonly requests?: Rate | undefined;
  /**
   * Tokens in a window, stated by the provider or else estimated by the gateway. A window begins
   * with its first call: `1M/day` counts 24 hours. `budget` counts days of the calendar.
   */
  readonly tokens?: Rate | undefined;
  /** Tokens in a day, a week or a month. */
  readonly budget?: Budget | undefined;
  /** Money in a day, a week or a month. */
  readonly spend?: MoneyBudget | undefined;
  /** Maximum number of open exchanges. */
  readonly concurrency?: number | undefined;
  /**
   * `observe` counts without refusing. `strict` also refuses calls that could exceed a limit with
   * their maximum use. Default: `enforce`.
   */
  readonly mode?: LimitMode | undefined;
}

/** Limits as written in settings. A limit that is left out does not apply. */
export interface WrittenLimits {
  /** Requests in a window, such as `600/min`. */
  readonly requests?: string | undefined;
  /**
   * Tokens in a window, such as `100k/h`, stated by the provider or else estimated by the gateway.
   */
  readonly tokens?: string | undefined;
  /** Maximum number of open exchanges. */
  readonly concurrency?: number | undefined;
  /**
   * Tokens or money in a day, a week from Monday, or a month (UTC), such as `5M/month` or `50
   * USD/month`; a list of two for both.
   */
  readonly budget?: string | readonly string[] | undefined;
  /**
   * `observe` counts without refusing. `strict` also refuses calls that could exceed a limit with
   * their maximum use. Default: `enforce`.
   */
  readonly mode?: LimitMode | undefined;
}

/**
 * Builds the schema of a text that a function parses. Text that it cannot parse is a mistake.
 *
 * @param explain Returns the error message for such a text, which it never quotes
 */
function parsedBy<Output>(
  parse: (text: string) => Output | undefined,
  form: string,
  explain: (text: string) => string,
): v.GenericSchema<string, Output> {
  return v.pipe(
    v.string(form),
    v.rawTransform(({ dataset, addIssue, NEVER }): Output => {
      const parsed = parse(dataset.value);
      if (parsed === undefined) addIssue({ message: explain(dataset.value) });
      return parsed ?? NEVER;
    }),
  );
}

const rate = parsedBy(parseRate, RATE_FORM, explainRate);

const oneBudget = parsedBy(
  (text) => parseMoneyBudget(text) ?? parseBudget(text),
  BUDGET_FORM,
  explainBudget,
);
const isMoneyBudget = (budget: Budget): budget is MoneyBudget => "currency" in budget;
const budgets = v.pipe(
  v.union(
    [v.pipe(oneBudget, v.transform((budget) => [budget])), v.array(oneBudget, BUDGET_FORM)],
    ({ input }) => typeof input === "string" ? explainBudget(input) : BUDGET_FORM,
  ),
  v.nonEmpty(BUDGET_FORM),
  v.check(
    (list) => new Set(list.map(isMoneyBudget)).size === list.length,
    "expected one budget of tokens, and one of money",
  ),
);

const form = 'expected an object such as { requests: "600/min" }';
const entries = {
  requests: about(v.optional(rate), "Requests in a window, such as 600/min, 100k/h or 5/10s"),
  tokens: about(v.optional(rate), "Tokens in a window, such as 100k/min"),
  concurrency: v.optional(about(
    v.pipe(
      v.number(COUNT_FORM),
      v.integer(COUNT_FORM),
      v.minValue(1, COUNT_FORM),
      v.maxValue(1e6, COUNT_FORM),
    ),
    "Exchanges that are open at once",
  )),
  budget: about(
    v.optional(budgets),
    "Tokens or money in a calendar day, week or month (UTC), such as 5M/month or 50 USD/month. " +
      "A list can have one of tokens and one of money",
  ),
  mode: v.optional(about(
    v.picklist(["enforce", "observe", "strict"], 'expected "enforce", "observe" or "strict"'),
    "`enforce` refuses calls when a limit is reached. `observe` only counts. `strict` also refuses " +
      "calls whose highest possible use would exceed a limit. Left out: `enforce`",
  )),
} satisfies Readonly<Record<keyof Entries, unknown>>;

interface Entries extends Omit<LimitSet, "budget" | "spend"> {
  readonly budget?: readonly Budget[] | undefined;
}

/** Separates the budget of tokens from the budget of money. */
function toLimitSet({ budget, ...rest }: Entries): LimitSet {
  if (budget === undefined) return rest;
  return {
    ...rest,
    budget: budget.find((each) => !isMoneyBudget(each)),
    spend: budget.find(isMoneyBudget),
  };
}

/** @internal Limits as they are written. */
export const LimitSetSchema: v.GenericSchema<WrittenLimits, LimitSet> = v.pipe(
  strictObject(entries, form) as v.GenericSchema<WrittenLimits, Entries>,
  v.transform(toLimitSet),
);

/** @internal A change of limits: `null` removes one; a budget replaces all budgets. */
export const LimitPatchSchema: v.GenericSchema<unknown, LimitSet> = v.pipe(
  patchOf<Entries>(entries, form),
  v.transform((patch): LimitSet => {
    const { budget, ...rest } = patch;
    return "budget" in patch
      ? { ...rest, budget: undefined, spend: undefined, ...toLimitSet({ budget }) }
      : rest;
  }),
);

/** Merges changed limits into the current ones. Returns `undefined` if none remains. */
export function mergeLimits(
  current: LimitSet | undefined,
  patch: LimitSet,
): LimitSet | undefined {
  const merged = { ...current, ...patch };
  return Object.values(merged).some((limit) => limit !== undefined) ? merged : undefined;
}

/** Writes limits in the form of settings. {@link LimitSetSchema} reads them as the same limits. */
export function toLimitsJson(limits: LimitSet): WrittenLimits {
  const { requests, tokens, concurrency, budget, spend, mode } = limits;
  const budgets = [
    ...(budget ? [formatBudget(budget)] : []),
    ...(spend ? [formatMoneyBudget(spend)] : []),
  ];
  return {
    requests: requests && formatRate(requests),
    tokens: tokens && formatRate(tokens),
    concurrency,
    budget: budgets.length > 1 ? budgets : budgets[0],
    mode,
  } satisfies Readonly<Record<keyof Entries, unknown>>;
}
