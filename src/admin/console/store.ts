/**
 * Store of live traffic in the page: the last five minutes, second by second, and the last
 * exchanges.
 *
 * @module
 */
import type { FleetLiveReport } from "../../observe/fleet/fleet_report.ts";
import {
  type Durations,
  KEPT_EXCHANGES,
  KEPT_SECONDS,
  type LiveExchange,
  type LiveSecond,
  percentile,
} from "../../observe/live/live_report.ts";

/**
 * Number of seconds, up to and including its own, that a point's percentiles cover. One second
 * alone can have too few exchanges.
 */
const WINDOW_SECONDS = 10;

/** One second in the charts; `null` is a gap. */
export interface Point {
  readonly at: number;
  readonly exchanges: number | null;
  readonly errors: number | null;
  readonly tokens: number | null;
  readonly outputTokens: number | null;
  readonly p50: number | null;
  readonly p95: number | null;
  readonly p99: number | null;
  readonly firstToken50: number | null;
  readonly firstToken95: number | null;
  readonly openStreams: number | null;
  readonly openExchanges: number | null;
}

/** State of the store. */
export interface Snapshot {
  readonly report: FleetLiveReport | undefined;
  readonly points: readonly Point[];
  /** The newest first, without a gap. */
  readonly exchanges: readonly LiveExchange[];
  /** Number of gaps so far. After each, `exchanges` starts over. */
  readonly gaps: number;
  readonly isConnected: boolean;
}

/** Sums over some seconds, for one provider. */
export interface ProviderSummary {
  readonly exchanges: number;
  readonly errors: number;
  /** Returns a percentile of one of the durations, milliseconds; `undefined` if there are none. */
  percentile(what: "duration" | "firstToken", share: number): number | undefined;
}

/** Sums over some seconds. */
export interface Summary {
  /** Number of summed seconds: fewer than requested if the gateway has run for a shorter time. */
  readonly seconds: number;
  readonly exchanges: number;
  readonly errors: number;
  readonly byError: ReadonlyMap<string, number>;
  /** Ends that concern only the caller, by their code. */
  readonly byCaller: ReadonlyMap<string, number>;
  readonly tokens: number;
  /** The tokens among them that the gateway estimated. */
  readonly estimatedTokens: number;
  readonly outputTokens: number;
  /** Sums of one provider, by its name. Its durations are known for the last minute. */
  of(provider: string): ProviderSummary;
  /** Returns a percentile of one of the durations, milliseconds; `undefined` if there are none. */
  percentile(what: "duration" | "firstToken" | "overhead", share: number): number | undefined;
}

const sum = (counts: Iterable<number>): number =>
  Array.from(counts).reduce((total, count) => total + count, 0);

