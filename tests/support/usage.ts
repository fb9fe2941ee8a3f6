/** Usage for tests: finished exchanges, and their counts. */
import { setImmediate } from "node:timers/promises";
import type { Clock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { type Rest, USAGE_COUNTS, type UsageRow, type UsageStep } from "../../src/usage/counts.ts";

/** Noon of a fixed day. */
export const NOON: number = Date.UTC(2026, 10, 21, 12);
/** Midnight of the same day. */
export const DAY: number = Date.UTC(2026, 10, 21);
/** The whole range of times. */
export const ALL = { from: 0, to: 8.64e15 } as const;

/** A successful chat completion, with the given changes. */
export function exchange(more: Partial<ExchangeRecord> = {}): ExchangeRecord {
  return {
    id: "0b5c",
    startedAt: NOON,
    durationMs: 10,
    overheadMs: 0.1,
    outcome: "ok",
    status: 200,
    provider: "a",
    keyId: "team",
    operation: "chat.completions",
    genAi: "chat",
    isMetered: true,
    model: "gpt-4o",
    bytesIn: 100,
    bytesOut: 2000,
    retries: 0,
    usage: { total: 7, input: 3, output: 4 },
    ...more,
  };
}

/** Lets other work of the process run. */
export const rest: Rest = setImmediate;

/** A clock with a fixed time, whose timers fire on demand. */
export class StillClock implements Clock {
  ms: number = NOON;
  readonly timers: { ms: number; fire: () => void }[] = [];
  now(): number {
    return this.ms;
  }
  monotonic(): number {
    return this.ms;
  }
  timer(ms: number, fire: () => void): () => void {
    this.timers.push({ ms, fire });
    return () => {};
  }
  /** Fires all pending timers. */
  fire(): void {
    for (const { fire } of this.timers.splice(0)) fire();
  }
}

/** Counts by name, without zeros. */
export type Told = Readonly<Record<string, Partial<Record<typeof USAGE_COUNTS[number], number>>>>;

/** The rows of all hours or days, by `key provider model`; rows of different times are added up. */
export async function tell(
  store: {
    read(range: { step: UsageStep; from: number; to: number }): AsyncIterable<readonly UsageRow[]>;
  },
  range: { step?: UsageStep; from?: number; to?: number } = {},
): Promise<Told> {
  const told: Record<string, Record<string, number>> = {};
  for await (const rows of store.read({ step: "hour", ...ALL, ...range })) {
    for (const { key, provider, model, counts } of rows) {
      const sums = told[`${key} ${provider} ${model}`] ??= {};
      for (const name of USAGE_COUNTS) {
        if (counts[name] > 0) sums[name] = (sums[name] ?? 0) + counts[name];
      }
    }
  }
  return told;
}
