/**
 * Texts of limits in tables and lists.
 *
 * @module
 */
import type { WrittenLimits } from "../config/limit_set.ts";
import { LIMIT_OPTIONS } from "./command_table.ts";

/** Formats a budget. Money includes its currency, tokens have no unit. */
const toBudget = (budget: string): string => budget.includes(" ") ? budget : `${budget} tokens`;

/** Texts of limits. */
const LIMIT_TEXTS: Readonly<Record<keyof WrittenLimits, (limit: unknown) => string>> = {
  requests: (rate) => `${rate} requests`,
  tokens: (rate) => `${rate} tokens`,
  concurrency: (count) => `${count} at once`,
  budget: (budget) => [budget].flat().map((each) => toBudget(String(each))).join(", "),
  mode: (mode) => mode === "enforce" ? "" : `(${mode === "observe" ? "observed" : mode})`,
};

/** Formats limits. */
export function toLimits(limits: WrittenLimits): string {
  const texts = LIMIT_OPTIONS.map((name) => limits[name] && LIMIT_TEXTS[name](limits[name]));
  return texts.filter(Boolean).join(", ");
}
