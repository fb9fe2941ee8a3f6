/**
 * State of the usage view: the shown time, dimensions and filters, and the queries for them.
 *
 * @module
 */
import type { Dimension as AttributionDimension } from "../../config/dimensions.ts";
import type { TimeDimension, UsageDimension, UsageOrder } from "../../usage/query.ts";
import type { UsageLine } from "../../usage/report.ts";
import type { AddressParts } from "./address.ts";

/** Dimensions of usage that are always counted, with their titles. Drilling down follows this order. */
const COUNTED = {
  team: "Team",
  key: "Key",
  model: "Model",
  provider: "Provider",
  operation: "Operation",
  class: "Billing class",
  payer: "Payer",
} as const;
/** One of the dimensions. */
export type Dimension = keyof typeof COUNTED | AttributionDimension;
/** Dimensions of usage, with their titles. Those of attribution are counted if it is configured. */
export const DIMENSIONS: Readonly<Record<Dimension, string>> = {
  ...COUNTED,
  user: "User",
  session: "Session",
  agent: "Agent",
  client: "Client",
  project: "Project",
};
/** Names of the dimensions. */
export const DIMENSION_NAMES = Object.keys(DIMENSIONS) as Dimension[];

/**
 * Returns the dimensions to offer: those that are counted, and shown ones.
 *
 * @param attribution The counted dimensions of attribution
 */
export function offeredDimensions(
  attribution: readonly AttributionDimension[],
  shown: readonly (Dimension | "time" | undefined)[],
): Dimension[] {
  const offered = new Set<unknown>([...Object.keys(COUNTED), ...attribution, ...shown]);
  return DIMENSION_NAMES.filter((name) => offered.has(name));
}

/** Time ranges, with their titles. */
export const RANGES = {
  "24h": "24 h",
  "7d": "7 d",
  "30d": "30 d",
  "90d": "90 d",
  "12m": "12 months",
  "custom": "Custom",
} as const;
/** One of the time ranges. */
export type Range = keyof typeof RANGES;

/** Amounts for the chart and for shares. */
export const MEASURES = { cost: "Cost", tokens: "Tokens", requests: "Calls" } as const;
/** One of the amounts. */
export type Measure = keyof typeof MEASURES;

/** A value that filters a dimension, and its display name. */
export interface Narrowed {
  readonly value: string;
  readonly label: string;
}

/** State of the view. */
export interface Shown {
  readonly range: Range;
  /** First and last day of a custom range, such as `2027-01-31`. */
  readonly first: string;
  readonly last: string;
  /** Step of the chart; `undefined` for the step that fits the range. */
  readonly step: TimeDimension | undefined;
  readonly by: Dimension;
  /** The second dimension. `time` is the step. */
  readonly then: Dimension | "time" | undefined;
  readonly narrowed: Readonly<Partial<Record<Dimension, Narrowed>>>;
  readonly measure: Measure;
  readonly sort: UsageOrder;
}

