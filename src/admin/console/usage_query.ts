/**
 * State of the view of usage: the time, the dimensions and the filters that are shown, and the
 * queries for them.
 *
 * @module
 */
import type { TimePart, UsageOrder } from "../../usage/query.ts";
import type { UsageLine } from "../../usage/report.ts";

/**
 * Dimensions of usage, with their titles, in the order in which one leads to
 * the next.
 */
export const DIMENSIONS = {
  team: "Team",
  key: "Key",
  model: "Model",
  provider: "Provider",
  operation: "Operation",
} as const;
/** One of the dimensions. */
export type Dimension = keyof typeof DIMENSIONS;
/** Names of the dimensions. */
export const DIMENSION_NAMES = Object.keys(DIMENSIONS) as Dimension[];

/** Times that can be shown, with their titles. */
export const RANGES = {
  "24h": "24 h",
  "7d": "7 d",
  "30d": "30 d",
  "90d": "90 d",
  "12m": "12 months",
  "custom": "Custom",
} as const;
/** One of these times. */
export type Range = keyof typeof RANGES;

/** Amounts that the chart draws and that shares are of. */
export const MEASURES = { cost: "Cost", tokens: "Tokens", requests: "Calls" } as const;
/** One of the amounts. */
export type Measure = keyof typeof MEASURES;

/** A value to which a dimension is narrowed, and its name for people. */
export interface Narrowed {
  readonly value: string;
  readonly label: string;
}

/** State of the view. */
export interface Shown {
  readonly range: Range;
  /** First and last day of a custom time, such as `2027-01-31`. */
  readonly first: string;
  readonly last: string;
  /** Step of the chart; `undefined` for the one that fits the time. */
  readonly step: TimePart | undefined;
  readonly by: Dimension;
  /** The second dimension; `time` for the step. */
  readonly then: Dimension | "time" | undefined;
  readonly narrowed: Readonly<Partial<Record<Dimension, Narrowed>>>;
  readonly measure: Measure;
  readonly sort: UsageOrder;
}

/** A time to query, and the step that is drawn. */
export interface Period {
  readonly from: number;
  readonly to: number;
  readonly step: TimePart;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** The longest custom times that are drawn by the hour and by the day. Milliseconds. */
const MAX_BY_HOUR_MS = 2 * DAY_MS;
const MAX_BY_DAY_MS = 120 * DAY_MS;
/**
 * Age of a custom time up to which it is drawn by the hour: hours are kept for eight days by
 * default. Milliseconds.
 */
const MAX_HOUR_AGE_MS = 7 * DAY_MS;
const DAYS: Readonly<Partial<Record<Range, number>>> = { "7d": 7, "30d": 30, "90d": 90 };

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** Returns the state in which the view begins. */
export function newShown(now: number): Shown {
  return {
    range: "7d",
    first: dayOf(now - 6 * DAY_MS),
    last: dayOf(now),
    step: undefined,
    by: "team",
    then: undefined,
    narrowed: {},
    measure: "tokens",
    sort: "tokens",
  };
}

function startOf({ range, first }: Shown, now: number): number {
  if (range === "custom") return Date.parse(first);
  if (range === "24h") return Math.floor(now / HOUR_MS) * HOUR_MS - 23 * HOUR_MS;
  const date = new Date(now);
  if (range === "12m") return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - 11, 1);
  return Math.floor(now / DAY_MS) * DAY_MS - ((DAYS[range] ?? 1) - 1) * DAY_MS;
}

function fittingStep({ range }: Shown, length: number, age: number): TimePart {
  if (range === "24h") return "hour";
  if (range === "12m") return "month";
  if (range !== "custom") return "day";
  if (length <= MAX_BY_HOUR_MS && age <= MAX_HOUR_AGE_MS) return "hour";
  return length <= MAX_BY_DAY_MS ? "day" : "month";
}

/**
 * Returns the time that is shown, in whole steps where it ends now; `undefined` while its days are
 * incomplete.
 */
export function toPeriod(shown: Shown, now: number): Period | undefined {
  const from = startOf(shown, now);
  const to = shown.range === "custom" ? Math.min(Date.parse(shown.last) + DAY_MS, now) : now;
  if (!(from < to)) return undefined;
  return { from, to, step: shown.step ?? fittingStep(shown, to - from, now - from) };
}

function selectionOf({ narrowed }: Shown, { from, to }: Period): Record<string, string> {
  const values = Object.entries(narrowed).map(([name, one]): [string, string] => [name, one.value]);
  return {
    from: new Date(from).toISOString(),
    to: new Date(to).toISOString(),
    ...Object.fromEntries(values),
  };
}

/** Returns the query of the table. */
export function toTableQuery(shown: Shown, period: Period, limit: number): string {
  const { by, then, sort } = shown;
  const parts = [by, ...(then === undefined ? [] : [then === "time" ? period.step : then])];
  const query = { by: parts.join(), sort, limit: String(limit), ...selectionOf(shown, period) };
  return `v1/usage?${new URLSearchParams(query)}`;
}

/** Returns the query of the chart: the largest series, and all others as one. */
export function toChartQuery(shown: Shown, period: Period, top: number): string {
  const { by, measure } = shown;
  const query = { by: `${period.step},${by}`, sort: measure, top: String(top), limit: "10000" };
  return `v1/usage?${new URLSearchParams({ ...query, ...selectionOf(shown, period) })}`;
}

/** Returns the query of the models with the most tokens that have no price. */
export function toUnpricedQuery(shown: Shown, period: Period, limit: number): string {
  const query = {
    by: "model",
    sort: "unpriced",
    limit: String(limit),
    ...selectionOf(shown, period),
  };
  return `v1/usage?${new URLSearchParams(query)}`;
}

/** Returns the query of the rows themselves. */
export function toExportQuery(shown: Shown, period: Period): string {
  return `v1/usage/export?${new URLSearchParams({ format: "csv", ...selectionOf(shown, period) })}`;
}

/** Returns the dimensions of the rows: the first one, and the second where it is no time. */
export function dimensionsOf({ by, then }: Shown): Dimension[] {
  return then === undefined || then === "time" ? [by] : [by, then];
}

/** Returns the text for people of a value of a dimension. */
export function labelOf(line: UsageLine, dimension: Dimension): string {
  return (dimension === "key" ? line.name : undefined) ?? line[dimension] ?? "";
}

/**
 * Returns the dimension to which the rows of others lead: the first that tells anything apart yet.
 */
export function nextDimension(shown: Shown): Dimension | undefined {
  const fixed = new Set<Dimension>([
    ...Object.keys(shown.narrowed) as Dimension[],
    ...dimensionsOf(shown),
  ]);
  if (fixed.has("key")) fixed.add("team");
  return DIMENSION_NAMES.find((each) => !fixed.has(each));
}

/** Narrows the view to one of its rows. */
export function drillDown(shown: Shown, line: UsageLine): Shown {
  const by = nextDimension(shown);
  if (by === undefined) return shown;
  const more = dimensionsOf(shown).map((dimension) => [
    dimension,
    { value: line[dimension] ?? "", label: labelOf(line, dimension) },
  ]);
  const then = shown.then === "time" ? "time" : undefined;
  return { ...shown, narrowed: { ...shown.narrowed, ...Object.fromEntries(more) }, by, then };
}

/** Takes one narrowing back, and tells the rows apart by it again. */
export function widen(shown: Shown, dimension: Dimension): Shown {
  const { [dimension]: _, ...narrowed } = shown.narrowed;
  return {
    ...shown,
    narrowed,
    by: dimension,
    then: shown.then === dimension ? undefined : shown.then,
  };
}
