/**
 * Reports of live traffic, second by second, and the merge of several processes' reports. The
 * console's page uses the same module.
 *
 * @module
 */
import { addCount } from "../../exchange/count_map.ts";
import type { ClassAmounts } from "../../exchange/billing.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";

export { concernOf, nameEnd, OUTCOMES } from "../../errors/outcomes.ts";

/** Number of stored seconds. */
export const KEPT_SECONDS = 300;
/** Number of seconds whose times are stored by provider. */
export const TIMED_SECONDS = 60;
/** Number of exchanges that a process stores. */
export const KEPT_EXCHANGES = 10_000;
/** Number of exchanges in one report, at most: the newest. The others can be queried. */
export const REPORTED_EXCHANGES = 250;

/**
 * Bins per doubling of a duration. Each bin ends 9 % above the previous one, so that its middle is
 * at most 5 % off.
 */
const BINS_AN_OCTAVE = 8;
/** The first bin ends at 2^-7 ms, 8 µs. */
const FIRST_OCTAVE = -7;
/** The last bin begins at 2^21 ms, 35 minutes. */
export const BINS: number = (21 - FIRST_OCTAVE) * BINS_AN_OCTAVE + 1;

/**
 * Returns the bin of a duration.
 *
 * @returns From 0 to {@link BINS} - 1
 */
export function binOf(ms: number): number {
  const bin = Math.ceil((Math.log2(ms) - FIRST_OCTAVE) * BINS_AN_OCTAVE);
  return bin > 0 ? Math.min(bin, BINS - 1) : 0;
}

/** Durations as a histogram: the number of each bin that is not empty, followed by its count. */
export type Durations = readonly number[];

/** Adds up histograms. Returns the bins with their counts, the shortest durations first. */
export function addBins(all: readonly Durations[]): [bin: number, count: number][] {
  const counts = new Map<number, number>();
  for (const durations of all) {
    for (let index = 0; index < durations.length; index += 2) {
      const [bin = 0, count = 0] = [durations[index], durations[index + 1]];
      addCount(counts, bin, count);
    }
  }
  return Array.from(counts).sort(([one], [other]) => one - other);
}

/**
 * Returns a percentile of durations.
 *
 * @param share From 0 to 1: 0.95 for the 95th percentile
 * @returns Milliseconds, the middle of a bin; `undefined` if there are no durations
 */
export function percentile(all: readonly Durations[], share: number): number | undefined {
  const bins = addBins(all);
  let rank = Math.ceil(bins.reduce((sum, [, count]) => sum + count, 0) * share);
  for (const [bin, count] of bins) {
    rank -= count;
    if (rank <= 0) return 2 ** (FIRST_OCTAVE + (bin - 0.5) / BINS_AN_OCTAVE);
  }
  return undefined;
}

/** Times of the exchanges with one provider. */
export interface ProviderTimes {
  readonly duration: Durations;
  readonly firstToken: Durations;
}

/** One second of traffic: the exchanges that settled in it. */
export interface LiveSecond {
  /** Seconds since 1970. */
  readonly at: number;
  readonly exchanges: number;
  /** Errors among them, by the gateway's code, or by `upstream_` and the provider's status. */
  readonly errors: Readonly<Record<string, number>>;
  /**
   * Ends that concern only the caller: refused, a provider's 4xx, or cancelled by the caller
   * (`client_closed`).
   */
  readonly callers: Readonly<Record<string, number>>;
  /** Tokens that providers stated, or else the gateway estimated. */
  readonly tokens: number;
  /** The tokens among them that the gateway estimated. */
  readonly estimatedTokens: number;
  readonly outputTokens: number;
  /** From the first header to the last byte. */
  readonly duration: Durations;
  /** Until the first event of a stream. */
  readonly firstToken: Durations;
  /** The gateway's own time. */
  readonly overhead: Durations;
  /** Exchanges, and errors among them, by provider. */
  readonly providers: Readonly<Record<string, readonly [exchanges: number, errors: number]>>;
  /** Times by provider; empty for a second that is older than {@link TIMED_SECONDS}. */
  readonly times: Readonly<Record<string, ProviderTimes>>;
}

/** Cost of an exchange by the prices of the gateway that reports it. */
export interface LiveCost {
  /** Exact, as a decimal number; `null` if nothing has a price. */
  readonly total: string | null;
  readonly currency: string;
  /** Cost of each billing class that costs something; `stated` for a cost that the provider states. */
  readonly classes: Readonly<Record<string, string>>;
  /** Amounts without a price: the cost is a lower bound. */
  readonly unpriced?: ClassAmounts;
}

/**
 * One exchange as operators see it: its record without the underlying error, which can contain
 * addresses.
 */
export interface LiveExchange extends Omit<ExchangeRecord, "plan" | "error" | "withheld"> {
  /** Wall clock at its end, milliseconds since 1970. Unique among the exchanges of one process. */
  readonly settledAt: number;
  /** Its cost, if its usage is known and any prices are configured. */
  readonly cost?: LiveCost;
  /** Name of its gateway, if the report covers several. */
  readonly gateway?: string;
}

