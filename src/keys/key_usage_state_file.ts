/**
 * The state that survives a restart, in a file next to the file of keys: the last use of each key,
 * the spent part of each budget, and the number of gateways that share limits.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { Clock } from "../exchange/clock.ts";
import { LazyFile, type LazyFileOptions, WrittenByLaterVersion } from "../storage/lazy_file.ts";
import { type SharedFile, Turns } from "../storage/shared_file.ts";
import { isOfLaterForm } from "../storage/stored_forms.ts";

/** Number of entries that are written at once, and of characters that are read at once. */
const ENTRIES = 500;
const CHARACTERS = 32_000;
/**
 * Text before, between and after the entries of a file that the gateway wrote, with one entry per
 * line.
 */
const HEAD = '{"used":{\n';
const MIDDLE = '\n},"budgets":[\n';
const toTail = (gateways: number | undefined) =>
  gateways === undefined ? "\n]}\n" : `\n],"gateways":${gateways}}\n`;
/** Maximum number of characters of the tail. */
const MAX_TAIL = 50;

/** Port: storage of last uses for the store of keys in a file. */
export interface KeyUsageState {
  /** Notes that a key was used, milliseconds since 1970. */
  used(id: string, at: number): void;
  /**
   * Returns when keys were last used, by id.
   *
   * @throws {FileUnavailable} If they cannot be read
   */
  lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>>;
}

const count = v.pipe(v.number(), v.integer(), v.minValue(0));
const gateways = v.optional(v.pipe(v.number(), v.integer(), v.minValue(1)));
const StateSchema = v.object({
  used: v.custom<object>((value) => typeof value === "object" && value !== null),
  budgets: v.array(v.object({ subject: v.string(), used: count, until: count })),
  gateways,
});

/** The part of its budget that one subject has spent. */
export interface StoredBudget {
  /** Name of the subject. */
  readonly subject: string;
  readonly used: number;
  /** End of its period, milliseconds since 1970. */
  readonly until: number;
}

/** Port: the limiter, which counts budgets. */
export interface Budgets {
  /** Returns the spent amounts. */
  budgets(): Iterable<StoredBudget>;
  /** Restores the amounts from {@link budgets}. */
  restoreBudgets(spent: Iterable<StoredBudget>): void;
}

/** Keeps the later period if a subject has two budgets, and the larger sum within one period. */
function keepLater(budgets: Map<string, StoredBudget>, spent: StoredBudget): void {
  const { until = 0, used = -1 } = budgets.get(spent.subject) ?? {};
  const isMore = spent.until === until && spent.used > used;
  if (spent.until > until || isMore) budgets.set(spent.subject, spent);
}

/** Cuts the lines between two positions into parts. */
function* cut(text: string, start: number, end: number): Iterable<string> {
  while (start < end) {
    const comma = text.indexOf(",\n", start + CHARACTERS);
    const stop = comma < 0 || comma > end ? end : comma;
    yield text.slice(start, stop);
    start = stop + 2;
  }
}

/**
 * Parses the content of a file, in parts if it has one entry per line. 100,000 entries at once
 * would need up to half a second.
 */
function* parse(text: string): Iterable<unknown> {
  const middle = text.lastIndexOf(MIDDLE);
  const [tail, number] = /\n\](?:,"gateways":(\d+))?\}\n$/.exec(text.slice(-MAX_TAIL)) ?? [];
  const hasLines = text.startsWith(HEAD) && middle >= 0;
  if (!hasLines || tail === undefined) return yield JSON.parse(text);
  yield { used: {}, budgets: [], gateways: number === undefined ? undefined : Number(number) };
  for (const part of cut(text, HEAD.length, middle)) {
    yield { used: JSON.parse(`{${part}}`), budgets: [] };
  }
  const budgets = cut(text, middle + MIDDLE.length, text.length - tail.length);
  for (const part of budgets) yield { used: {}, budgets: JSON.parse(`[${part}]`) };
}

