/**
 * The silence of a provider while its answer is relayed. Time in which the caller does not read is
 * not counted.
 *
 * @module
 */
import type { StreamScanner } from "../dialects/dialect.ts";
import type { ErrorCode } from "../errors/codes.ts";

/** Deadlines for the silence of a provider. Milliseconds. */
export interface SilenceDeadlines {
  /**
   * The longest time without payload; before the first event of a stream, the longest time without
   * any byte.
   */
  readonly idleMs: number;
  /** The longest time until the first event of a stream. */
  readonly firstEventMs: number;
}

/** Measures the silence of a provider. Times are monotonic, in milliseconds. */
export class ProviderSilence {
  readonly #deadlines: SilenceDeadlines;
  /** Time since which bytes are awaited; `undefined` while the caller does not read. */
  #since: number | undefined;
  /** Time that was waited since the last bytes, before the caller paused. */
  #earlierMs = 0;
  /** Time that was waited between the last payload and the last bytes. */
  #payloadMs = 0;

  constructor(deadlines: SilenceDeadlines) {
    this.#deadlines = deadlines;
  }

  /** True while bytes of the provider are awaited. */
  get isAwaited(): boolean {
    return this.#since !== undefined;
  }

  /** Awaits bytes from now on. */
  resume(now: number): void {
    this.#since = now;
  }

  /** Does not await bytes, because the caller does not read. */
  pause(now: number): void {
    this.#earlierMs = this.#bytesMs(now);
    this.#since = undefined;
  }

  /** Forgets the time that was waited before a pause. */
  restart(): void {
    this.#earlierMs = 0;
  }

  /** Notes that bytes have arrived. */
  noteBytes(now: number): void {
    this.#payloadMs += this.#bytesMs(now);
    this.#earlierMs = 0;
    if (this.#since !== undefined) this.#since = now;
  }

  /** Notes that the last bytes contained payload. */
  notePayload(): void {
    this.#payloadMs = 0;
  }

  /**
   * Returns the time left until the earliest deadline, and its error. Before the first event of a
   * stream, any byte ends the silence, because providers send comments while a call is queued.
   *
   * @param scanner Watches the stream; `undefined` for a plain answer
   */
  due(
    now: number,
    scanner: Pick<StreamScanner, "payloadCount"> | undefined,
  ): { readonly leftMs: number; readonly code: ErrorCode } {
    const { idleMs, firstEventMs } = this.#deadlines;
    const bytesMs = this.#bytesMs(now);
    const silentMs = this.#payloadMs + bytesMs;
    if (scanner === undefined || scanner.payloadCount > 0) {
      return { leftMs: idleMs - silentMs, code: "upstream_idle_timeout" };
    }
    const isFirstEvent = firstEventMs - silentMs <= idleMs - bytesMs;
    return isFirstEvent
      ? { leftMs: firstEventMs - silentMs, code: "upstream_first_event_timeout" }
      : { leftMs: idleMs - bytesMs, code: "upstream_idle_timeout" };
  }

  /** Returns the time waited since the last bytes. */
  #bytesMs(now: number): number {
    return this.#earlierMs + (this.#since === undefined ? 0 : now - this.#since);
  }
}
