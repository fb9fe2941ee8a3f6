/**
 * Reports of many rows, measured by the clock: no turn blocks the process for more than 5 ms. Once
 * on each engine.
 */
// runtimes: bun, node
// alone: it measures turns of milliseconds
import assert from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { parseConfig } from "../../src/config/config.ts";
import { noCounts, ROWS_A_TURN, type UsageRow } from "../../src/usage/counts.ts";
import type { UsageExportQuery, UsageQuery } from "../../src/usage/query.ts";
import { UsageReports } from "../../src/usage/report.ts";
import { MemoryUsage } from "../../src/usage/usage_memory.ts";
import { toExportText, toReportText } from "../../src/usage/usage_text.ts";
import { NOON } from "../support/usage.ts";

/** Longest turn. Milliseconds. */
const MAX_MS = 5;
const KEYS = 50_000;
const MODELS = 4;
/**
 * Most runs of each report. Other load on the machine slows a turn in some runs. Slow code of the
 * report slows it in all.
 */
const MAX_RUNS = 16;

/**
 * Durations of the turns of one run, in their order, which is the same in each run. Milliseconds.
 */
class Turns {
  readonly ms: number[] = [];
  #begun = performance.now();

  readonly rest = async (): Promise<void> => {
    this.end();
    await setImmediate();
    this.#begun = performance.now();
  };

  end(): void {
    this.ms.push(performance.now() - this.#begun);
  }
}

/** Returns the longest turn, with each turn taken from its fastest run. */
async function longestOf(run: (turns: Turns) => Promise<void>): Promise<number> {
  const fastest: number[] = [];
  let longest = Infinity;
  for (let number = 0; number < MAX_RUNS && longest > MAX_MS; number++) {
    const turns = new Turns();
    await run(turns);
    turns.end();
    assert.ok(
      number === 0 || turns.ms.length === fastest.length,
      "the turns of each run are the same",
    );
    for (const [index, ms] of turns.ms.entries()) {
      fastest[index] = Math.min(fastest[index] ?? Infinity, ms);
    }
    longest = fastest.reduce((most, ms) => Math.max(most, ms), 0);
  }
  assert.ok(fastest.length > KEYS * MODELS / ROWS_A_TURN, `${fastest.length} turns`);
  return longest;
}

describe("reports of 200,000 rows", () => {
  let store: MemoryUsage;
  beforeAll(async () => {
    store = new MemoryUsage(new Set(), () => NOON);
    for (let key = 0; key < KEYS; key += 125) {
      const rows = Array.from({ length: 125 * MODELS }, (_, index): UsageRow => ({
        at: NOON,
        key: `key-${key + Math.floor(index / MODELS)}`,
        provider: "a",
        model: `model-${index % MODELS}`,
        operation: "chat.completions",
        counts: { ...noCounts(), requests: 1, input: key + index, output: index },
      }));
      await store.add({ number: key, rows });
    }
  });
  afterAll(async () => await store.close());

  const config = parseConfig({
    providers: { a: { upstream: "http://127.0.0.1:9/v1" } },
    prices: { "model-*": { input: 1, output: 2 } },
  });
  const keys = { get: (id: string) => Promise.resolve({ name: id, team: `team-${id.length}` }) };
  const reports = (turns: Turns) =>
    new UsageReports({ usage: store, config, keys, now: () => NOON + 1000, rest: turns.rest });
  const base = { lastMs: 24 * 3_600_000, sort: "cost", limit: 10_000 } as const;
  const queries: readonly UsageQuery[] = [
    { ...base, by: ["key", "model"] },
    { ...base, by: ["team", "model"], team: "team-9" },
    { ...base, by: ["key", "hour"], top: 20 },
  ];
  for (const query of queries) {
    const what = `${query.by.join(" and ")}${
      query.top === undefined ? "" : `, the ${query.top} largest`
    }`;
    it(`block no turn for more than ${MAX_MS} ms by ${what}`, async () => {
      const longest = await longestOf(async (turns) => {
        const report = await reports(turns).report(query);
        assert.ok(report.rows.length > 0);
        let length = 0;
        for await (const part of toReportText(report, turns.rest)) length += part.length;
        assert.ok(length > 0);
      });
      assert.ok(longest <= MAX_MS, `a turn of ${longest.toFixed(1)} ms`);
    });
  }

  it(`block no turn for more than ${MAX_MS} ms when they are exported`, async () => {
    const query: UsageExportQuery = { lastMs: 24 * 3_600_000 };
    const longest = await longestOf(async (turns) => {
      let length = 0;
      for await (const part of toExportText("csv", reports(turns).export(query))) {
        length += part.length;
      }
      assert.ok(length > KEYS * MODELS);
    });
    assert.ok(longest <= MAX_MS, `a turn of ${longest.toFixed(1)} ms`);
  });
});