/** State of a replica, over all processes. */
export interface LiveReplica {
  readonly url: string;
  /**
   * Number of processes where it is in service. `ejected` counts the processes where it is ejected.
   */
  readonly inService: number;
  readonly ejected: number;
  /** Time until the last process tries it again. Milliseconds. */
  readonly ejectedMs: number;
  /** Failures since the last success, in the process with the most. */
  readonly failures: number;
}

/** Report of one process, or of all processes together. */
export interface LivePart {
  /** First known second, since 1970. A second before it is unknown, not idle. */
  readonly since: number;
  readonly openExchanges: number;
  readonly openStreams: number;
  readonly providers: readonly {
    readonly name: string;
    readonly hosts: readonly string[];
    readonly replicas: readonly LiveReplica[];
  }[];
  /** The oldest first; a second without traffic is left out. */
  readonly seconds: readonly LiveSecond[];
  /** In the order in which they settled, the newest {@link REPORTED_EXCHANGES}. */
  readonly exchanges: readonly LiveExchange[];
}

/** The report of a gateway that has no traffic yet. */
const NO_TRAFFIC: LivePart = {
  since: 0,
  openExchanges: 0,
  openStreams: 0,
  providers: [],
  seconds: [],
  exchanges: [],
};

/** One event of the feed. */
export interface LiveReport extends LivePart {
  /** Wall clock, milliseconds since 1970. */
  readonly now: number;
  /** First second of this report. The report ends at `now`. */
  readonly from: number;
  /** State for load balancers: ready for callers, drained by an operator, or about to end. */
  readonly state: "starting" | "ready" | "draining" | "leaving";
  readonly version: string;
  /** Health of the stores of keys and limits, and of each worker. */
  readonly health: Readonly<Record<string, unknown>>;
}

function addUp<T>(
  all: Iterable<readonly [string, T]>,
  add: (one: T, other: T) => T,
): Record<string, T> {
  const sums = new Map<string, T>();
  for (const [name, value] of all) {
    const before = sums.get(name);
    sums.set(name, before === undefined ? value : add(before, value));
  }
  return Object.fromEntries(sums);
}

const mergeCounts = (one: LiveSecond["errors"], other: LiveSecond["errors"]) =>
  addUp([...Object.entries(one), ...Object.entries(other)], (a, b) => a + b);

const mergeTimes = (one: ProviderTimes, other: ProviderTimes): ProviderTimes => ({
  duration: [...one.duration, ...other.duration],
  firstToken: [...one.firstToken, ...other.firstToken],
});

function mergeSeconds(all: readonly LiveSecond[]): LiveSecond[] {
  const merged = addUp(all.map((second) => [String(second.at), second] as const), (one, other) => ({
    at: one.at,
    exchanges: one.exchanges + other.exchanges,
    errors: mergeCounts(one.errors, other.errors),
    callers: mergeCounts(one.callers, other.callers),
    tokens: one.tokens + other.tokens,
    estimatedTokens: one.estimatedTokens + other.estimatedTokens,
    outputTokens: one.outputTokens + other.outputTokens,
    duration: [...one.duration, ...other.duration],
    firstToken: [...one.firstToken, ...other.firstToken],
    overhead: [...one.overhead, ...other.overhead],
    providers: addUp(
      [...Object.entries(one.providers), ...Object.entries(other.providers)],
      ([a, b], [c, d]): [number, number] => [a + c, b + d],
    ),
    times: addUp([...Object.entries(one.times), ...Object.entries(other.times)], mergeTimes),
  }));
  return Object.values(merged).sort((one, other) => one.at - other.at);
}

function mergeReplicas(one: readonly LiveReplica[], other: readonly LiveReplica[]): LiveReplica[] {
  return one.map((replica, index) => {
    const same = other[index];
    if (same === undefined) return replica;
    return {
      url: replica.url,
      inService: replica.inService + same.inService,
      ejected: replica.ejected + same.ejected,
      ejectedMs: Math.max(replica.ejectedMs, same.ejectedMs),
      failures: Math.max(replica.failures, same.failures),
    };
  });
}

/** Merges the replicas of each provider. While a change is applied, they can differ. */
function mergeProviders(
  providers: LivePart["providers"],
  others: readonly LivePart[],
): LivePart["providers"] {
  return providers.map((provider, index) => {
    let { replicas } = provider;
    for (const other of others) {
      const same = other.providers[index];
      if (same !== undefined) replicas = mergeReplicas(replicas, same.replicas);
    }
    return { ...provider, replicas };
  });
}

/**
 * Merges the reports of several processes that have the same configuration.
 *
 * @param parts Without any, the report has no traffic
 * @returns Counts added up, exchanges in the order in which they ended
 */
export function mergeParts(parts: readonly LivePart[]): LivePart {
  const [first, ...rest] = parts;
  if (first === undefined) return NO_TRAFFIC;
  if (rest.length === 0) return first;
  return {
    since: Math.min(...parts.map(({ since }) => since)),
    openExchanges: parts.reduce((sum, { openExchanges }) => sum + openExchanges, 0),
    openStreams: parts.reduce((sum, { openStreams }) => sum + openStreams, 0),
    providers: mergeProviders(first.providers, rest),
    seconds: mergeSeconds(parts.flatMap(({ seconds }) => seconds)),
    exchanges: parts.flatMap(({ exchanges }) => exchanges)
      .sort((one, other) => one.settledAt - other.settledAt)
      .slice(-REPORTED_EXCHANGES),
  };
}
