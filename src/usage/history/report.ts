/**
 * Reports of the history: calls, ends by cause, tokens, cost and latency of a key, a team or a
 * provider over time, and since when each cause occurs.
 *
 * @module
 */
import type { Concern } from "../../errors/outcomes.ts";
import { type Rest, ROWS_A_TURN } from "../counts.ts";
import { UsageRefusal } from "../query.ts";
import {
  FIRST_DURATION,
  HISTORY_DURATION_BOUNDS,
  HISTORY_STEP_MS,
  type HistoryRow,
  type HistoryStep,
  type HistoryStore,
  KEPT_MS,
  sumIn,
} from "./rows.ts";

/** A query for the history. Without a key, a team and a provider, it is of all calls. */
export interface HistoryQuery {
  readonly key?: string | undefined;
  readonly team?: string | undefined;
  readonly provider?: string | undefined;
  /** Time that ends now, milliseconds. */
  readonly lastMs: number;
  /** Length of a step, milliseconds. Default: one with which a person can read all steps. */
  readonly stepMs?: number | undefined;
}

/** Sums of calls. */
export interface HistorySums {
  readonly calls: number;
  /** Calls whose end concerns the operator. */
  readonly errors: number;
  /** Calls whose end concerns the caller, such as a refusal or a 4xx of the provider. */
  readonly refused: number;
  readonly tokens: number;
  readonly outputTokens: number;
  /** By the prices at the time of the calls, in the currency. */
  readonly cost: number;
  /** Percentiles of the durations of forwarded calls, milliseconds; `null` without such calls. */
  readonly p50: number | null;
  readonly p95: number | null;
  /** Average time until the answer began, milliseconds; `null` if none began. */
  readonly firstByte: number | null;
}

/** The sums of one step. */
export interface HistoryPoint extends HistorySums {
  /** Start of the step, ISO 8601 in UTC. */
  readonly at: string;
  /** Number of calls by their end, without those that are `ok`. */
  readonly ends: Readonly<Record<string, number>>;
}

/** An end of some calls. */
export interface HistoryEnd {
  /** An error code, `upstream_` and a status, or an outcome. */
  readonly end: string;
  readonly concern: Concern;
  readonly calls: number;
  /** Start of the first and of the last minute or hour with such a call, ISO 8601 in UTC. */
  readonly since: string;
  readonly last: string;
}

/** The sums of one key, team or provider. */
export interface HistoryShare extends HistorySums {
  /** Its id or name; empty for calls without one. */
  readonly id: string;
}

/** A report of the history. */
export interface HistoryReport {
  readonly from: string;
  readonly to: string;
  /** Length of each step, seconds. */
  readonly step: number;
  readonly currency: string;
  readonly totals: HistorySums;
  readonly points: readonly HistoryPoint[];
  /** Ends other than `ok`, the most frequent first. */
  readonly ends: readonly HistoryEnd[];
  /** The largest shares by calls. */
  readonly teams: readonly HistoryShare[];
  readonly keys: readonly HistoryShare[];
  readonly providers: readonly HistoryShare[];
}

/** Parts of {@link HistoryReports}. */
export interface HistoryReportParts {
  readonly history: Pick<HistoryStore, "read">;
  readonly currency: string;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
  /** Lets other work of the process run. */
  readonly rest: Rest;
}

/** Maximum number of shares of a kind. */
const MAX_SHARES = 20;
/** Number of points by default, and maximum. */
const DEFAULT_POINTS = 60;
const MAX_POINTS = 1000;
/** Lengths of the steps of a report. */
const STEPS = {
  ...{ "1m": 1, "2m": 2, "5m": 5, "10m": 10, "15m": 15, "30m": 30 },
  ...{ "1h": 60, "2h": 120, "3h": 180, "6h": 360, "12h": 720, "24h": 1440 },
} as const;
const STEPS_MS: readonly number[] = Object.values(STEPS).map((minutes) =>
  minutes * HISTORY_STEP_MS.minute
);
/** Units of the currency in a stored cost. */
const COST_UNITS = 1e9;

/** Sums that grow. */
class Growing {
  calls = 0;
  errors = 0;
  refused = 0;
  readonly ends = new Map<string, number>();
  readonly #sums: number[] = [];

  add({ end, concern, sums }: HistoryRow): void {
    const calls = sumIn(sums, "calls");
    this.calls += calls;
    if (concern === "operator") this.errors += calls;
    if (concern === "caller") this.refused += calls;
    if (concern !== "nobody") this.ends.set(end, (this.ends.get(end) ?? 0) + calls);
    for (const [index, sum] of sums.entries()) this.#sums[index] = (this.#sums[index] ?? 0) + sum;
  }

