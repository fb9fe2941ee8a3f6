/**
 * Limits of keys, teams and providers in the configuration.
 *
 * @module
 */
import * as v from "valibot";
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
  /** Tokens in a window, stated by the provider or else estimated by the gateway. */
  readonly tokens?: Rate | undefined;
  /** Tokens in a day or month. */
  readonly budget?: Budget | undefined;
  /** Money in a day or month. */
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
   * Tokens or money in a day or month (UTC), such as `5M/month` or `50 USD/month`; a list of two
   * for both.
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

const rateForm = 'expected a rate such as "600/min", "100k/h" or "5/10s"';
const isOfUnit = (text: string) => /\/[0-9]*(?:s|min|h|day)$/.test(text);
const rate = parsedBy(
  parseRate,
  rateForm,
  (text) => isOfUnit(text) ? rateForm : `${rateForm}: the periods are s, min, h and day`,
);
const budgetForm =
  'expected a budget such as "5M/month" (tokens) or "50 USD/month", or a list with one of each';

/** Explains a text that is no budget: its period, its currency, or its form. */
function explainBudget(text: string): string {
  if (!/\/(?:day|month)$/.test(text)) {
    return 'expected a budget by day or month, such as "5M/month" or "50 USD/month": ' +
      "there are no other periods";
  }
  const isMoney = /[^ -~]|\$|(?<![a-z])[a-z]{3}\//i.test(text.replace(/\/(?:day|month)$/, "/"));
  return isMoney
    ? 'expected money such as "50 USD/month": an amount, one space, and three capital letters'
    : budgetForm;
}

const oneBudget = parsedBy(
  (text) => parseMoneyBudget(text) ?? parseBudget(text),
  budgetForm,
  explainBudget,
);
const isMoney = (budget: Budget): budget is MoneyBudget => "currency" in budget;
const budgets = v.pipe(
  v.union(
    [v.pipe(oneBudget, v.transform((budget) => [budget])), v.array(oneBudget, budgetForm)],
    ({ input }) => typeof input === "string" ? explainBudget(input) : budgetForm,
  ),
  v.nonEmpty(budgetForm),
  v.check(
    (list) => new Set(list.map(isMoney)).size === list.length,
    "expected one budget of tokens, and one of money",
  ),
);
const countForm = "expected a whole number from 1 to 1000000";

const form = 'expected an object such as { requests: "600/min" }';
const entries = {
  requests: about(v.optional(rate), "Requests in a window, such as 600/min, 100k/h or 5/10s"),
  tokens: about(v.optional(rate), "Tokens in a window, such as 100k/min"),
  concurrency: v.optional(about(
    v.pipe(
      v.number(countForm),
      v.integer(countForm),
      v.minValue(1, countForm),
      v.maxValue(1e6, countForm),
    ),
    "Exchanges that are open at once",
  )),
  budget: about(
    v.optional(budgets),
    "Tokens or money in a day or month (UTC), such as 5M/month or 50 USD/month; " +
      "a list for one of each",
  ),
  mode: v.optional(about(
    v.picklist(["enforce", "observe", "strict"], 'expected "enforce", "observe" or "strict"'),
    "`observe` counts without refusing; `strict` also refuses calls that could exceed a limit " +
      "with their maximum use; `enforce` if left out",
  )),
} satisfies Readonly<Record<keyof Entries, unknown>>;

interface Entries extends Omit<LimitSet, "budget" | "spend"> {
  readonly budget?: readonly Budget[] | undefined;
}

/** Separates the budget of tokens from the budget of money. */
function toLimitSet({ budget, ...rest }: Entries): LimitSet {
  if (budget === undefined) return rest;
  return { ...rest, budget: budget.find((each) => !isMoney(each)), spend: budget.find(isMoney) };
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