/** Writes one entry per line, and yields in between. */
async function* toLines<T>(
  entries: Iterable<T>,
  toLine: (entry: T) => string,
): AsyncIterable<Uint8Array> {
  const turns = new Turns();
  let text = "";
  let written = 0;
  for (const entry of entries) {
    text += (written++ === 0 ? "" : ",\n") + toLine(entry);
    if (written % ENTRIES > 0) continue;
    yield Buffer.from(text);
    text = "";
    if (turns.isOver) await turns.rest();
  }
  yield Buffer.from(text);
}

/** The state in a separate file. */
export class FileKeyUsageState implements KeyUsageState {
  readonly #file: LazyFile;
  readonly #clock: Clock;
  readonly #limiter: Budgets | undefined;
  /** All last uses that are known here or from the file. */
  readonly #used = new Map<string, number>();
  #budgets = new Map<string, StoredBudget>();
  #gateways: number | undefined;

  /**
   * @param file The file, next to the file of keys
   * @param options The clock; a function that receives one line if the file cannot be written; the
   * limiter, if any
   */
  constructor(
    file: SharedFile,
    options: LazyFileOptions & { limiter?: Budgets | undefined },
  ) {
    this.#clock = options.clock;
    this.#limiter = options.limiter;
    const content = {
      merge: (bytes: Buffer) => this.#merge(bytes),
      toParts: () => this.#toParts(),
    };
    this.#file = new LazyFile(file, content, options);
  }

  /**
   * Reads the file.
   *
   * @throws {ConfigError} If the file cannot be read or is broken
   */
  async start(): Promise<void> {
    await this.#file.start();
    this.#limiter?.restoreBudgets(this.#budgets.values());
  }

  used(id: string, at: number): void {
    this.#keepUsed(id, at);
    this.#file.changed();
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    await this.#file.catchUp();
    const times = new Map<string, number>();
    for (const id of ids) {
      const at = this.#used.get(id);
      if (at !== undefined) times.set(id, at);
    }
    return times;
  }

  /** The number of gateways that share limits; `undefined` if it is not known. */
  get gateways(): number | undefined {
    return this.#gateways;
  }

  /** Notes the number of gateways that share limits. */
  noteGateways(gateways: number): void {
    if (this.#gateways === gateways) return;
    this.#gateways = gateways;
    this.#file.changed();
  }

  /** Writes the remaining data. */
  async close(): Promise<void> {
    await this.#file.close();
  }

  #keepUsed(id: string, at: number): void {
    if (at > (this.#used.get(id) ?? 0)) this.#used.set(id, at);
  }

  async #merge(bytes: Buffer): Promise<void> {
    const turns = new Turns();
    for (const part of parse(bytes.toString("utf8"))) {
      if (isOfLaterForm(part)) throw new WrittenByLaterVersion();
      const { used, budgets, gateways } = v.parse(StateSchema, part);
      this.#gateways ??= gateways;
      for (const [id, at] of Object.entries(used)) this.#keepUsed(id, v.parse(count, at));
      for (const spent of budgets) keepLater(this.#budgets, spent);
      if (turns.isOver) await turns.rest();
    }
  }

  async *#toParts(): AsyncIterable<Uint8Array> {
    const turns = new Turns();
    const now = this.#clock.now();
    const budgets = new Map<string, StoredBudget>();
    for (const source of [this.#budgets.values(), this.#limiter?.budgets() ?? []]) {
      for (const spent of source) {
        if (spent.until > now) keepLater(budgets, spent);
        if (turns.isOver) await turns.rest();
      }
    }
    this.#budgets = budgets;
    yield Buffer.from(HEAD);
    yield* toLines(this.#used, ([id, at]) => `${JSON.stringify(id)}:${at}`);
    yield Buffer.from(MIDDLE);
    yield* toLines(budgets.values(), (spent) => JSON.stringify(spent));
    yield Buffer.from(toTail(this.#gateways));
  }
}