  toSums(): HistorySums {
    const { calls, errors, refused } = this;
    const sum = (name: Parameters<typeof sumIn>[1]) => Math.max(0, sumIn(this.#sums, name));
    const answered = sum("answered");
    return {
      calls,
      errors,
      refused,
      tokens: sum("tokens"),
      outputTokens: sum("outputTokens"),
      cost: sum("cost") / COST_UNITS,
      p50: this.#percentile(0.5),
      p95: this.#percentile(0.95),
      firstByte: answered === 0 ? null : Math.round(sum("firstByteMs") / answered),
    };
  }

  /** Estimates a percentile within the durations that are counted together. */
  #percentile(share: number): number | null {
    const counts = this.#sums.slice(FIRST_DURATION);
    const all = counts.reduce((sum, count) => sum + count, 0);
    if (all === 0) return null;
    const wanted = share * all;
    let below = 0;
    for (const [index, count] of counts.entries()) {
      const upper = HISTORY_DURATION_BOUNDS[index];
      const lower = index === 0 ? 0 : HISTORY_DURATION_BOUNDS[index - 1] ?? 0;
      if (below + count < wanted) {
        below += count;
        continue;
      }
      // The longest durations have no upper bound.
      if (upper === undefined) return lower;
      return Math.round(lower + (upper - lower) * (wanted - below) / count);
    }
    return null;
  }
}

/** The time of a report, in whole steps. */
interface Range {
  readonly stored: HistoryStep;
  readonly stepMs: number;
  readonly from: number;
  readonly to: number;
}

/** Returns the length of a step. @throws {UsageRefusal} For an impossible one */
function toStep({ lastMs, stepMs: wanted }: HistoryQuery, stored: HistoryStep): number {
  const possible = STEPS_MS.filter((ms) =>
    ms >= HISTORY_STEP_MS[stored] && lastMs / ms <= MAX_POINTS
  );
  if (wanted !== undefined && !possible.includes(wanted)) {
    const names = Object.entries(STEPS)
      .filter(([, minutes]) => possible.includes(minutes * HISTORY_STEP_MS.minute));
    const expected = names.map(([name]) => name).join(", ");
    throw new UsageRefusal("step", `expected one of ${expected} for this time`);
  }
  return wanted ?? possible.find((ms) => lastMs / ms <= DEFAULT_POINTS) ??
    HISTORY_STEP_MS.hour * 24;
}

/** Returns the time of a query. @throws {UsageRefusal} If it is longer than the history is kept */
function toRange(query: HistoryQuery, now: number): Range {
  const { lastMs } = query;
  if (lastMs > KEPT_MS.hour) {
    throw new UsageRefusal(
      "last",
      "the history is kept for 30 days: expected a duration up to 30d",
    );
  }
  const stored = lastMs <= KEPT_MS.minute ? "minute" : "hour";
  const stepMs = toStep(query, stored);
  const to = Math.ceil((now + 1) / stepMs) * stepMs;
  const first = Math.max(now - lastMs, now - KEPT_MS[stored]);
  return { stored, stepMs, from: Math.floor(first / stepMs) * stepMs, to };
}

const toTime = (ms: number): string => new Date(ms).toISOString();

/** The sums of a kind of subjects. */
class Shares {
  readonly #all = new Map<string, Growing>();

  add(id: string, row: HistoryRow): void {
    let growing = this.#all.get(id);
    if (growing === undefined) this.#all.set(id, growing = new Growing());
    growing.add(row);
  }

  list(): HistoryShare[] {
    const shares = Array.from(this.#all, ([id, growing]) => ({ id, ...growing.toSums() }));
    return shares.sort((one, other) => other.calls - one.calls).slice(0, MAX_SHARES);
  }
}

/** The ends other than `ok`, and their first and last times. */
class Ends {
  readonly #all = new Map<
    string,
    { row: HistoryRow; calls: number; since: number; last: number }
  >();

  add(row: HistoryRow): void {
    const { end, concern, at, sums } = row;
    const calls = sumIn(sums, "calls");
    if (concern === "nobody" || calls === 0) return;
    const found = this.#all.get(`${concern} ${end}`);
    if (found === undefined) {
      this.#all.set(`${concern} ${end}`, { row, calls, since: at, last: at });
      return;
    }
    found.calls += calls;
    found.since = Math.min(found.since, at);
    found.last = Math.max(found.last, at);
  }

  list(): HistoryEnd[] {
    const ends = Array.from(this.#all.values(), ({ row, calls, since, last }) => {
      const { end, concern } = row;
      return { end, concern, calls, since: toTime(since), last: toTime(last) };
    });
    return ends.sort((one, other) => other.calls - one.calls);
  }
}

function isWanted(row: HistoryRow, { key, team, provider }: HistoryQuery): boolean {
  return (key === undefined || row.key === key) && (team === undefined || row.team === team) &&
    (provider === undefined || row.provider === provider);
}

/** Creates reports of the history. */
export class HistoryReports {
  readonly #parts: HistoryReportParts;

  constructor(parts: HistoryReportParts) {
    this.#parts = parts;
  }

  /**
   * Creates a report, in turns.
   *
   * @throws {UsageRefusal} If the query can't be answered
   * @throws {UsageUnavailable} If the history can't be read
   */
  async report(query: HistoryQuery): Promise<HistoryReport> {
    const { history, currency, now, rest } = this.#parts;
    const { stored, stepMs, from, to } = toRange(query, now());
    const totals = new Growing();
    const points = Array.from({ length: (to - from) / stepMs }, () => new Growing());
    const ends = new Ends();
    const teams = new Shares();
    const keys = new Shares();
    const providers = new Shares();
    let sinceRest = 0;
    for await (const rows of history.read({ step: stored, from, to })) {
      for (const row of rows.filter((each) => isWanted(each, query))) {
        totals.add(row);
        points[Math.floor((row.at - from) / stepMs)]?.add(row);
        ends.add(row);
        teams.add(row.team, row);
        keys.add(row.key, row);
        providers.add(row.provider, row);
      }
      sinceRest += rows.length;
      if (sinceRest < ROWS_A_TURN) continue;
      sinceRest = 0;
      await rest();
    }
    return {
      from: toTime(from),
      to: toTime(to),
      step: stepMs / 1000,
      currency,
      totals: totals.toSums(),
      points: points.map((point, index) => ({
        at: toTime(from + index * stepMs),
        ...point.toSums(),
        ends: Object.fromEntries(point.ends),
      })),
      ends: ends.list(),
      teams: teams.list(),
      keys: keys.list(),
      providers: providers.list(),
    };
  }
}
