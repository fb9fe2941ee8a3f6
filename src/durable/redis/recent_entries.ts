/**
 * The latest entries of a gateway, which a failover of their store can lose. They are kept for a
 * limited time, up to a maximum size.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { SealedEntry } from "../recording_store.ts";

/**
 * Time for which entries are kept. Sentinels agree on another primary within a second or two, with
 * several replicas sometimes later. Milliseconds.
 */
export const RECENT_MS = 10_000;
/** Maximum size of the kept entries of all recordings. Bytes. */
const MAX_BYTES = 32 * 1024 * 1024;
/** Memory of an entry in addition to its ciphertext. Bytes. */
const ENTRY_BYTES = 300;

/** The latest entries of one recording. */
export class RecentLog {
  /** In order. */
  readonly entries: SealedEntry[] = [];
  /** True while these are all entries of the recording. */
  isWhole = true;
}

interface Kept {
  readonly log: RecentLog;
  readonly bytes: number;
  readonly at: number;
  next: Kept | undefined;
}

/** The latest entries of all recordings. The oldest are dropped first. */
export class RecentEntries {
  readonly #clock: Clock;
  #oldest: Kept | undefined;
  #newest: Kept | undefined;
  #bytes = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Adds an entry that is stored. */
  add(entry: SealedEntry, log: RecentLog): void {
    const bytes = entry.sealed.byteLength + ENTRY_BYTES;
    const kept = { log, bytes, at: this.#clock.monotonic(), next: undefined };
    log.entries.push(entry);
    if (this.#newest !== undefined) this.#newest.next = kept;
    this.#newest = kept;
    this.#oldest ??= kept;
    this.#bytes += bytes;
    this.trim();
  }

  /** Drops entries that are too old, or too many. */
  trim(): void {
    const from = this.#clock.monotonic() - RECENT_MS;
    const isDue = ({ at }: Kept) => at < from || this.#bytes > MAX_BYTES;
    while (this.#oldest !== undefined && isDue(this.#oldest)) {
      const { log, bytes, next } = this.#oldest;
      log.entries.shift();
      log.isWhole = false;
      this.#bytes -= bytes;
      this.#oldest = next;
    }
    if (this.#oldest === undefined) this.#newest = undefined;
  }
}
