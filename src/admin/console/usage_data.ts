/**
 * Data of the usage view: reports of the admin API, the series of the chart, and texts to download.
 *
 * @module
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./client.ts";
import type { TimeDimension } from "../../usage/query.ts";
import type { UsageLine, UsageReport } from "../../usage/report.ts";
import { toReportCsv } from "../../usage/report_csv.ts";
import type { UsageSums } from "../../usage/sums.ts";
import {
  type Dimension,
  labelOf,
  type Measure,
  type Period,
  type Shown,
  toChartQuery,
  toPeriod,
  toTableQuery,
  toUnpricedQuery,
  valueOf,
} from "./usage_query.ts";

/** Number of series with their own colour. */
export const MAX_SERIES = 7;
/** Maximum number of rows of the table. */
const MAX_ROWS = 1000;
/** Number of models that the hint on prices names. */
const NAMED_MODELS = 4;
/** Interval at which the shown data is read again. Milliseconds. */
const REFRESH_MS = 60_000;
/** Name of all rows that are counted together. */
const OTHER = "(other)";

/** Reports for one state of the view. */
export interface UsageData {
  readonly shown: Shown;
  readonly period: Period;
  readonly table: UsageReport;
  readonly chart: UsageReport;
  /** Models without a price, those with the most tokens first. */
  readonly unpriced: readonly UsageLine[];
}

/** One series of the chart. */
export interface Series {
  /** Value of the dimension. */
  readonly id: string;
  readonly label: string;
  readonly isOther: boolean;
  /** True if its tokens are estimated in part. */
  readonly isEstimated: boolean;
  readonly values: readonly number[];
}

/** Returns the measured amount of a row. */
export function amountOf(sums: UsageSums, measure: Measure): number {
  return measure === "cost" ? Number(sums.cost ?? 0) : sums[measure];
}

/** Returns the names of a range's hours, days or months, as in reports. */
export function toBuckets({ from, to }: UsageReport, step: TimeDimension): string[] {
  const names: string[] = [];
  const end = Date.parse(to);
  const date = new Date(from);
  if (step === "month") date.setUTCDate(1);
  while (date.getTime() < end) {
    const text = date.toISOString();
    names.push(
      step === "hour" ? `${text.slice(0, 13)}:00Z` : text.slice(0, step === "day" ? 10 : 7),
    );
    if (step === "month") date.setUTCMonth(date.getUTCMonth() + 1);
    else date.setTime(date.getTime() + (step === "hour" ? 3_600_000 : 86_400_000));
  }
  return names;
}

/** Returns the series of the chart, the largest first and the remaining ones last. */
export function toSeries(
  report: UsageReport,
  buckets: readonly string[],
  { by, measure }: Shown,
): Series[] {
  const indexes = new Map(buckets.map((name, index) => [name, index]));
  const [step = "day"] = report.by;
  const found = new Map<
    string,
    Series & { isEstimated: boolean; values: number[]; sum: number }
  >();
  for (const row of report.rows) {
    const name = valueOf(row, by);
    let series = found.get(name);
    if (series === undefined) {
      series = {
        id: name,
        label: labelOf(row, by),
        isOther: name === OTHER,
        isEstimated: false,
        values: buckets.map(() => 0),
        sum: 0,
      };
      found.set(name, series);
    }
    const index = indexes.get(valueOf(row, step));
    const amount = amountOf(row, measure);
    if (index !== undefined) series.values[index] = amount;
    series.sum += amount;
    if (measure !== "requests" && row.estimated > 0) series.isEstimated = true;
  }
  return [...found.values()].sort((one, other) =>
    Number(one.isOther) - Number(other.isOther) || other.sum - one.sum
  );
}

async function load(shown: Shown, period: Period): Promise<UsageData> {
  const [table, chart] = await Promise.all([
    call<UsageReport>("GET", toTableQuery(shown, period, MAX_ROWS)),
    call<UsageReport>("GET", toChartQuery(shown, period, MAX_SERIES)),
  ]);
  const { rows } = table.totals.unpriced === 0
    ? { rows: [] }
    : await call<UsageReport>("GET", toUnpricedQuery(shown, period, NAMED_MODELS));
  return { shown, period, table, chart, unpriced: rows.filter(({ unpriced }) => unpriced > 0) };
}

/** Loads the shown data, and reloads it every minute. */
export function useUsage(
  shown: Shown,
): { data: UsageData | undefined; error: unknown; isLoading: boolean } {
  const [data, setData] = useState<UsageData | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  const [isLoading, setLoading] = useState(false);
  const latest = useRef(0);
  useEffect(() => {
    const turn = ++latest.current;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const reload = async () => {
      const period = document.hidden ? undefined : toPeriod(shown, Date.now());
      if (period !== undefined) {
        setLoading(true);
        try {
          const loaded = await load(shown, period);
          if (turn === latest.current) setData(loaded), setError(undefined);
        } catch (thrown) {
          if (turn === latest.current) setError(thrown);
        }
        if (turn === latest.current) setLoading(false);
      }
      if (turn === latest.current) timer = setTimeout(reload, REFRESH_MS);
    };
    reload();
    return () => {
      latest.current++;
      clearTimeout(timer);
    };
  }, [shown]);
  return { data, error, isLoading };
}

/** Formats the shown rows as CSV, with the same columns as `sallyport usage --csv`. */
export function toCsv({ by, currency }: UsageReport, rows: readonly UsageLine[]): string {
  return toReportCsv(by, currency, rows);
}

/** Downloads a file in the browser. */
export function saveFile(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), REFRESH_MS); // the browser reads it later
}

/** True if one of a row's names contains a text. */
export function hasText(line: UsageLine, dimensions: readonly Dimension[], text: string): boolean {
  return [line.name, ...dimensions.map((each) => line[each])].some((each) =>
    each?.toLowerCase().includes(text)
  );
}
