/**
 * A file of counts next to the file of keys. It is written lazily, so that no exchange waits for
 * it. A crash loses the last seconds. Several gateways can share it. Before each write, they merge
 * the changes of the others.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import type { Buffer } from "node:buffer";
import { ConfigError } from "../config/config.ts";
import type { Clock } from "../exchange/clock.ts";
import { codeOf } from "../errors/system_error.ts";
import { FileUnavailable, type SharedFile } from "./shared_file.ts";

/** Default minimum interval between a change and its write. Milliseconds. */
const WRITE_MS = 5000;
/** Pause after a write, as a multiple of its duration, so that slow writes are less frequent. */
const REST_FACTOR = 20;

/** A later version wrote the file in a form that this one does not know. */
export class WrittenByLaterVersion extends Error {
  override readonly name = "WrittenByLaterVersion";
}

/** The counts in memory. */
export interface LazyContent {
  /**
   * Merges the content of the file, and keeps changes that are not written yet.
   *
   * @throws {WrittenByLaterVersion} For a file that this version must not change
   * @throws {Error} For a broken file
   */
  merge(bytes: Buffer): Promise<void>;
  /** Returns the new content of the file. */
  toParts(): AsyncIterable<Uint8Array>;
  /** Called when the parts are in the file. */
  written?(): void;
}

/** Options of a {@link LazyFile}. */
export interface LazyFileOptions {
  readonly clock: Clock;
  /** Receives an event if the file cannot be written, once until it can be written again. */
  readonly report: ReportEvent;
  /** Called at each write that failed, for metrics. */
  readonly failed?: (() => void) | undefined;
  /** Interval between a change and its write, milliseconds. Default: 5 s. */
  readonly writeMs?: number | undefined;
}

/** A file that is written some seconds after a change. */
export class LazyFile {
  readonly #file: SharedFile;
  readonly #content: LazyContent;
  readonly #clock: Clock;
  readonly #report: ReportEvent;
  readonly #failed: LazyFileOptions["failed"];
  readonly #writeMs: number;
  /** Version of the file that the content already includes. */
  #version = "";
  #hasChanged = false;
  #isFailing = false;
  #isScheduled = false;
  #isClosed = false;
  #restsUntil = 0;
  /** End of the last task in the queue. */
  #working: Promise<unknown> = Promise.resolve();
  #cancelWrite = (): void => {};

  constructor(file: SharedFile, content: LazyContent, options: LazyFileOptions) {
    this.#file = file;
    this.#content = content;
    this.#clock = options.clock;
    this.#report = options.report;
    this.#failed = options.failed;
    this.#writeMs = options.writeMs ?? WRITE_MS;
  }

  /**
   * Reads the file when a gateway starts.
   *
   * @throws {ConfigError} If the file cannot be read or is broken
   */
  async start(): Promise<void> {
    try {
      await this.catchUp();
    } catch (error) {
      const message = error instanceof Error ? error.message : "cannot read the file";
      throw new ConfigError([{ path: "keys.file", message, source: this.#file.path }]);
    }
  }

  /**
   * Merges the content of the file if it has changed. A missing file has no effect.
   *
   * @throws {FileUnavailable} If the file cannot be read or is broken
   */
  catchUp(): Promise<void> {
    return this.inTurn(() => this.#catchUp());
  }

  /** Runs a task while the file is neither read nor written. */
  inTurn<T>(act: () => T | Promise<T>): Promise<T> {
    const done = this.#working.then(act);
    this.#working = done.catch(() => {});
    return done;
  }

  /** Notes that the content has changed, so that it is written. */
  changed(): void {
    this.#hasChanged = true;
    if (this.#isScheduled || this.#isClosed) return;
    this.#isScheduled = true;
    const restMs = this.#restsUntil - this.#clock.monotonic();
    this.#cancelWrite = this.#clock.timer(
      Math.max(this.#writeMs, restMs),
      () =>
        void this.inTurn(() => this.#write()).then(() => {
          this.#isScheduled = false;
          if (this.#hasChanged) this.changed();
        }),
    );
  }

  /** Writes the remaining changes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelWrite();
    await this.inTurn(() => this.#write());
  }

  /** Writes the file. Never rejects. */
  async #write(): Promise<void> {
    if (!this.#hasChanged) return;
    this.#hasChanged = false;
    const startedAt = this.#clock.monotonic();
    try {
      await this.#file.change(async (replace) => {
        await this.#catchUp(); // other gateways can share the file
        await replace(this.#content.toParts());
        this.#content.written?.();
        this.#version = await this.#file.look();
      });
      this.#isFailing = false;
    } catch (error) {
      this.#hasChanged = true;
      this.#failed?.();
      if (!this.#isFailing) {
        const { path } = this.#file;
        const text = error instanceof Error ? error.message : `Cannot write ${path}`;
        this.#report(text, { event: "file_not_written", file: path });
      }
      this.#isFailing = true;
    }
    const endedAt = this.#clock.monotonic();
    this.#restsUntil = endedAt + REST_FACTOR * (endedAt - startedAt);
  }

  async #catchUp(): Promise<void> {
    const { path } = this.#file;
    const version = await this.#file.look();
    if (version === "" || version === this.#version) return;
    const bytes = await this.#file.read().catch((cause) => {
      throw new FileUnavailable(`Cannot read ${path}: ${codeOf(cause)}`, { cause });
    });
    try {
      await this.#content.merge(bytes);
    } catch (cause) {
      const why = cause instanceof WrittenByLaterVersion
        ? "a later version wrote it. Run that version, or configure another file for this one"
        : "it is broken. Remove it to start its counts at zero";
      throw new FileUnavailable(`Cannot read ${path}: ${why}`, { cause });
    }
    this.#version = version;
  }
}
