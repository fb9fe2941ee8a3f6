/**
 * The ring of settled exchanges: the last 10,000 in a fixed amount of memory, regardless of the
 * length of their names.
 *
 * A row is a sequence of numbers. Known words, such as outcomes and names of the configuration, are
 * stored as numbers of a dictionary. Ids and models are stored as characters in a second ring,
 * because callers choose them or they differ in each row. No object of an exchange stays alive.
 * 10,000 records take 5.5 MB, and 10.3 MB as an array of objects (Node 26, 2026-11-24).
 *
 * @module
 */
import type { ExchangeRecord, TokenUsage } from "../../exchange/record.ts";
import { createTest } from "./exchange_filter.ts";
import {
  comparePlaces,
  type ExchangePage,
  type ExchangePlace,
  type ExchangeQuery,
} from "./exchange_page.ts";
import { KEPT_EXCHANGES, type LiveExchange } from "./live_report.ts";

/** Number of cells in a row. */
const CELLS = 34;
/**
 * Indexes of cells that are read separately: the place in the order, the second by the wall clock,
 * and the start of the text.
 */
const [SETTLED_AT, SECOND, TEXT_AT] = [0, 1, 2];
/** Characters for all rows: 104 per row. If names are longer on average, fewer rows are kept. */
const TEXT_CHARS = 2 ** 20;
/** Rows that one query examines: some milliseconds of work. */
const MAX_LOOKED_AT = 2000;
/**
 * Difference between the times of exchanges that settle in the same moment, so that each place is
 * unique. Milliseconds.
 */
const TICK_MS = 2 ** -10;

/** Memory of a ring: 4.8 MB. */
export const RING_BYTES: number = KEPT_EXCHANGES * CELLS * 8 + TEXT_CHARS * 2;

const toCell = (flag: boolean | undefined): number => flag === undefined ? NaN : Number(flag);
const toValue = (cell: number): number | undefined => Number.isNaN(cell) ? undefined : cell;
const toFlag = (cell: number): boolean | undefined => Number.isNaN(cell) ? undefined : cell === 1;

