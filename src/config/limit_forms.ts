/**
 * Explanations of texts that are no limit, and of limits that are probably not meant. The schemas of
 * settings and the console's forms share them, so that both use the same words.
 *
 * @module
 */
import { parseBudget, parseMoneyBudget } from "./units.ts";

/** The form of a rate. */
export const RATE_FORM = 'expected a rate such as "600/min", "100k/h" or "5/10s"';
/** The form of a budget. */
export const BUDGET_FORM =
  'expected a budget such as "5M/month" (tokens) or "50 USD/month", or a list with one of each';
/** The form of a number of open exchanges. */
export const COUNT_FORM = "expected a whole number from 1 to 1000000";

/** Other spellings of a period, at the end of a rate, and the spelling to write. */
const PERIODS: readonly [spelling: RegExp, written: string][] = [
  [/[0-9kMG] *[rt]ps$|\/(?:secs?|seconds?)$/i, "/s"],
  [/[0-9kMG] *[rt]pm$|\/(?:m|mins|minutes?)$/i, "/min"],
  [/[0-9kMG] *[rt]ph$|\/(?:hrs?|hours?)$/i, "/h"],
  [/[0-9kMG] *[rt]pd$|\/(?:d|days)$/i, "/day"],
];

/** Explains a text that is no rate, such as `600rpm`. The explanation never quotes it. */
export function explainRate(text: string): string {
  const [, written] = PERIODS.find(([spelling]) => spelling.test(text)) ?? [];
  if (written !== undefined) return `${RATE_FORM}: the period is written "${written}"`;
  const hasUnit = /\/[0-9]*(?:s|min|h|day)$/.test(text);
  return hasUnit ? RATE_FORM : `${RATE_FORM}: the periods are s, min, h and day`;
}

/** Signs of currencies, and the code to write. A sign can mean several currencies. */
const CURRENCY_SIGNS: readonly [sign: string, code: string][] = [
  ["$", "USD"],
  ["€", "EUR"],
  ["£", "GBP"],
];

/** Explains a text that is no budget: its period, its currency, or its form. Never quotes it. */
export function explainBudget(text: string): string {
  if (!text.includes("/")) {
    return 'expected a budget with its period, such as "5M/month", "1M/week" or "50 USD/day"';
  }
  if (!/\/(?:day|week|month)$/.test(text)) {
    return 'expected a budget by day, week or month, such as "5M/month" or "50 USD/month": ' +
      "there are no other periods";
  }
  const [sign, code] = CURRENCY_SIGNS.find(([sign]) => text.includes(sign)) ?? [];
  if (sign !== undefined) {
    return `expected money such as "50 ${code}/month": ` +
      `the code of a currency after the amount, such as ${code}, instead of ${sign}`;
  }
  const amount = text.replace(/\/(?:day|week|month)$/, "/");
  const isMoney = /[^ -~]|(?<![a-z])[a-z]{3}(?=[/])/i.test(amount);
  return isMoney
    ? 'expected money such as "50 USD/month": an amount, one space, and three capital letters'
    : BUDGET_FORM;
}

/** Explains a text that is no budget of money, if it must be one. */
export function explainMoneyBudget(text: string): string | undefined {
  if (parseMoneyBudget(text) !== undefined) return undefined;
  return parseBudget(text) === undefined
    ? explainBudget(text)
    : 'expected money such as "50 USD/month": without a currency, a budget counts tokens';
}

/** Explains a text that is no budget of tokens, if it must be one. */
export function explainTokenBudget(text: string): string | undefined {
  if (parseBudget(text) !== undefined) return undefined;
  return parseMoneyBudget(text) === undefined
    ? explainBudget(text)
    : 'expected tokens such as "5M/month", without a currency';
}

/** Budgets of fewer tokens are probably meant as money: most calls use more. */
const FEW_TOKENS = 1000;

/** Describes a budget of so few tokens that money was probably meant; `undefined` for others. */
export function noteOnBudget(limit: number | undefined): string | undefined {
  if (limit === undefined || limit >= FEW_TOKENS) return undefined;
  return `counts ${limit} tokens, which is fewer than most calls use: ` +
    'a budget of money has a currency, such as "50 USD/month"';
}
