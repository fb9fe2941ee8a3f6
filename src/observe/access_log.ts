/**
 * The access log: one line for each exchange with its facts, outcome, times and tokens. A line
 * contains only facts of the exchange's record, which has no key, no prompt and no query.
 *
 * If the log's reader is slow or broken, lines are dropped and counted. Nothing else is affected.
 *
 * @module
 */
import { type CallCost, formatCost, toNumber } from "../config/cost.ts";
import type { Clock } from "../exchange/clock.ts";
import type { UsagePart } from "../exchange/billing.ts";
import type { ExchangeRecord } from "../exchange/record.ts";
import type { ExchangeObserver } from "../exchange/observer.ts";
import { type AuditEntry, toAuditJson, toAuditText } from "./audit_line.ts";
import type { CallCosts } from "./call_costs.ts";

/** Writes text to the log. Calls `done` after the write succeeded or failed. Never throws. */
export type WriteLog = (text: string, done: (error: Error | null) => void) => void;

/** Format of the log's lines. `debug` is JSON that also names the withheld headers. */
export type LogFormat = "json" | "debug" | "pretty";

/** Lines are written in batches: after this time, or at this length. Milliseconds, characters. */
const FLUSH_MS = 50;
const FLUSH_LENGTH = 262_144;
/** Limit of the waiting text. Further lines are dropped. Characters. */
const MAX_WAITING = 4_000_000;

const toMs = (ms: number | undefined): number | undefined =>
  ms === undefined ? undefined : Math.round(ms * 100) / 100;

let second = NaN;
let upToSecond = "";

/**
 * Formats a time as ISO 8601. The part up to the second is cached, because many lines share a
 * second: V8 formats a date with `vsnprintf`, which took about 1 % of a plain call on Node
 * (2026-11-22, CPU profile).
 */
function toIsoTime(ms: number): string {
  const whole = Math.floor(ms / 1000);
  if (whole !== second) {
    upToSecond = new Date(ms).toISOString().slice(0, -4);
    second = whole;
  }
  return `${upToSecond}${String(1000 + Math.floor(ms) - whole * 1000).slice(1)}Z`;
}

/** Leaves out what the caller chose: a line's only texts of callers are the model and attribution. */
const withoutChoices = ({ tariff, ...part }: UsagePart) => ({
  ...part,
  tariff: { ...tariff, asked: undefined },
});

/** The cost of a call in a line. */
export interface LoggedCost extends CallCost {
  readonly currency: string;
}

/** Returns the fields of a cost. `unpriced` has the amounts that the cost leaves out. */
function toCostFields({ amount, classes, unpriced, currency }: LoggedCost) {
  const costs = Object.entries(classes).map(([name, cost]) => [name, toNumber(cost)]);
  const isKnown = amount !== undefined && (amount > 0n || unpriced === undefined);
  return {
    ...(isKnown && { cost: toNumber(amount), currency, costs: Object.fromEntries(costs) }),
    unpriced,
  };
}

/** Formats a record as one JSON object, without a line end. */
export function toJsonLine(record: ExchangeRecord, cost?: LoggedCost): string {
  const { usage, withheld } = record;
  const details = withheld === undefined ? undefined : usage; // only in lines for debugging
  return JSON.stringify({
    time: toIsoTime(record.startedAt),
    id: record.id,
    key: record.keyId,
    keyName: record.keyName,
    team: record.team,
    attribution: record.attribution,
    run: record.run,
    repeats: record.repeats,
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
    firstTokenMs: toMs(record.firstTokenMs),
    durationMs: toMs(record.durationMs),
    inputTokens: usage?.input,
    outputTokens: usage?.output,
    tokens: usage?.total,
    estimated: record.isEstimated,
    heldKey: record.usesHeldKey,
    ...(cost && toCostFields(cost)),
    retries: record.retries,
    withheld,
    parts: details?.parts?.map(withoutChoices),
    statedCost: details?.statedCost,
  });
}

/** Number of decimals of a cost in a line for a person. */
const SHOWN_DECIMALS = 6;

/** Formats a cost for a person. `>=` marks a lower bound. */
function toPrettyCost({ amount, unpriced, currency }: LoggedCost): string | undefined {
  if (amount === undefined || (amount === 0n && unpriced !== undefined)) return undefined;
  const [whole = "0", decimals = ""] = formatCost(amount).split(".");
  const kept = decimals.slice(0, SHOWN_DECIMALS).replace(/0+$/, "");
  const isTiny = amount > 0n && whole === "0" && kept === "";
  const text = isTiny ? "<0.000001" : kept === "" ? whole : `${whole}.${kept}`;
  if (unpriced === undefined) return `${text} ${currency}`;
  return `${isTiny ? ">0" : `>=${text}`} ${currency}`;
}