/** A range to query, and the step of the chart. */
export interface Period {
  readonly from: number;
  readonly to: number;
  readonly step: TimeDimension;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** The longest custom ranges that are shown by the hour and by the day. Milliseconds. */
const MAX_BY_HOUR_MS = 2 * DAY_MS;
const MAX_BY_DAY_MS = 120 * DAY_MS;
/**
 * Maximum age of a custom range that is shown by the hour: hours are kept for eight days by
 * default. Milliseconds.
 */
const MAX_HOUR_AGE_MS = 7 * DAY_MS;
const DAYS: Readonly<Partial<Record<Range, number>>> = { "7d": 7, "30d": 30, "90d": 90 };

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** Returns the initial state. */
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

/** A dimension that can be filtered. A row has all of its classes. */
type Narrowing = Exclude<Dimension, "class">;
const NARROWING: readonly Narrowing[] = DIMENSION_NAMES.filter((name) => name !== "class");
/** Parts of the view's address without a filter. `keyName` is the display name of `key`. */
const VIEW_PARTS = [
  "range",
  "first",
  "last",
  "step",
  "by",
  "then",
  "measure",
  "sort",
  "keyName",
] as const;
type PartName = typeof VIEW_PARTS[number] | Narrowing;

/** Names of the parts of the view's address. */
export const PART_NAMES: readonly PartName[] = [...VIEW_PARTS, ...NARROWING];

/** The parts of the view's address. */
export type ShownParts = AddressParts<PartName>;

/** All sums that rows can be ordered by: the compiler names a missing one. */
const ORDERS = Object.keys(
  {
    tokens: true,
    cost: true,
    requests: true,
    input: true,
    cached: true,
    output: true,
    reasoning: true,
    failed: true,
    estimated: true,
    unpriced: true,
  } satisfies Readonly<Record<UsageOrder, true>>,
) as UsageOrder[];
const STEPS: readonly TimeDimension[] = ["hour", "day", "month"];

/** Finds a text among the allowed ones. */
const oneOf = <T extends string>(all: readonly T[], text: string | undefined): T | undefined =>
  all.find((each) => each === text);

const isDay = (text: string | undefined): text is string =>
  /^\d{4}-\d\d-\d\d$/.test(text ?? "") && !Number.isNaN(Date.parse(text ?? ""));

/** Reads the state from an address. Parts that are missing or unknown are as in `initial`. */
export function readShown(parts: ShownParts, initial: Shown): Shown {
  const { first, last, keyName } = parts;
  const measure = oneOf(Object.keys(MEASURES) as Measure[], parts.measure) ?? initial.measure;
  const narrowed = NARROWING.flatMap((name) => {
    const value = parts[name];
    const label = name === "key" ? keyName ?? value : value;
    return value === undefined || label === undefined ? [] : [[name, { value, label }]];
  });
  return {
    range: oneOf(Object.keys(RANGES) as Range[], parts.range) ?? initial.range,
    first: isDay(first) ? first : initial.first,
    last: isDay(last) ? last : initial.last,
    step: oneOf(STEPS, parts.step),
    by: oneOf(DIMENSION_NAMES, parts.by) ?? initial.by,
    then: oneOf([...DIMENSION_NAMES, "time"], parts.then),
    narrowed: Object.fromEntries(narrowed),
    measure,
    sort: oneOf(ORDERS, parts.sort) ?? measure,
  };
}

/** Returns the state as the parts of an address, without those of the initial state. */
export function toShownParts(shown: Shown, initial: Shown): ShownParts {
  const { range, first, last, step, by, then, measure, sort, narrowed } = shown;
  const isCustom = range === "custom";
  const values = NARROWING.map((name) => [name, narrowed[name]?.value]);
  const { key } = narrowed;
  return {
    ...(range !== initial.range && { range }),
    ...(isCustom && { first, last }),
    ...(step !== undefined && { step }),
    by,
    ...(then !== undefined && { then }),
    ...(measure !== initial.measure && { measure }),
    ...(sort !== measure && { sort }),
    ...Object.fromEntries(values.filter(([, value]) => value !== undefined)),
    ...(key !== undefined && key.label !== key.value && { keyName: key.label }),
  };
}

function startOf({ range, first }: Shown, now: number): number {
  if (range === "custom") return Date.parse(first);
  if (range === "24h") return Math.floor(now / HOUR_MS) * HOUR_MS - 23 * HOUR_MS;
  const date = new Date(now);
  if (range === "12m") return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - 11, 1);
  return Math.floor(now / DAY_MS) * DAY_MS - ((DAYS[range] ?? 1) - 1) * DAY_MS;
}

function fittingStep({ range }: Shown, length: number, age: number): TimeDimension {
  if (range === "24h") return "hour";
  if (range === "12m") return "month";
  if (range !== "custom") return "day";
  if (length <= MAX_BY_HOUR_MS && age <= MAX_HOUR_AGE_MS) return "hour";
  return length <= MAX_BY_DAY_MS ? "day" : "month";
}

/**
 * Returns the shown range, in whole steps if it ends now; `undefined` while its days are
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

/** Returns the query of the chart: the largest series, and all others added up. */
export function toChartQuery(shown: Shown, period: Period, top: number): string {
  const { by, measure } = shown;
  const query = { by: `${period.step},${by}`, sort: measure, top: String(top), limit: "10000" };
  return `v1/usage?${new URLSearchParams({ ...query, ...selectionOf(shown, period) })}`;
}

/** Returns the query of models without a price, those with the most tokens first. */
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

/** Returns the dimensions of the rows: the first, and the second unless it is a time. */
export function dimensionsOf({ by, then }: Shown): Dimension[] {
  return then === undefined || then === "time" ? [by] : [by, then];
}

/** Returns a line's value of a dimension. Empty if the report is not by this dimension. */
export function valueOf(line: UsageLine, dimension: UsageDimension): string {
  return line[dimension] ?? "";
}

/** Returns the display text of a dimension's value. */
export function labelOf(line: UsageLine, dimension: Dimension): string {
  return (dimension === "key" ? line.name : undefined) ?? valueOf(line, dimension);
}

/** Returns the next dimension to drill down to: the first that is not filtered or shown yet. */
export function nextDimension(shown: Shown): Dimension | undefined {
  if (dimensionsOf(shown).includes("class")) return undefined; // no filter: a class is part of a row
  const fixed = new Set<Dimension>([
    ...Object.keys(shown.narrowed) as Dimension[],
    ...dimensionsOf(shown),
  ]);
  if (fixed.has("key")) fixed.add("team");
  return (Object.keys(COUNTED) as Dimension[]).find((each) => !fixed.has(each));
}

/** Filters the view by one of its rows. */
export function drillDown(shown: Shown, line: UsageLine): Shown {
  const by = nextDimension(shown);
  if (by === undefined) return shown;
  const more = dimensionsOf(shown).map((dimension) => [
    dimension,
    { value: valueOf(line, dimension), label: labelOf(line, dimension) },
  ]);
  const then = shown.then === "time" ? "time" : undefined;
  return { ...shown, narrowed: { ...shown.narrowed, ...Object.fromEntries(more) }, by, then };
}

/** Removes a filter, and groups the rows by its dimension. */
export function widen(shown: Shown, dimension: Dimension): Shown {
  const { [dimension]: _, ...narrowed } = shown.narrowed;
  return {
    ...shown,
    narrowed,
    by: dimension,
    then: shown.then === dimension ? undefined : shown.then,
  };
}
