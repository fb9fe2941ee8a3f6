/**
 * Usage in a file beside the file of keys, so that it survives a restart. Written lazily: a crash loses the last
 * seconds. Several gateways may share the file: each adds what it has counted itself.
 *
 * @module
 */
import { setImmediate } from "node:timers/promises";
import { Buffer } from "node:buffer";
import * as v from "valibot";
import { ConfigError } from "../config/config.ts";
import type { Clock } from "../exchange/clock.ts";
import type { SharedFile } from "../storage/shared_file.ts";
import {
  USAGE_COUNTS,
  type UsageBatch,
  type UsageRange,
  type UsageRow,
  type UsageStore,
  UsageUnavailable,
} from "./counts.ts";
import { inParts, UsageBook } from "./usage_memory.ts";

/** Interval between a change and its write, at least. Milliseconds. */
const WRITE_MS = 5000;
/** Pause after a write, as a multiple of the time that it took: slow writes happen less often. */
const REST_FACTOR = 20;

/** Options of the usage file. */
export interface FileUsageOptions {
  readonly clock: Clock;
  /** Function that is told in one line when the file can't be written. */
  readonly report: (text: string) => void;
  /** Models that always have a name of their own. */
  readonly listed: ReadonlySet<string>;
}

const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
/** One line: hour or day, its start, key, provider, model, counts. */
const LineSchema = v.strictTuple([
  v.picklist(["hour", "day"]),
  count,
  v.string(),
  v.string(),
  v.string(),
  v.pipe(v.array(count), v.length(USAGE_COUNTS.length)),
]);

const ALL = { from: -Infinity, to: Infinity } as const;

/** Writes one row a line, in turns: a large file must not keep streams waiting. */
async function* toLines(book: UsageBook): AsyncIterable<Uint8Array> {
  for (const step of ["hour", "day"] as const) {
    for (const rows of inParts(book.read({ step, ...ALL }))) {
      const lines = rows.map(({ at, key, provider, model, counts }) =>
        JSON.stringify([step, at, key, provider, model, counts])
      );
      yield Buffer.from(`${lines.join("\n")}\n`);
      await setImmediate();
    }
  }
}

/** Usage in a file. */
export class FileUsage implements UsageStore {
  readonly place = "file";
  readonly #file: SharedFile;
  readonly #options: FileUsageOptions;
  /** Usage in the file, and usage that is not written yet. */
  #book: UsageBook;
  /** Usage that is not written yet: hours only. */
  #unwritten: UsageBook;
  /** Version of the file that the book already includes. */
  #version = "";
  #isFailing = false;
  #isScheduled = false;
  #isClosed = false;
  #restsUntil = 0;
  /** End of the last task in the queue. One runs at a time: what is counted during a write is no part of it. */
  #working: Promise<unknown> = Promise.resolve();
  #cancelWrite = (): void => {};

  /**
   * @param file The file
   * @param options Its options
   */
  constructor(file: SharedFile, options: FileUsageOptions) {
    this.#file = file;
    this.#options = options;
    this.#book = new UsageBook(options.listed);
    this.#unwritten = new UsageBook(options.listed);
  }

  /**
   * Reads the file.
   *
   * @throws {ConfigError} When the file can't be read or is broken
   */
  async start(): Promise<void> {
    try {
      await this.#inTurn(() => this.#catchUp());
    } catch (error) {
      const message = error instanceof Error ? error.message : "cannot read the file";
      throw new ConfigError([{ path: "keys.file", message, source: this.#file.path }]);
    }
  }

  add({ rows }: UsageBatch): Promise<void> {
    return this.#inTurn(() => {
      for (const row of rows) {
        this.#book.add(row);
        this.#unwritten.addTo("hour", row);
      }
      const now = this.#options.clock.now();
      this.#book.forget(now);
      this.#unwritten.forget(now);
      this.#writeLater();
    });
  }

  async *read(range: UsageRange): AsyncIterable<readonly UsageRow[]> {
    await this.#inTurn(() => this.#catchUp());
    const book = this.#book;
    for (const rows of inParts(book.read(range))) {
      yield rows;
      await setImmediate();
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelWrite();
    await this.#inTurn(() => this.#write());
  }

  #inTurn<T>(act: () => T | Promise<T>): Promise<T> {
    const done = this.#working.then(act);
    this.#working = done.catch(() => {});
    return done;
  }

  #writeLater(): void {
    if (this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    const { clock } = this.#options;
    this.#cancelWrite = clock.timer(Math.max(WRITE_MS, this.#restsUntil - clock.monotonic()), () => {
      this.#isScheduled = false;
      void this.#inTurn(() => this.#write());
    });
  }

  /** Writes the file. Never rejects. */
  async #write(): Promise<void> {
    if (this.#unwritten.rows === 0) return;
    const { clock, report, listed } = this.#options;
    const startedAt = clock.monotonic();
    try {
      await this.#file.change(async (replace) => {
        await this.#catchUp(); // other gateways may share the file
        await replace(toLines(this.#book));
        this.#unwritten = new UsageBook(listed);
        this.#version = await this.#file.look();
      });
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) report(error instanceof Error ? error.message : "usage can't be written");
      this.#isFailing = true;
      this.#writeLater();
    }
    const endedAt = clock.monotonic();
    this.#restsUntil = endedAt + REST_FACTOR * (endedAt - startedAt);
  }

  /** Takes over the content of the file if it has changed; a missing file changes nothing. */
  async #catchUp(): Promise<void> {
    const { path } = this.#file;
    const version = await this.#file.look();
    if (version === "" || version === this.#version) return;
    const bytes = await this.#file.read().catch((cause) => {
      throw new UsageUnavailable(`Cannot read ${path}`, { cause });
    });
    const book = new UsageBook(this.#options.listed);
    try {
      for (const lines of inParts(new TextDecoder("utf-8", { fatal: true }).decode(bytes).split("\n"))) {
        for (const line of lines) {
          if (line === "") continue;
          const [step, at, key, provider, model, counts] = v.parse(LineSchema, JSON.parse(line));
          book.addTo(step, { at, key, provider, model, counts });
        }
        await setImmediate();
      }
    } catch (cause) {
      throw new UsageUnavailable(`Cannot read ${path}: it is broken. Remove it to begin its counts anew`, { cause });
    }
    for (const row of this.#unwritten.read({ step: "hour", ...ALL })) book.add(row);
    book.forget(this.#options.clock.now());
    this.#book = book;
    this.#version = version;
  }
}
