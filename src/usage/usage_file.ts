/**
 * Usage in a file next to the file of keys, so that it survives a restart. Several gateways can
 * share the file. Each adds its own counts.
 *
 * @module
 */
import { setImmediate } from "node:timers/promises";
import { Buffer } from "node:buffer";
import { LazyFile, type LazyFileOptions, WrittenByLaterVersion } from "../storage/lazy_file.ts";
import type { SharedFile } from "../storage/shared_file.ts";
import { DEFAULT_RETENTION, type UsageBounds } from "../config/usage.ts";
import {
  type UsageBatch,
  type UsageRange,
  type UsageRow,
  type UsageStore,
  UsageUnavailable,
} from "./counts.ts";
import { LaterVersion, readLine, toFirstLine, toLine, type UsageLineRead } from "./usage_lines.ts";
import { inParts, UsageBook } from "./usage_memory.ts";

/** Options of the usage file. */
export interface FileUsageOptions extends LazyFileOptions {
  /** Models that always have their own row. */
  readonly listed: ReadonlySet<string>;
  /** Times for which usage is kept. Default: the built-in times. */
  readonly keep?: UsageBounds;
}

const ALL = { from: -Infinity, to: Infinity } as const;
/** Byte that ends a line. */
const LINE_END = 10;

/** Writes one row per line, in turns, so that a large file does not delay streams. */
async function* toLines(book: UsageBook, unknown: readonly string[]): AsyncIterable<Uint8Array> {
  const first = toFirstLine(book);
  if (first !== undefined) yield Buffer.from(`${first}\n`);
  for (const step of ["hour", "day"] as const) {
    for (const rows of inParts(book.read({ step, ...ALL }))) {
      yield Buffer.from(rows.map((row) => `${toLine(step, row)}\n`).join(""));
      await setImmediate();
    }
  }
  for (const lines of inParts(unknown)) {
    yield Buffer.from(lines.map((line) => `${line}\n`).join(""));
  }
}

/**
 * Yields the lines of a file, some at a time. The last one has no end if the file was truncated.
 */
function* linesOf(
  bytes: Buffer,
): Iterable<readonly { readonly text: string; readonly isCut: boolean }[]> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const cut = function* () {
    for (let start = 0; start < bytes.length;) {
      const found = bytes.indexOf(LINE_END, start);
      const end = found < 0 ? bytes.length : found;
      yield { line: bytes.subarray(start, end), isCut: found < 0 };
      start = end + 1;
    }
  };
  for (const part of inParts(cut())) {
    yield part.map(({ line, isCut }) => ({
      text: isCut ? line.toString() : decoder.decode(line),
      isCut,
    }));
  }
}

/** Usage in a file. */
export class FileUsage implements UsageStore {
  readonly backend = "file";
  readonly #file: LazyFile;
  readonly #path: string;
  readonly #options: FileUsageOptions;
  /** Usage in the file, and unwritten usage. */
  #book: UsageBook;
  /** Unwritten usage, in hours only. */
  #unwritten: UsageBook;
  /** Lines of the file that only later versions know. */
  #unknown: readonly string[] = [];

  constructor(file: SharedFile, options: FileUsageOptions) {
    this.#options = options;
    this.#book = this.#newBook();
    this.#unwritten = this.#newBook();
    const content = {
      merge: (bytes: Buffer) => this.#merge(bytes),
      toParts: () => toLines(this.#book, this.#unknown),
      written: () => void (this.#unwritten = this.#newBook()),
    };
    this.#file = new LazyFile(file, content, options);
    this.#path = file.path;
  }

  /**
   * Reads the file.
   *
   * @throws {ConfigError} If the file can't be read or is broken
   */
  start(): Promise<void> {
    return this.#file.start();
  }

  // One write at a time: usage that is counted during a write is not part of it.
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
      throw new UsageUnavailable(cause instanceof Error ? cause.message : "Cannot read usage", {
        cause,
      });
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

  #newBook(): UsageBook {
    const { listed, keep = DEFAULT_RETENTION } = this.#options;
    return new UsageBook(listed, keep);
  }

  async #merge(bytes: Buffer): Promise<void> {
    const book = this.#newBook();
    const unknown: string[] = [];
    for (const lines of linesOf(bytes)) {
      for (const { text, isCut } of lines) {
        const read = text === "" ? undefined : this.#read(text, isCut);
        if (read?.step === "unknown") unknown.push(read.line);
        else if (read !== undefined && read.step !== "version") book.addTo(read.step, read.row);
      }
      await setImmediate();
    }
    for (const rows of inParts(this.#unwritten.read({ step: "hour", ...ALL }))) {
      for (const row of rows) book.add(row);
      await setImmediate();
    }
    book.forget(this.#options.clock.now());
    this.#book = book;
    this.#unknown = unknown;
  }

  /** Reads a line. A truncated line is skipped and reported. The other lines are intact. */
  #read(text: string, isCut: boolean): UsageLineRead | undefined {
    try {
      return readLine(text);
    } catch (cause) {
      if (cause instanceof LaterVersion) throw new WrittenByLaterVersion();
      if (!isCut) throw cause;
      const text = "The file of usage ends within a line: that line is left out";
      this.#options.report(text, { event: "file_unreadable", file: this.#path });
      return undefined;
    }
  }
}
