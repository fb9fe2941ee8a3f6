/**
 * Usage in a file beside the file of keys, so that it survives a restart. Several gateways may share the file: each
 * adds what it has counted itself.
 *
 * @module
 */
import { setImmediate } from "node:timers/promises";
import { Buffer } from "node:buffer";
import * as v from "valibot";
import type { Clock } from "../exchange/clock.ts";
import { LazyFile } from "../storage/lazy_file.ts";
import type { SharedFile } from "../storage/shared_file.ts";
import {
  UNNAMED_OPERATION,
  USAGE_COUNTS,
  type UsageBatch,
  type UsageCounts,
  type UsageRange,
  type UsageRow,
  type UsageStore,
  UsageUnavailable,
} from "./counts.ts";
import { inParts, UsageBook } from "./usage_memory.ts";

/** Options of the usage file. */
export interface FileUsageOptions {
  readonly clock: Clock;
  /** Function that is told in one line when the file can't be written. */
  readonly report: (text: string) => void;
  /** Models that always have a name of their own. */
  readonly listed: ReadonlySet<string>;
}

const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
/** One line: hour or day, its start, key, provider, model, counts, operation. The last one is missing in old files. */
const LineSchema = v.pipe(
  v.tupleWithRest([
    v.picklist(["hour", "day"]),
    count,
    v.string(),
    v.string(),
    v.string(),
    v.pipe(
      v.array(count),
      v.length(USAGE_COUNTS.length),
      // its entries are those of USAGE_COUNTS
      v.transform((counts) =>
        Object.fromEntries(USAGE_COUNTS.map((name, index) => [name, counts[index]])) as UsageCounts
      ),
    ),
  ], v.string()),
  v.maxLength(7),
);

const ALL = { from: -Infinity, to: Infinity } as const;

/** Writes one row a line, in turns: a large file must not keep streams waiting. */
async function* toLines(book: UsageBook): AsyncIterable<Uint8Array> {
  for (const step of ["hour", "day"] as const) {
    for (const rows of inParts(book.read({ step, ...ALL }))) {
      const lines = rows.map(({ at, key, provider, model, operation, counts }) =>
        JSON.stringify([step, at, key, provider, model, USAGE_COUNTS.map((name) => counts[name]), operation])
      );
      yield Buffer.from(`${lines.join("\n")}\n`);
      await setImmediate();
    }
  }
}

/** Usage in a file. */
export class FileUsage implements UsageStore {
  readonly backend = "file";
  readonly #file: LazyFile;
  readonly #options: FileUsageOptions;
  /** Usage in the file, and usage that is not written yet. */
  #book: UsageBook;
  /** Usage that is not written yet: hours only. */
  #unwritten: UsageBook;

  /**
   * @param file The file
   * @param options Its options
   */
  constructor(file: SharedFile, options: FileUsageOptions) {
    const { listed } = options;
    this.#options = options;
    this.#book = new UsageBook(listed);
    this.#unwritten = new UsageBook(listed);
    const content = {
      merge: (bytes: Buffer) => this.#merge(bytes),
      toParts: () => toLines(this.#book),
      written: () => void (this.#unwritten = new UsageBook(listed)),
    };
    this.#file = new LazyFile(file, content, options);
  }

  /**
   * Reads the file.
   *
   * @throws {ConfigError} When the file can't be read or is broken
   */
  start(): Promise<void> {
    return this.#file.start();
  }

  // In turn: what is counted during a write is no part of it.
  add({ rows }: UsageBatch): Promise<void> {
    return this.#file.inTurn(() => {
      for (const row of rows) {
        this.#book.add(row);
        this.#unwritten.addTo("hour", row);
      }
      const now = this.#options.clock.now();
      this.#book.forget(now);
      this.#unwritten.forget(now);
      this.#file.changed();
    });
  }

  async *read(range: UsageRange): AsyncIterable<readonly UsageRow[]> {
    await this.#file.catchUp().catch((cause) => {
      throw new UsageUnavailable(cause instanceof Error ? cause.message : "Cannot read usage", { cause });
    });
    const book = this.#book;
    for (const rows of inParts(book.read(range))) {
      yield rows;
      await setImmediate();
    }
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  async #merge(bytes: Buffer): Promise<void> {
    const book = new UsageBook(this.#options.listed);
    for (const lines of inParts(new TextDecoder("utf-8", { fatal: true }).decode(bytes).split("\n"))) {
      for (const line of lines) {
        if (line === "") continue;
        const [step, at, key, provider, model, counts, operation = UNNAMED_OPERATION] = v.parse(
          LineSchema,
          JSON.parse(line),
        );
        book.addTo(step, { at, key, provider, model, operation, counts });
      }
      await setImmediate();
    }
    for (const row of this.#unwritten.read({ step: "hour", ...ALL })) book.add(row);
    book.forget(this.#options.clock.now());
    this.#book = book;
  }
}
