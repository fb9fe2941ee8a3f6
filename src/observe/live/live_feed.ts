/**
 * The live feed: stores settled exchanges in ring buffers of fixed size, reports them to watchers
 * once a second, and finds them again.
 *
 * Each exchange is stored in a ring of exchanges and counted in the current second of a ring of
 * seconds. All other work is done only while there is a watcher.
 *
 * @module
 */
import type { ByteSource } from "../../http/message.ts";
import { addCount } from "../../exchange/count_map.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import { concernOf, nameEnd } from "../../errors/outcomes.ts";
import type { ExchangePage, ExchangeQuery } from "./exchange_page.ts";
import { ExchangeRing } from "./exchange_ring.ts";
import {
  binOf,
  BINS,
  type Durations,
  KEPT_SECONDS,
  type LivePart,
  type LiveReplica,
  type LiveSecond,
  REPORTED_EXCHANGES,
  TIMED_SECONDS,
} from "./live_report.ts";

/** Times of the forwarded exchanges of one second, by provider: a slot of the ring. */
class SecondTimes {
  at = -1;
  readonly #byProvider = new Map<string, { duration: Uint32Array; firstToken: Uint32Array }>();

  /** Adds an exchange. Clears the slot first if it has the times of another second. */
  add(at: number, provider: string, { durationMs, firstTokenMs }: ExchangeRecord): void {
    if (this.at !== at) this.#byProvider.clear();
    this.at = at;
    let times = this.#byProvider.get(provider);
    if (times === undefined) {
      times = { duration: new Uint32Array(BINS), firstToken: new Uint32Array(BINS) };
      this.#byProvider.set(provider, times);
    }
    addTo(times.duration, durationMs);
    if (firstTokenMs !== undefined) addTo(times.firstToken, firstTokenMs);
  }

  toJson(): LiveSecond["times"] {
    return Object.fromEntries(
      Array.from(this.#byProvider, ([name, times]) => [
        name,
        { duration: toDurations(times.duration), firstToken: toDurations(times.firstToken) },
      ]),
    );
  }
}

/** Counts of one second: a slot of the ring. */
class Second {
  at = -1;
  exchanges = 0;
  tokens = 0;
  estimatedTokens = 0;
  outputTokens = 0;
  readonly errors = new Map<string, number>();
  readonly callers = new Map<string, number>();
  readonly providers = new Map<string, [exchanges: number, errors: number]>();
  readonly duration = new Uint32Array(BINS);
  readonly firstToken = new Uint32Array(BINS);
  readonly overhead = new Uint32Array(BINS);

  /** Clears the slot for another second. */
  start(at: number): void {
    this.at = at;
    this.exchanges =
      this.tokens =
      this.estimatedTokens =
      this.outputTokens =
        0;
    this.errors.clear();
    this.callers.clear();
    this.providers.clear();
    for (const bins of [this.duration, this.firstToken, this.overhead]) bins.fill(0);
  }

  toJson(times: LiveSecond["times"]): LiveSecond {
    const { at, exchanges, tokens, estimatedTokens, outputTokens } = this;
    const { errors, callers, providers } = this;
    return {
      at,
      exchanges,
      errors: Object.fromEntries(errors),
      callers: Object.fromEntries(callers),
      tokens,
      estimatedTokens,
      outputTokens,
      duration: toDurations(this.duration),
      firstToken: toDurations(this.firstToken),
      overhead: toDurations(this.overhead),
      providers: Object.fromEntries(providers),
      times,
    };
  }
}

function toDurations(bins: Uint32Array): Durations {
  const durations: number[] = [];
  for (const [bin, count] of bins.entries()) if (count > 0) durations.push(bin, count);
  return durations;
}

function addTo(bins: Uint32Array, ms: number): void {
  const bin = binOf(ms);
  bins[bin] = (bins[bin] as number) + 1; // each bin is below BINS
}

/** State of one replica of a provider. */
interface WatchedReplica {
  readonly provider: string;
  readonly url: string;
  readonly isEjected: boolean;
  readonly ejectedMs: number;
  readonly failures: number;
}

/** The part of a gateway that the feed reads. */
export interface WatchedGateway {
  readonly openExchanges: number;
  readonly openStreams: number;
  readonly replicas: readonly WatchedReplica[];
}

const toLiveReplica = (replica: WatchedReplica): LiveReplica => ({
  url: replica.url,
  inService: replica.isEjected ? 0 : 1,
  ejected: replica.isEjected ? 1 : 0,
  ejectedMs: replica.ejectedMs,
  failures: replica.failures,
});

/**
 * Longest time from the end of an exchange to its report. If it is longer, the wall clock was set
 * in between. Milliseconds.
 */
const MAX_LATE_MS = 1000;

/** Rings of settled exchanges and of seconds. */
export class LiveFeed implements ExchangeObserver {
  #providers: readonly (readonly [name: string, provider: { readonly hosts: readonly string[] }])[];
  readonly #now: () => number;
  readonly #since: number;
  readonly #seconds: Second[] = [];
  readonly #times: SecondTimes[] = [];
  readonly #exchanges = new ExchangeRing();

