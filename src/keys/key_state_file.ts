/**
 * The state of keys that survives a restart, in a file beside the file of keys: when each key was last used, and how
 * much of each budget is spent. Written lazily: a crash loses the last seconds.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import * as v from "valibot";
import { ConfigError } from "../config/config.ts";
import type { Clock } from "../exchange/clock.ts";
import { codeOf, type SharedFile, Turns } from "../storage/shared_file.ts";
import { KeyStoreUnavailable } from "./key_store.ts";

/** Interval between two writes, if something has changed. Milliseconds. */
const WRITE_MS = 5000;
/** Pause after a write, as a multiple of the time that it took: slow writes happen less often. */
const REST_FACTOR = 20;
/** Entries that are written at once, and characters that are read at once. */
const ENTRIES = 500;
const CHARACTERS = 32_000;
/** Text before, between and after the entries of a file that the gateway itself wrote, one entry a line. */
const [HEAD, MIDDLE, TAIL] = ['{"used":{\n', '\n},"budgets":[\n', "\n]}\n"];

/** Port: where the store of keys in a file notes their last uses. */
export interface KeyState {
  /** Notes that a key was used, milliseconds since 1970. */
  used(id: string, at: number): void;
  /** When keys were last used, by id. */
  lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>>;
}

const count = v.pipe(v.number(), v.integer(), v.minValue(0));
const StateSchema = v.object({
  used: v.custom<object>((value) => typeof value === "object" && value !== null),
  budgets: v.array(v.object({ subject: v.string(), used: count, until: count })),
});

/** The part of its budget that one subject has spent. */
export interface Spent {
  /** Name of the subject. */
  readonly subject: string;
  readonly used: number;
  /** When its period ends, milliseconds since 1970. */
  readonly until: number;
}

/** Port: the limiter, which counts budgets. */
export interface Budgets {
  /** Returns what has been spent. */
  budgets(): Iterable<Spent>;
  /** Restores what {@link budgets} returned. */
  restore(spent: Iterable<Spent>): void;
}