/** Formats a record for a person, without a line end. */
export function toPrettyLine(record: ExchangeRecord, cost?: LoggedCost): string {
  const {
    startedAt,
    status,
    outcome,
    code,
    cause,
    provider,
    operation,
    model,
    stream,
    keyId,
    keyName,
    team,
    attribution = {},
    run,
    repeats,
    usage,
  } = record;
  const words = [
    toIsoTime(startedAt).slice(11, 23),
    String(status),
    `${code ?? outcome}${cause === undefined ? "" : ` (${cause})`}`,
    provider,
    operation,
    model,
    stream === true ? "stream" : undefined,
    `${Math.round(record.durationMs)} ms`,
    record.firstByteMs === undefined
      ? undefined
      : `(first byte ${Math.round(record.firstByteMs)} ms)`,
    usage === undefined
      ? undefined
      : `${usage.total} tokens${record.isEstimated === true ? " (estimated)" : ""}`,
    cost && toPrettyCost(cost),
    keyId === undefined ? undefined : `key ${keyName ?? keyId}`,
    team === undefined ? undefined : `team ${team}`,
    ...Object.entries(attribution).map(([name, value]) => `${name} ${value}`),
    run === undefined ? undefined : `run ${run}`,
    repeats === undefined ? undefined : `(same body ${repeats} times in a row)`,
    record.id,
  ];
  return words.filter((word) => word !== undefined).join("  ");
}

/** The access log. */
export class AccessLog implements ExchangeObserver {
  readonly wantsWithheld: boolean;
  readonly #format: (record: ExchangeRecord, cost?: LoggedCost) => string;
  readonly #write: WriteLog;
  readonly #clock: Clock;
  #waiting = "";
  #lines = 0;
  #isWriting = false;
  #isScheduled = false;
  #isDue = false;
  #dropped = 0;
  /** Number of dropped lines that the log has not reported yet. */
  #unreported = 0;

  constructor(format: LogFormat, write: WriteLog, clock: Clock) {
    this.#format = format === "pretty" ? toPrettyLine : toJsonLine;
    this.wantsWithheld = format === "debug";
    this.#write = write;
    this.#clock = clock;
  }

  /** Number of lines dropped since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Creates the observer that adds costs by the prices of a configuration. */
  under(costs: CallCosts): ExchangeObserver {
    const { currency } = costs;
    const settled = (record: ExchangeRecord) => {
      const cost = costs.of(record);
      this.settled(record, cost && { ...cost, currency });
    };
    return { settled, wantsWithheld: this.wantsWithheld };
  }

  settled(record: ExchangeRecord, cost?: LoggedCost): void {
    if (this.#waiting.length > MAX_WAITING) return this.#drop(1);
    this.#waiting += `${this.#format(record, cost)}\n`;
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

  /**
   * Writes a line about an operator's change at once, regardless of the number of waiting lines.
   */
  audit(entry: AuditEntry): void {
    this.write(this.#format === toPrettyLine ? toAuditText(entry) : toAuditJson(entry));
  }

  /** Writes a line at once, regardless of the number of waiting lines. */
  write(line: string): void {
    this.#waiting += `${line}\n`;
    this.#lines++;
    this.flush();
  }

  /** Writes the waiting lines. If a write is running, they are written when it ends. */
  flush(): void {
    this.#isDue = this.#isWriting;
    if (this.#isWriting || this.#waiting === "") return;
    const lines = this.#lines;
    if (this.#unreported > 0) {
      this.#waiting += `${
        JSON.stringify({ time: toIsoTime(this.#clock.now()), dropped: this.#unreported })
      }\n`;
    }
    const text = this.#waiting;
    this.#isWriting = true;
    this.#waiting = "";
    this.#lines = this.#unreported = 0;
    this.#write(text, (error) => {
      this.#isWriting = false;
      if (error !== null) this.#drop(lines);
      // Lines that arrived during the write wait for the timer: a write costs more than a line.
      if (this.#isDue) this.flush();
    });
  }

  /** Waits until all lines are written, at most `ms` milliseconds. */
  async close(ms: number): Promise<void> {
    const deadline = this.#clock.monotonic() + ms;
    const hasLines = () => this.#isWriting || this.#waiting !== "";
    this.flush();
    while (hasLines() && this.#clock.monotonic() < deadline) {
      await new Promise<void>((resolve) => this.#clock.timer(5, resolve));
    }
  }

  #drop(lines: number): void {
    this.#dropped += lines;
    this.#unreported += lines;
  }
}