  /** @param now Wall clock, milliseconds since 1970 */
  constructor(
    providers: Readonly<Record<string, { readonly hosts: readonly string[] }>>,
    now: () => number,
  ) {
    this.#providers = Object.entries(providers);
    this.#now = now;
    this.#since = Math.floor(now() / 1000);
  }

  /** Replaces the providers that are reported. */
  show(providers: Readonly<Record<string, { readonly hosts: readonly string[] }>>): void {
    this.#providers = Object.entries(providers);
  }

  settled(record: ExchangeRecord): void {
    const now = this.#now();
    const ended = record.startedAt + record.durationMs;
    const settledAt = Math.abs(now - ended) > MAX_LATE_MS ? now : ended;
    const at = Math.floor(settledAt / 1000);
    this.#exchanges.add(record, settledAt);
    const second = this.#seconds[at % KEPT_SECONDS] ??= new Second();
    if (second.at !== at) second.start(at);
    const concern = concernOf(record);
    second.exchanges++;
    if (concern !== "nobody") {
      const counts = concern === "operator" ? second.errors : second.callers;
      addCount(counts, nameEnd(record));
    }
    addTo(second.duration, record.durationMs);
    addTo(second.overhead, record.overheadMs);
    if (record.firstTokenMs !== undefined) addTo(second.firstToken, record.firstTokenMs);
    if (record.usage !== undefined) {
      second.tokens += record.usage.total;
      if (record.isEstimated === true) second.estimatedTokens += record.usage.total;
      second.outputTokens += record.usage.output ?? 0;
    }
    if (record.provider === undefined) return;
    let counts = second.providers.get(record.provider);
    if (counts === undefined) second.providers.set(record.provider, counts = [0, 0]);
    counts[0]++;
    if (concern === "operator") counts[1]++;
    // A call that was not forwarded says nothing about the provider's latency.
    if (record.calledMs === undefined) return;
    (this.#times[at % TIMED_SECONDS] ??= new SecondTimes()).add(at, record.provider, record);
  }

  /**
   * Reads the exchanges of some seconds, and the state of the gateway.
   *
   * @param from The first second, since 1970
   * @param to The second after the last
   * @param isBrief True to omit the exchanges themselves
   */
  readPart(gateway: WatchedGateway, from: number, to: number, isBrief = false): LivePart {
    const isWanted = ({ at }: Second) => at >= from && at < to;
    const replicasOf = (name: string) =>
      gateway.replicas.filter(({ provider }) => provider === name).map(toLiveReplica);
    const timesOf = (at: number) => {
      const times = this.#times[at % TIMED_SECONDS];
      return times?.at === at ? times.toJson() : {};
    };
    return {
      since: this.#since,
      openExchanges: gateway.openExchanges,
      openStreams: gateway.openStreams,
      providers: this.#providers.map(([name, provider]) => ({
        name,
        hosts: provider.hosts,
        replicas: replicasOf(name),
      })),
      seconds: this.#seconds.filter(isWanted)
        .sort((one, other) => one.at - other.at)
        .map((second) => second.toJson(timesOf(second.at))),
      exchanges: isBrief ? [] : this.#exchanges.within(from, to, REPORTED_EXCHANGES),
    };
  }

  /** Finds a page of the stored exchanges, the newest first. */
  find(query: ExchangeQuery): ExchangePage {
    return this.#exchanges.find(query);
  }
}

/**
 * Delay from the end of a second to its report, so that the report has exchanges of the last
 * moment. Milliseconds.
 */
const REPORT_DELAY_MS = 20;

/**
 * Returns the feed as server-sent events, one per second. The reader pulls: a slow reader receives
 * several seconds in one event.
 *
 * @param read Reads the report of the seconds from `from` up to but without `to`
 * @param onEnd Called once, when the reader cancels
 * @returns An endless stream of events
 */
export function createLiveEvents(
  read: (from: number, to: number) => Promise<unknown>,
  clock: Clock,
  onEnd: () => void,
): ByteSource {
  const encoder = new TextEncoder();
  const secondNow = () => Math.floor((clock.now() - REPORT_DELAY_MS) / 1000);
  let from = secondNow() - KEPT_SECONDS + 1;
  let isOver = false;
  let wake = (): void => {};
  const untilNext = () =>
    new Promise<void>((resolve) => {
      const cancel = clock.timer(1000 - (clock.now() - REPORT_DELAY_MS) % 1000, resolve);
      wake = () => {
        cancel();
        resolve();
      };
    });
  return {
    async read() {
      while (!isOver && secondNow() <= from) {
        from = Math.min(from, secondNow()); // if the clock was set back
        await untilNext();
      }
      if (isOver) return undefined;
      const to = secondNow();
      const report = await read(from, to);
      from = to;
      return encoder.encode(`data: ${JSON.stringify(report)}\n\n`);
    },
    cancel() {
      if (isOver) return;
      isOver = true;
      wake();
      onEnd();
    },
  };
}