/** Keeps the later period of two budgets of one subject, and the larger sum within one period. */
function keepLater(budgets: Map<string, Spent>, spent: Spent): void {
  const { until = 0, used = -1 } = budgets.get(spent.subject) ?? {};
  if (spent.until > until || (spent.until === until && spent.used > used)) budgets.set(spent.subject, spent);
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

/** Parses the content of a file, in parts if it has one entry a line. */
function* parse(text: string): Iterable<unknown> {
  const middle = text.lastIndexOf(MIDDLE);
  if (!text.startsWith(HEAD) || middle < 0 || !text.endsWith(TAIL)) return yield JSON.parse(text);
  for (const part of cut(text, HEAD.length, middle)) yield { used: JSON.parse(`{${part}}`), budgets: [] };
  const budgets = cut(text, middle + MIDDLE.length, text.length - TAIL.length);
  for (const part of budgets) yield { used: {}, budgets: JSON.parse(`[${part}]`) };
}

/** Writes one entry a line, in turns. */
async function* toLines<T>(entries: Iterable<T>, toLine: (entry: T) => string): AsyncIterable<Uint8Array> {
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

/** The state in a file of its own. */
export class KeyStateFile implements KeyState {
  readonly #file: SharedFile;
  readonly #clock: Clock;
  readonly #report: (text: string) => void;
  readonly #limiter: Budgets | undefined;
  /** All last uses that are known here or from the file. */
  readonly #used = new Map<string, number>();
  #budgets = new Map<string, Spent>();
  /** Version of the file that they already include. */
  #version = "";
  #hasChanged = false;
  #isFailing = false;
  #isClosed = false;
  #writing: Promise<void> = Promise.resolve();
  #cancelWrite = (): void => {};

  /**
   * @param file The file, beside that of the keys
   * @param options The clock; a function that is told in one line when the file can't be written; the limiter, if any
   */
  constructor(
    file: SharedFile,
    options: { clock: Clock; report: (text: string) => void; limiter?: Budgets | undefined },
  ) {
    this.#file = file;
    this.#clock = options.clock;
    this.#report = options.report;
    this.#limiter = options.limiter;
  }

  /**
   * Reads the file, and writes it from then on.
   *
   * @throws {ConfigError} When the file can't be read or is broken
   */
  async start(): Promise<void> {
    try {
      await this.#read();
    } catch (error) {
      const message = error instanceof Error ? error.message : "cannot read the file";
      throw new ConfigError([{ path: "keys.file", message, source: this.#file.path }]);
    }
    this.#limiter?.restore(this.#budgets.values());
    this.#writeLater(WRITE_MS);
  }

  used(id: string, at: number): void {
    this.#keepUsed(id, at);
    this.#hasChanged = true;
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    await this.#read();
    const times = new Map<string, number>();
    for (const id of ids) {
      const at = this.#used.get(id);
      if (at !== undefined) times.set(id, at);
    }
    return times;
  }

  /** Writes what is left to write. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelWrite();
    await this.#writing;
    await this.#write();
  }

  #keepUsed(id: string, at: number): void {
    if (at > (this.#used.get(id) ?? 0)) this.#used.set(id, at);
  }

  #writeLater(ms: number): void {
    if (this.#isClosed) return;
    this.#cancelWrite = this.#clock.timer(ms, () => {
      const startedAt = this.#clock.monotonic();
      this.#writing = this.#write();
      void this.#writing.finally(() => {
        this.#writeLater(Math.max(WRITE_MS, REST_FACTOR * (this.#clock.monotonic() - startedAt)));
      });
    });
  }

  async #write(): Promise<void> {
    if (!this.#hasChanged) return;
    this.#hasChanged = false;
    try {
      await this.#file.change(async (replace) => {
        await this.#read(); // other gateways may share the file
        const turns = new Turns();
        const now = this.#clock.now();
        const budgets = new Map<string, Spent>();
        for (const source of [this.#budgets.values(), this.#limiter?.budgets() ?? []]) {
          for (const spent of source) {
            if (spent.until > now) keepLater(budgets, spent);
            if (turns.isOver) await turns.rest();
          }
        }
        this.#budgets = budgets;
        await replace(this.#toParts());
        this.#version = await this.#file.look();
      });
      this.#isFailing = false;
    } catch (error) {
      this.#hasChanged = true;
      if (!this.#isFailing) this.#report(error instanceof Error ? error.message : "the state of keys can't be written");
      this.#isFailing = true;
    }
  }

  async *#toParts(): AsyncIterable<Uint8Array> {
    yield Buffer.from(HEAD);
    yield* toLines(this.#used, ([id, at]) => `${JSON.stringify(id)}:${at}`);
    yield Buffer.from(MIDDLE);
    yield* toLines(this.#budgets, ([, spent]) => JSON.stringify(spent));
    yield Buffer.from(TAIL);
  }

  /** Takes over the content of the file if it has changed; a missing file changes nothing. */
  async #read(): Promise<void> {
    const version = await this.#file.look();
    if (version === "" || version === this.#version) return;
    const text = await this.#file.read().then((bytes) => bytes.toString("utf8"), (cause) => {
      throw new KeyStoreUnavailable(`Cannot read ${this.#file.path}: ${codeOf(cause)}`, { cause });
    });
    try {
      const turns = new Turns();
      for (const part of parse(text)) {
        const { used, budgets } = v.parse(StateSchema, part);
        for (const [id, at] of Object.entries(used)) this.#keepUsed(id, v.parse(count, at));
        for (const spent of budgets) keepLater(this.#budgets, spent);
        if (turns.isOver) await turns.rest();
      }
    } catch (cause) {
      throw new KeyStoreUnavailable(
        `Cannot read ${this.#file.path}: it is broken. Remove it to begin its counts anew`,
        { cause },
      );
    }
    this.#version = version;
  }
}
