/**
 * Reports of usage and budgets as the admin API returns them.
 *
 * @module
 */

import type { UsageCount } from "../../usage/counts.ts";

/** Steps of time. */
export type TimePart = "month" | "day" | "hour";

/** Sums that the API can order rows by. */
export type UsageOrder =
  | Exclude<UsageCount, "partial" | "unmetered" | "other" | "estimatedInput" | "estimatedOutput">
  | "tokens"
  | "cost"
  | "unpriced";

/** Sums of usage. */
export type UsageSums = Readonly<Record<UsageCount | "tokens" | "unpriced", number>> & {
  /** A decimal number; `null` where no token has a price. */
  readonly cost: string | null;
  /** The part of it which is for tokens that the gateway estimated. */
  readonly estimatedCost: string | null;
};

/** One row of a report: its values of the dimensions, and its sums. */
export type UsageLine =
  & UsageSums
  & Partial<
    Readonly<
      Record<"key" | "name" | "team" | "provider" | "model" | "operation" | TimePart, string>
    >
  >;

/** A report. */
export interface UsageReport {
  readonly from: string;
  readonly to: string;
  /** Its dimensions. */
  readonly by: readonly Exclude<keyof UsageLine, keyof UsageSums | "name">[];
  readonly currency: string;
  readonly backend: "memory" | "file" | "redis";
  readonly rows: readonly UsageLine[];
  /** Number of rows after these. */
  readonly left: number;
  readonly totals: UsageSums;
}

/** A budget of a key or a team. */
export interface Budget {
  readonly of: "key" | "team";
  /** Id of the key, or name of the team. */
  readonly id: string;
  readonly name?: string;
  readonly team?: string;
  /** `tokens`, or the currency. */
  readonly unit: string;
  readonly limit: number;
  readonly used: number;
  readonly mode: "enforce" | "observe" | "strict";
  readonly period: "day" | "month";
  readonly renews: string;
  /** Average daily use; `null` where that is unknown. */
  readonly perDay: number | null;
  readonly runsOut: string | null;
}

/** A page of budgets. */
export interface BudgetList {
  readonly budgets: readonly Budget[];
  readonly next: string | null;
}