/** Returns an object without the members that are `undefined`. */
function compact(all: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

function toUsage(cells: readonly (number | undefined)[]): TokenUsage | undefined {
  const [total, input, output, cached, reasoning] = cells;
  if (total === undefined) return undefined;
  return { total, ...compact({ input, output, cached, reasoning }) };
}

/** The ring. */
export class ExchangeRing {
  readonly #cells = new Float64Array(KEPT_EXCHANGES * CELLS);
  readonly #text = new Uint16Array(TEXT_CHARS);
  /** The dictionary. Number 0 means no word. */
  readonly #words: (string | undefined)[] = [undefined];
  readonly #numbers = new Map<string, number>();
  /** Numbers of rows and characters written since the start. */
  #rows = 0;
  #chars = 0;
  #settledAt = 0;

  /**
   * Adds an exchange.
   *
   * @param settledAt Wall clock at its end, milliseconds since 1970
   */
  add(record: ExchangeRecord, settledAt: number): void {
    const cells = this.#cells;
    const { usage } = record;
    let at = (this.#rows % KEPT_EXCHANGES) * CELLS;
    // The order must not change if the clock is set back.
    this.#settledAt = settledAt > this.#settledAt ? settledAt : this.#settledAt + TICK_MS;
    cells[at++] = this.#settledAt;
    cells[at++] = Math.floor(settledAt / 1000);
    cells[at++] = this.#chars;
    cells[at++] = this.#write(record.id);
    cells[at++] = this.#write(record.keyId);
    cells[at++] = this.#write(record.model);
    cells[at++] = record.startedAt;
    cells[at++] = record.durationMs;
    cells[at++] = record.calledMs ?? NaN;
    cells[at++] = record.firstByteMs ?? NaN;
    cells[at++] = record.firstTokenMs ?? NaN;
    cells[at++] = record.overheadMs;
    cells[at++] = record.status;
    cells[at++] = record.bytesIn;
    cells[at++] = record.bytesOut;
    cells[at++] = record.retries;
    cells[at++] = record.replica ?? NaN;
    cells[at++] = usage?.total ?? NaN;
    cells[at++] = usage?.input ?? NaN;
    cells[at++] = usage?.output ?? NaN;
    cells[at++] = usage?.cached ?? NaN;
    cells[at++] = usage?.reasoning ?? NaN;
    cells[at++] = toCell(record.stream);
    cells[at++] = toCell(record.isMetered);
    cells[at++] = toCell(record.isEstimated);
    cells[at++] = this.#numberOf(record.outcome);
    cells[at++] = this.#numberOf(record.code);
    cells[at++] = this.#numberOf(record.cause);
    cells[at++] = this.#numberOf(record.retryCause);
    cells[at++] = this.#numberOf(record.provider);
    cells[at++] = this.#numberOf(record.operation);
    cells[at++] = this.#numberOf(record.genAi);
    cells[at++] = this.#numberOf(record.limit);
    cells[at] = this.#numberOf(record.observedLimit);
    this.#rows++;
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
    for (let row = this.#rows - 1; this.#isKept(row) && found.length < limit; row--) {
      const second = this.#cellOf(row, SECOND);
      if (second >= from && second < to) found.push(this.#read(row));
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
    let reached: ExchangePlace | undefined;
    let row = before === undefined ? this.#rows - 1 : this.#rowBefore(before);
    for (let looked = 0; this.#isKept(row); row--, looked++) {
      if (exchanges.length === limit || looked === MAX_LOOKED_AT) return { exchanges, reached };
      const exchange = this.#read(row);
      if (isWanted(exchange)) exchanges.push(exchange);
      reached = { settledAt: exchange.settledAt, id: exchange.id };
    }
    return { exchanges };
  }

  #cellOf(row: number, cell: number): number {
    return this.#cells[(row % KEPT_EXCHANGES) * CELLS + cell] ?? NaN;
  }

  /** True if a row and its text have not been overwritten. */
  #isKept(row: number): boolean {
    if (row < 0 || row < this.#rows - KEPT_EXCHANGES) return false;
    return this.#cellOf(row, TEXT_AT) + TEXT_CHARS >= this.#chars;
  }

  /** Returns the newest row that is older than the place. */
  #rowBefore(place: ExchangePlace): number {
    let [low, high] = [Math.max(0, this.#rows - KEPT_EXCHANGES), this.#rows];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#cellOf(middle, SETTLED_AT) < place.settledAt) low = middle + 1;
      else high = middle;
    }
    // At most one row has exactly the time of the place. The place can be in another process.
    const isSame = low < this.#rows && this.#cellOf(low, SETTLED_AT) === place.settledAt;
    return isSame && comparePlaces(place, this.#read(low)) < 0 ? low : low - 1;
  }

  #write(text: string | undefined): number {
    if (text === undefined) return -1;
    for (let index = 0; index < text.length; index++) {
      this.#text[(this.#chars + index) % TEXT_CHARS] = text.charCodeAt(index);
    }
    this.#chars += text.length;
    return text.length;
  }

  #numberOf(word: string | undefined): number {
    if (word === undefined) return 0;
    let number = this.#numbers.get(word);
    if (number === undefined) this.#numbers.set(word, number = this.#words.push(word) - 1);
    return number;
  }

  #textOf(at: number, length: number): string {
    const codes = Array.from({ length }, (_, index) => this.#text[(at + index) % TEXT_CHARS] ?? 0);
    return String.fromCharCode(...codes);
  }

  /** Reads a row, in the order in which its cells were written. */
  #read(row: number): LiveExchange {
    let at = (row % KEPT_EXCHANGES) * CELLS;
    const number = () => this.#cells[at++] ?? NaN;
    const value = () => toValue(number());
    const flag = () => toFlag(number());
    const word = () => this.#words[number()];
    const [settledAt] = [number(), number()];
    let textAt = number();
    const text = () => {
      const length = number();
      if (length < 0) return undefined;
      textAt += length;
      return this.#textOf(textAt - length, length);
    };
    const all = {
      settledAt,
      id: text(),
      keyId: text(),
      model: text(),
      startedAt: number(),
      durationMs: number(),
      calledMs: value(),
      firstByteMs: value(),
      firstTokenMs: value(),
      overheadMs: number(),
      status: number(),
      bytesIn: number(),
      bytesOut: number(),
      retries: number(),
      replica: value(),
      usage: toUsage([value(), value(), value(), value(), value()]),
      stream: flag(),
      isMetered: flag(),
      isEstimated: flag(),
      outcome: word(),
      code: word(),
      cause: word(),
      retryCause: word(),
      provider: word(),
      operation: word(),
      genAi: word(),
      limit: word(),
      observedLimit: word(),
    };
    return compact(all) as unknown as LiveExchange; // add() wrote it from a record
  }
}
