/**
 * Counts settled exchanges for the history, minute by minute. The counts are passed to a store
 * every ten seconds, so that no exchange waits for the store, and a worker passes them to its
 * supervisor every second. A crash loses the last seconds.
 *
 * @module
 */
import { concernOf, nameEnd } from "../../errors/outcomes.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { TokenUsage } from "../../exchange/billing.ts";
import type { ExchangeObserver, RestatedCall } from "../../exchange/observer.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import { inParts } from "../usage_memory.ts";
import { HistoryBook } from "./book.ts";
import {
  FIRST_DURATION,
  HISTORY_DURATION_BOUNDS,
  HISTORY_STEP_MS,
  type HistoryBatch,
  type HistoryNames,
  type HistoryRange,
  type HistoryRow,
  type HistoryStore,
} from "./rows.ts";

/** Default interval at which counts are passed to the store. Milliseconds. */
const FLUSH_MS = 10_000;
/** Number of rows per batch: Redis needs about a millisecond for them. */
const ROWS_A_BATCH = 100;
/** Units of a cost, which are 10^-24 of the currency, in 10^-9 of the currency. */
const COST_UNIT = 10n ** 15n;

/** Computes the costs of calls. */
export interface HistoryCosts {
  /** Returns the cost of a call; `undefined` for a call without usage. */
  of(record: {
    readonly usage?: TokenUsage | undefined;
    readonly provider?: string | undefined;
    readonly model?: string | undefined;
    readonly startedAt: number;
    readonly durationMs: number;
  }): { readonly amount?: bigint | undefined } | undefined;
}

const toUnits = (cost: { readonly amount?: bigint | undefined } | undefined): number =>
  cost?.amount === undefined ? 0 : Number(cost.amount / COST_UNIT);

const minuteOf = (at: number): number => at - at % HISTORY_STEP_MS.minute;

/** Returns the sums of one call, in the order of `HISTORY_SUMS`. */
function toSums(record: ExchangeRecord, costs: HistoryCosts): number[] {
  const { calledMs, firstByteMs, durationMs, usage } = record;
  const isForwarded = calledMs !== undefined;
  const sums = [
    1,
    isForwarded ? 1 : 0,
    isForwarded ? Math.round(durationMs) : 0,
    firstByteMs === undefined ? 0 : 1,
    Math.round(firstByteMs ?? 0),
    usage?.total ?? 0,
    usage?.output ?? 0,
    usage === undefined ? 0 : toUnits(costs.of(record)),
  ];
  if (!isForwarded) return sums;
  const found = HISTORY_DURATION_BOUNDS.findIndex((bound) => durationMs <= bound);
  const place = FIRST_DURATION + (found < 0 ? HISTORY_DURATION_BOUNDS.length : found);
  while (sums.length < place) sums.push(0);
  sums.push(1);
  return sums;
}

/** Options of {@link HistoryMeter}. */
export interface HistoryMeterOptions {
  readonly store: HistoryStore;
  readonly clock: Clock;
}

/** Counts exchanges for the history. */
export class HistoryMeter {
  readonly #clock: Clock;
  #store: HistoryStore;
  /** Counts that wait for the store. After each failure of the store, the oldest are deleted. */
  #waiting = new HistoryBook();
  /** Batches that the store has not accepted yet. */
  #leaving: HistoryRow[][] = [];
  /** The batch in transit. It stays the same until the store has accepted it. */
  #batch: HistoryBatch | undefined;
  #batches = 0;
  #flushing: Promise<void> = Promise.resolve();
  #isScheduled = false;
  #isClosed = false;
  #cancelFlush = (): void => {};

  constructor({ store, clock }: HistoryMeterOptions) {
    this.#store = store;
    this.#clock = clock;
  }

  /** Returns the observer that counts under a configuration's prices. */
  under(costs: HistoryCosts): ExchangeObserver {
    return {
      settled: (record) => this.#settled(record, costs),
      restated: (call) => this.#restated(call, costs),
    };
  }

  /** Adds the counts of another process. */
  add(rows: readonly HistoryRow[]): void {
    for (const row of rows) this.#waiting.addTo("minute", row);
    if (rows.length > 0) this.#flushLater();
  }

  /** Reads the rows of a range, including counts that are not yet in the store. */
  async *read(range: HistoryRange): AsyncIterable<readonly HistoryRow[]> {
    await this.#flush();
    yield* this.#store.read(range);
  }

  /** Passes waiting counts to the store, then switches to another one. */
  async moveTo(store: HistoryStore): Promise<void> {
    await (this.#flushing = this.#flush().then(() => void (this.#store = store)));
  }

  /** Passes all remaining counts to the store. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelFlush();
    await this.#flush();
    await this.#store.close();
  }

  #settled(record: ExchangeRecord, costs: HistoryCosts): void {
    const { keyId, team, provider, startedAt, durationMs } = record;
    if (keyId === undefined && provider === undefined) return;
    const at = minuteOf(Math.floor(startedAt + durationMs));
    // A call that is refused before its key is known has none. A team is optional.
    const names = toNames(keyId, team, provider);
    const end = nameEnd(record);
    const concern = concernOf(record);
    this.add([{ at, ...names, end, concern, sums: toSums(record, costs) }]);
  }

  /** Corrects the tokens and the cost of an earlier call, in its own minute. */
  #restated({ estimate, stated, ...call }: RestatedCall, costs: HistoryCosts): void {
    const { keyId, team, provider, startedAt, durationMs } = call;
    const costOf = (usage: TokenUsage | undefined) => toUnits(costs.of({ ...call, usage }));
    const sums = [
      ...[0, 0, 0, 0, 0],
      stated.total - (estimate?.total ?? 0),
      (stated.output ?? 0) - (estimate?.output ?? 0),
      costOf(stated) - costOf(estimate),
    ];
    const at = minuteOf(Math.floor(startedAt + durationMs));
    this.add([{ at, ...toNames(keyId, team, provider), end: "ok", concern: "nobody", sums }]);
  }

  #flushLater(): void {
    if (this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    this.#cancelFlush = this.#clock.timer(this.#store.flushMs ?? FLUSH_MS, () => {
      this.#isScheduled = false;
      void this.#flush();
    });
  }

  #flush(): Promise<void> {
    return this.#flushing = this.#flushing.then(() => this.#handOn());
  }

  /** Passes waiting counts to the store, batch by batch. Never rejects. */
  async #handOn(): Promise<void> {
    if (this.#leaving.length === 0) {
      this.#leaving = Array.from(inParts(this.#waiting.takeMinutes(), ROWS_A_BATCH));
    }
    for (let rows = this.#leaving[0]; rows !== undefined; rows = this.#leaving[0]) {
      this.#batch ??= { number: ++this.#batches, rows };
      try {
        await this.#store.add(this.#batch);
      } catch {
        this.#waiting.forgetOldest(); // a store can fail for days
        return this.#flushLater();
      }
      this.#batch = undefined;
      this.#leaving.shift();
    }
  }
}

function toNames(
  key: string = "",
  team: string = "",
  provider: string = "",
): Pick<HistoryNames, "key" | "team" | "provider"> {
  return { key, team, provider };
}
