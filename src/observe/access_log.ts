/**
 * One line for each exchange: what it was, how it ended, what it took. It is made of the closed books alone, which
 * hold no key, no prompt and no query.
 *
 * A slow or broken reader of the log costs lines, which are counted, and nothing else.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import type { ExchangeRecord } from "../exchange/record.ts";
import type { ExchangeObserver } from "../exchange/observer.ts";

/** Where lines go: calls back when it took them, or could not. Never throws. */
export type WriteLog = (text: string, done: (error: Error | null) => void) => void;

/** How lines look. */
export type LogFormat = "json" | "pretty";

/** Lines leave together, after so long or when they are so many. Milliseconds, characters. */
const FLUSH_MS = 50;
const FLUSH_LENGTH = 262_144;
/** What waits for a reader at most; more is dropped. Characters. */
const MAX_WAITING = 4_000_000;

const toMs = (ms: number | undefined): number | undefined => ms === undefined ? undefined : Math.round(ms * 100) / 100;

let second = NaN;
let upToSecond = "";

/** ISO 8601; lines come many in a second, so what they have in common is kept. */
function toIsoTime(ms: number): string {
  const whole = Math.floor(ms / 1000);
  if (whole !== second) {
    upToSecond = new Date(ms).toISOString().slice(0, -4);
    second = whole;
  }
  return `${upToSecond}${String(1000 + Math.floor(ms) - whole * 1000).slice(1)}Z`;
}

/** @returns One JSON object without a line end */
export function toJsonLine(record: ExchangeRecord): string {
  const { usage } = record;
  return JSON.stringify({
    time: toIsoTime(record.startedAt),
    id: record.id,
    key: record.keyId,
    provider: record.provider,
    replica: record.replica,
    operation: record.operation,
    model: record.model,
    stream: record.stream,
    status: record.status,
    outcome: record.outcome,
    code: record.code,
    cause: record.cause,
    retryCause: record.retryCause,
    limit: record.limit,
    observedLimit: record.observedLimit,
    bytesIn: record.bytesIn,
    bytesOut: record.bytesOut,
    overheadMs: toMs(record.overheadMs),
    firstByteMs: toMs(record.firstByteMs),
    durationMs: toMs(record.durationMs),
    inputTokens: usage?.input,
    outputTokens: usage?.output,
    tokens: usage?.total,
    retries: record.retries,
  });
}

/** @returns A line for a person */
export function toPrettyLine(record: ExchangeRecord): string {
  const { startedAt, status, outcome, code, cause, provider, operation, model, stream, keyId, usage } = record;
  const words = [
    toIsoTime(startedAt).slice(11, 23),
    String(status),
    `${code ?? outcome}${cause === undefined ? "" : ` (${cause})`}`,
    provider,
    model ?? operation,
    stream === true ? "stream" : undefined,
    `${Math.round(record.durationMs)} ms`,
    record.firstByteMs === undefined ? undefined : `(first byte ${Math.round(record.firstByteMs)} ms)`,
    usage === undefined ? undefined : `${usage.total} tokens`,
    keyId === undefined ? undefined : `key ${keyId}`,
    record.id,
  ];
  return words.filter((word) => word !== undefined).join("  ");
}

/** The log. */
export class AccessLog implements ExchangeObserver {
  readonly #format: (record: ExchangeRecord) => string;
  readonly #write: WriteLog;
  readonly #clock: Clock;
  #waiting = "";
  #lines = 0;
  #isWriting = false;
  #isScheduled = false;
  #isDue = false;
  #dropped = 0;
  #untold = 0;

  /**
   * @param format How lines look
   * @param write Where they go
   * @param clock Where times come from
   */
  constructor(format: LogFormat, write: WriteLog, clock: Clock) {
    this.#format = format === "json" ? toJsonLine : toPrettyLine;
    this.#write = write;
    this.#clock = clock;
  }

  /** Lines that nobody took, since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  settled(record: ExchangeRecord): void {
    if (this.#waiting.length > MAX_WAITING) return this.#drop(1);
    this.#waiting += `${this.#format(record)}\n`;
    this.#lines++;
    if (this.#waiting.length >= FLUSH_LENGTH) this.flush();
    else if (!this.#isScheduled) {
      this.#isScheduled = true;
      this.#clock.timer(FLUSH_MS, () => {
        this.#isScheduled = false;
        this.flush();
      });
    }
  }

  /** Hands on what waits; while the last lines are still on their way, as soon as they are taken. */
  flush(): void {
    this.#isDue = this.#isWriting;
    if (this.#isWriting || this.#waiting === "") return;
    const lines = this.#lines;
    const text = this.#untold === 0
      ? this.#waiting
      : `${this.#waiting}${
        JSON.stringify({ time: new Date(this.#clock.now()).toISOString(), dropped: this.#untold })
      }\n`;
    this.#isWriting = true;
    this.#waiting = "";
    this.#lines = this.#untold = 0;
    this.#write(text, (error) => {
      this.#isWriting = false;
      if (error !== null) this.#drop(lines);
      if (this.#isDue) this.flush(); // what came since waits for its time: a write a line would cost more than the line
    });
  }

  /** Waits until what was logged is handed on, but not for a reader that takes nothing. @param ms How long, milliseconds */
  async close(ms: number): Promise<void> {
    const deadline = this.#clock.monotonic() + ms;
    this.flush();
    while ((this.#isWriting || this.#waiting !== "") && this.#clock.monotonic() < deadline) {
      await new Promise<void>((resolve) => this.#clock.timer(5, resolve));
    }
  }

  #drop(lines: number): void {
    this.#dropped += lines;
    this.#untold += lines;
  }
}
