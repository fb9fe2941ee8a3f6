/**
 * The ring of settled exchanges: the last 10,000 of a process.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";
import { createTest } from "./exchange_filter.ts";
import {
  compareCursors,
  type ExchangeCursor,
  type ExchangePage,
  type ExchangeQuery,
} from "./exchange_page.ts";
import { KEPT_EXCHANGES, type LiveExchange } from "./live_report.ts";

/** Rows that one query looks at: some milliseconds of work. */
const MAX_LOOKED_AT = 2000;
/**
 * Difference between the times of exchanges that settle in the same moment, so that each position is
 * unique. Milliseconds.
 */
const TICK_MS = 2 ** -10;

interface Row {
  readonly exchange: LiveExchange;
  /** Second in which it ended by the clock, which may have gone back. */
  readonly second: number;
}

/**
 * Copies what operators see of a record, so that nothing else that it refers to is kept. The fields
 * are listed, since to take the others out of a copy costs 2 µs (Node 26, 2026-11-26).
 */
function toLiveExchange(record: ExchangeRecord, settledAt: number): LiveExchange {
  return {
    settledAt,
    id: record.id,
    startedAt: record.startedAt,
    durationMs: record.durationMs,
    calledMs: record.calledMs,
    firstByteMs: record.firstByteMs,
    firstTokenMs: record.firstTokenMs,
    overheadMs: record.overheadMs,
    outcome: record.outcome,
    status: record.status,
    code: record.code,
    cause: record.cause,
    retryCause: record.retryCause,
    provider: record.provider,
    keyId: record.keyId,
    keyName: record.keyName,
    usesHeldKey: record.usesHeldKey,
    team: record.team,
    attribution: record.attribution,
    run: record.run,
    repeats: record.repeats,
    operation: record.operation,
    genAi: record.genAi,
    isMetered: record.isMetered,
    model: record.model,
    stream: record.stream,
    bytesIn: record.bytesIn,
    bytesOut: record.bytesOut,
    retries: record.retries,
    replica: record.replica,
    usage: record.usage,
    isEstimated: record.isEstimated,
    limit: record.limit,
    observedLimit: record.observedLimit,
  };
}

/** The ring. */
export class ExchangeRing {
  readonly #rows: Row[] = [];
  /** Number of exchanges that were ever added. */
  #added = 0;
  #settledAt = 0;

  /**
   * Adds an exchange.
   *
   * @param settledAt Wall clock at its end, milliseconds since 1970
   */
  add(record: ExchangeRecord, settledAt: number): void {
    // A clock that goes back must not change the order.
    this.#settledAt = settledAt > this.#settledAt ? settledAt : this.#settledAt + TICK_MS;
    this.#rows[this.#added++ % KEPT_EXCHANGES] = {
      exchange: toLiveExchange(record, this.#settledAt),
      second: Math.floor(settledAt / 1000),
    };
  }

  /**
   * Returns the newest exchanges that settled within some seconds.
   *
   * @param from The first second, since 1970
   * @param to The second after the last
   * @returns In the order in which they settled
   */
  within(from: number, to: number, limit: number): LiveExchange[] {
    const found: LiveExchange[] = [];
    for (const { exchange, second } of this.#backFrom(this.#added)) {
      if (found.length === limit) break;
      if (second >= from && second < to) found.push(exchange);
    }
    return found.reverse();
  }

  /**
   * Finds exchanges.
   *
   * @returns A page. It can have fewer exchanges than the limit, or none, even if there are more:
   * the work for one page is limited
   */
  find({ filter, limit, before }: ExchangeQuery): ExchangePage {
    const isWanted = createTest(filter);
    const exchanges: LiveExchange[] = [];
    let reached: ExchangeCursor | undefined;
    let looked = 0;
    for (const { exchange } of this.#backFrom(this.#endBefore(before))) {
      if (exchanges.length === limit || looked++ === MAX_LOOKED_AT) return { exchanges, reached };
      if (isWanted(exchange)) exchanges.push(exchange);
      reached = { settledAt: exchange.settledAt, id: exchange.id };
    }
    return { exchanges };
  }

  /** The rows that were added before the one of a number, the newest first. */
  *#backFrom(end: number): Generator<Row> {
    const first = this.#added - this.#rows.length;
    for (let number = end - 1; number >= first; number--) {
      const row = this.#rows[number % KEPT_EXCHANGES];
      if (row !== undefined) yield row;
    }
  }

  /** Returns the number of the oldest row that is not older than a position. */
  #endBefore(cursor: ExchangeCursor | undefined): number {
    if (cursor === undefined) return this.#added;
    let end = this.#added;
    for (const { exchange } of this.#backFrom(this.#added)) {
      if (compareCursors(cursor, exchange) < 0) break;
      end--;
    }
    return end;
  }
}
