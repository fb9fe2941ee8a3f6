/**
 * The history in a file next to the file of keys, so that it survives a restart. Several gateways
 * can share it. A line is `["minute", start, [names], [sums]]`, or `"hour"`. A later version that
 * changes more begins the file with `["version", N]`.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import type { Clock } from "../../exchange/clock.ts";
import { LazyFile, type LazyFileOptions, WrittenByLaterVersion } from "../../storage/lazy_file.ts";
import type { SharedFile } from "../../storage/shared_file.ts";
import { UsageUnavailable } from "../counts.ts";
import { inParts } from "../usage_memory.ts";
import { HistoryBook } from "./book.ts";
import {
  type HistoryBatch,
  type HistoryRange,
  type HistoryRow,
  type HistoryStep,
  type HistoryStore,
  readNames,
  writeNames,
} from "./rows.ts";

/** Interval between a change and its write: the file can be large. Milliseconds. */
const WRITE_MS = 60_000;
const ALL = { from: -Infinity, to: Infinity } as const;

function toLine(step: HistoryStep, row: HistoryRow): string {
  return `["${step}",${row.at},${writeNames(row)},${JSON.stringify(row.sums)}]\n`;
}

/** Reads a line; `undefined` for a damaged one, which costs a chart one point. */
function readLine(line: string): { step: HistoryStep; row: HistoryRow } | undefined {
  let content: unknown;
  try {
    content = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (!Array.isArray(content)) return undefined;
  const [step, at, written, sums]: unknown[] = content;
  if (step === "version") throw new WrittenByLaterVersion();
  const names = readNames(written);
  const isStep = step === "minute" || step === "hour";
  const isRow = isStep && Number.isSafeInteger(at) && Array.isArray(sums) &&
    sums.every(Number.isSafeInteger);
  if (!isRow || names === undefined) return undefined;
  return { step, row: { at: Number(at), ...names, sums } };
}

/** The history in a file. */
export class FileHistory implements HistoryStore {
  readonly #file: LazyFile;
  readonly #clock: Clock;
  /** Rows of the file, and unwritten ones. */
  #book = new HistoryBook();
  /** Unwritten rows, of minutes only. */
  #unwritten = new HistoryBook();

  /** @param options See {@link LazyFileOptions} */
  constructor(file: SharedFile, options: Omit<LazyFileOptions, "writeMs">) {
    this.#clock = options.clock;
    const content = {
      merge: (bytes: Buffer) => this.#merge(bytes),
      toParts: () => this.#toParts(),
      written: () => void (this.#unwritten = new HistoryBook()),
    };
    this.#file = new LazyFile(file, content, { ...options, writeMs: WRITE_MS });
  }

  /**
   * Reads the file.
   *
   * @throws {ConfigError} If the file can't be read
   */
  start(): Promise<void> {
    return this.#file.start();
  }

  // One write at a time: rows that are added during a write are not part of it.
  add({ rows }: HistoryBatch): Promise<void> {
    return this.#file.inTurn(() => {
      for (const row of rows) {
        this.#book.add(row);
        this.#unwritten.addTo("minute", row);
      }
      this.#book.forget(this.#clock.now());
      this.#unwritten.forgetOldest();
      this.#file.changed();
    });
  }

  async *read(range: HistoryRange): AsyncIterable<readonly HistoryRow[]> {
    await this.#file.catchUp().catch((cause) => {
      const message = cause instanceof Error ? cause.message : "Cannot read the history";
      throw new UsageUnavailable(message, { cause });
    });
    for (const rows of inParts(this.#book.read(range))) {
      yield rows;
      await setImmediate();
    }
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  async *#toParts(): AsyncIterable<Uint8Array> {
    for (const step of ["minute", "hour"] as const) {
      for (const rows of inParts(this.#book.read({ step, ...ALL }))) {
        yield Buffer.from(rows.map((row) => toLine(step, row)).join(""));
        await setImmediate();
      }
    }
  }

  async #merge(bytes: Buffer): Promise<void> {
    const book = new HistoryBook();
    for (const lines of inParts(bytes.toString("utf8").split("\n"))) {
      for (const line of lines) {
        const read = readLine(line);
        if (read !== undefined) book.addTo(read.step, read.row);
      }
      await setImmediate();
    }
    for (const row of this.#unwritten.read({ step: "minute", ...ALL })) book.add(row);
    book.forget(this.#clock.now());
    this.#book = book;
  }
}