/** Collects reports. */
export class Store {
  #seconds = new Map<number, LiveSecond>();
  #snapshot: Snapshot = {
    report: undefined,
    points: [],
    exchanges: [],
    gaps: 0,
    isConnected: false,
  };

  /** Current state of the store. */
  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  /** Sets whether the stream of reports is open. */
  connected(isConnected: boolean): void {
    this.#update({ isConnected });
  }

  /** Adds a report. The first report of a connection has all stored data of the gateway. */
  add(report: FleetLiveReport): void {
    const last = Math.floor(report.now / 1000) - 1;
    const first = last - KEPT_SECONDS + 2;
    for (const second of report.seconds) this.#seconds.set(second.at, second);
    for (const at of this.#seconds.keys()) {
      if (at < first - WINDOW_SECONDS || at > last) this.#seconds.delete(at);
    }
    const known = new Map(this.#snapshot.points.map((point) => [point.at, point]));
    const points: Point[] = [];
    for (let at = first; at <= last; at++) {
      const before = known.get(at);
      const isTold = at < report.from || at < report.since;
      const open = at === last ? report : before;
      points.push(
        before !== undefined && isTold ? before : this.#toPoint(at, open, at >= report.since),
      );
    }
    this.#update({ report, points, ...this.#addExchanges(report), isConnected: true });
  }

  /** Sums up the last `count` complete seconds. */
  summary(count: number): Summary {
    const last = this.#snapshot.points.at(-1)?.at ?? 0;
    const seconds = Array.from(this.#seconds.values()).filter(({ at }) =>
      at > last - count && at <= last
    );
    const [byError, byCaller] = [new Map<string, number>(), new Map<string, number>()];
    const addTo = (sums: Map<string, number>, counts: Readonly<Record<string, number>>) => {
      for (const [code, count] of Object.entries(counts)) {
        sums.set(code, (sums.get(code) ?? 0) + count);
      }
    };
    for (const { errors, callers } of seconds) {
      addTo(byError, errors);
      addTo(byCaller, callers);
    }
    const known = last - (this.#snapshot.report?.since ?? 0) + 1;
    return {
      seconds: Math.max(1, Math.min(count, known)),
      exchanges: sum(seconds.map(({ exchanges }) => exchanges)),
      errors: sum(byError.values()),
      byError,
      byCaller,
      of: (provider) => ({
        exchanges: sum(seconds.map(({ providers }) => providers[provider]?.[0] ?? 0)),
        errors: sum(seconds.map(({ providers }) => providers[provider]?.[1] ?? 0)),
        percentile: (what, share) =>
          percentile(seconds.map(({ times }) => times[provider]?.[what] ?? []), share),
      }),
      tokens: sum(seconds.map(({ tokens }) => tokens)),
      estimatedTokens: sum(seconds.map(({ estimatedTokens }) => estimatedTokens)),
      outputTokens: sum(seconds.map(({ outputTokens }) => outputTokens)),
      percentile: (what, share) =>
        percentile(seconds.map((second): Durations => second[what]), share),
    };
  }

  /**
   * Puts the exchanges of a report before the known ones. If some in between are missing, replaces
   * the known ones.
   */
  #addExchanges(report: FleetLiveReport): Pick<Snapshot, "exchanges" | "gaps"> {
    const { exchanges, seconds, from, scope } = report;
    const { report: before, exchanges: known, gaps } = this.#snapshot;
    // A reopened stream repeats some exchanges.
    const repeated = new Set(exchanges.map(({ id }) => id));
    const newest = exchanges.toReversed();
    const older = known.filter(({ id }) => !repeated.has(id));
    // The exchanges of several gateways are always incomplete, and no route has the others.
    if (scope !== undefined) {
      return { exchanges: [...newest, ...older].slice(0, KEPT_EXCHANGES), gaps };
    }
    const isWhole = sum(seconds.map((second) => second.exchanges)) <= exchanges.length;
    const isNext = before !== undefined && from * 1000 <= before.now;
    if (older.length < known.length || (isWhole && isNext)) {
      return { exchanges: [...newest, ...older].slice(0, KEPT_EXCHANGES), gaps };
    }
    return { exchanges: newest, gaps: gaps + 1 };
  }

  /** Creates a point. A second without data was idle only if the gateway is known to have run. */
  #toPoint(
    at: number,
    open: { openStreams: number | null; openExchanges: number | null } | undefined,
    isKnown: boolean,
  ): Point {
    const second = this.#seconds.get(at);
    const none = isKnown || second !== undefined ? 0 : null;
    const window: LiveSecond[] = [];
    for (let step = at - WINDOW_SECONDS + 1; step <= at; step++) {
      const each = this.#seconds.get(step);
      if (each !== undefined) window.push(each);
    }
    const durations = window.map(({ duration }) => duration);
    const firstTokens = window.map(({ firstToken }) => firstToken);
    return {
      at,
      exchanges: second?.exchanges ?? none,
      errors: second === undefined ? none : sum(Object.values(second.errors)),
      tokens: second?.tokens ?? none,
      outputTokens: second?.outputTokens ?? none,
      p50: percentile(durations, 0.5) ?? null,
      p95: percentile(durations, 0.95) ?? null,
      p99: percentile(durations, 0.99) ?? null,
      firstToken50: percentile(firstTokens, 0.5) ?? null,
      firstToken95: percentile(firstTokens, 0.95) ?? null,
      openStreams: open?.openStreams ?? null,
      openExchanges: open?.openExchanges ?? null,
    };
  }

  #update(change: Partial<Snapshot>): void {
    this.#snapshot = { ...this.#snapshot, ...change };
  }
}
