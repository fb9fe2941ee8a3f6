/**
 * Queries of usage: they select the rows of a report or an export.
 *
 * @module
 */
import { type Dimension, DIMENSIONS } from "../config/dimensions.ts";
import type { UsageConfig } from "../config/usage.ts";
import { valueOfDimension } from "./attributed.ts";
import {
  DAY_MS,
  type Payer,
  payerOf,
  STEP_MS,
  type UsageRange,
  type UsageRow,
  type UsageStep,
} from "./counts.ts";

/** Dimensions that usage can be grouped by. */
export const USAGE_DIMENSIONS = [
  "key",
  "team",
  "provider",
  "model",
  "operation",
  "tariff",
  "class",
  "payer",
  "user",
  "session",
  "agent",
  "client",
  "project",
  "month",
  "day",
  "hour",
] as const;
/** A dimension that usage can be grouped by. */
export type UsageDimension = typeof USAGE_DIMENSIONS[number];
/** A dimension that is a time. */
export type TimeDimension = "month" | "day" | "hour";
/** Dimensions that are times: a query has at most one of them. */
export const TIME_DIMENSIONS: readonly TimeDimension[] = ["month", "day", "hour"];

/** True if a dimension is a time. */
export function isTimeDimension(part: UsageDimension): part is TimeDimension {
  return TIME_DIMENSIONS.some((each) => each === part);
}

/** Sums that the rows of a report can be ordered by, the largest first. */
export const USAGE_ORDERS = [
  "tokens",
  "cost",
  "requests",
  "input",
  "cached",
  "output",
  "reasoning",
  "failed",
  "estimated",
  "unpriced",
] as const;
/** A sum that the rows of a report can be ordered by. */
export type UsageOrder = typeof USAGE_ORDERS[number];

/** Values of attribution, by dimension. */
type AttributionSelection = { readonly [Name in Dimension]?: string | undefined };

/** The selected rows. */
export interface UsageSelection extends AttributionSelection {
  /** Milliseconds since 1970. Default: `lastMs` before the end. */
  readonly from?: number | undefined;
  /** Milliseconds since 1970. Default: now. */
  readonly to?: number | undefined;
  /** Milliseconds. Default: a week; for a report by month, all days that are kept. */
  readonly lastMs?: number | undefined;
  /** Only rows of this key, team, provider, model or operation. */
  readonly key?: string | undefined;
  readonly team?: string | undefined;
  readonly provider?: string | undefined;
  readonly model?: string | undefined;
  readonly operation?: string | undefined;
  /** Only rows of calls with a provider key of this owner. */
  readonly payer?: Payer | undefined;
}

/** A query for a report. */
export interface UsageQuery extends UsageSelection {
  readonly by: readonly UsageDimension[];
  /** The sum that rows are ordered by, after their time. */
  readonly sort: UsageOrder;
  /**
   * Number of groups, apart from times, that have their own rows: the largest ones. Default: all.
   */
  readonly top?: number | undefined;
  /** Maximum number of rows. */
  readonly limit: number;
  /** The end of the previous page, as stated in that page. */
  readonly after?: string | undefined;
}

/** A query for the rows themselves. */
export interface UsageExportQuery extends UsageSelection {
  /** Period of the rows. Default: hours if they are kept for all of the time, else days. */
  readonly by?: UsageStep | undefined;
}

/** The error for a query that cannot be answered. */
export class UsageRefusal extends Error {
  override readonly name = "UsageRefusal";
  /** The parameter at fault. */
  readonly param: string;

  constructor(param: string, message: string) {
    super(message);
    this.param = param;
  }
}

/** Time of a report that names none. Milliseconds. */
const DEFAULT_LAST_MS = 7 * DAY_MS;

const toDays = (ms: number): string => `${Math.floor(ms / DAY_MS)} days`;

/**
 * Returns the hours or days of a query: hours if they are kept, unless the query asks for days.
 *
 * @param now Milliseconds since 1970
 * @throws {UsageRefusal} If it asks for a time that is not kept
 */
export function toRange(
  selection: UsageSelection,
  by: readonly UsageDimension[],
  { hoursMs, daysMs }: UsageConfig,
  now: number,
): UsageRange {
  const { from: wanted, key } = selection;
  const { lastMs = by.includes("month") ? daysMs : DEFAULT_LAST_MS } = selection;
  const to = selection.to ?? now;
  const from = wanted ?? to - lastMs;
  if (from >= to) {
    throw new UsageRefusal(wanted === undefined ? "to" : "from", "expected a time before the end");
  }
  if (wanted === undefined && lastMs > daysMs) {
    throw new UsageRefusal(
      "last",
      `days are kept for ${toDays(daysMs)}: expected a duration up to that`,
    );
  }
  const firstHour = now - hoursMs;
  if (by.includes("hour") && from < firstHour) {
    throw new UsageRefusal(
      "by",
      `hours are kept for ${toDays(hoursMs)}: ask by day, or for a later time`,
    );
  }
  const isByDay = by.includes("day") || by.includes("month");
  const step: UsageStep = isByDay || from < firstHour ? "day" : "hour";
  const ms = STEP_MS[step];
  const first = Math.max(from, now - daysMs);
  return {
    step,
    from: Math.floor(first / ms) * ms,
    to: Math.ceil(Math.max(first, Math.min(to, now + ms)) / ms) * ms,
    key,
  };
}

/** True if a row matches the selection. Its team is not compared. */
export function isWanted(row: UsageRow, selection: UsageSelection): boolean {
  const { key, provider, model, operation, payer } = selection;
  const isAttributed = DIMENSIONS.every((name) =>
    selection[name] === undefined || valueOfDimension(row.attribution, name) === selection[name]
  );
  return isAttributed && (key === undefined || row.key === key) &&
    (provider === undefined || row.provider === provider) &&
    (model === undefined || row.model === model) &&
    (operation === undefined || row.operation === operation) &&
    (payer === undefined || payerOf(row) === payer);
}
