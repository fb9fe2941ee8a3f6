/**
 * Reports of many rows: they let other work of the process run after a bounded amount of work. Work
 * is counted, not timed.
 */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import type { UsageRow } from "../../src/usage/counts.ts";
import type { UsageReports } from "../../src/usage/report.ts";
import type { UsageExportQuery, UsageQuery } from "../../src/usage/query.ts";
import { NOON } from "../support/usage.ts";
import { beginCounting, countWorkOfTurns } from "../support/work.ts";

const FEW_KEYS = 1250;
const MANY_KEYS = 5000;
const MODELS = 4;
/** Most work per turn: about 2 ms. */
const MAX_WORK = 100_000;
/** Most growth of the largest turn, for four times the rows. */
const MAX_GROWTH = 1.3;

/** Only modules that are loaded after counting has begun are counted block by block. */
async function loadReports() {
  const { parseConfig } = await import("../../src/config/config.ts");
  const { noCounts, ROWS_A_TURN } = await import("../../src/usage/counts.ts");
  const { UsageReports } = await import("../../src/usage/report.ts");
  const { MemoryUsage } = await import("../../src/usage/usage_memory.ts");
  const { toExportText, toReportText } = await import("../../src/usage/usage_text.ts");
  const fill = async (keys: number): Promise<Filled> => {
    const usage = new MemoryUsage(new Set(), () => NOON);
    for (let key = 0; key < keys; key += 125) {
      const rows = Array.from({ length: 125 * MODELS }, (_, index): UsageRow => ({
        at: NOON,
        key: `key-${10_000 + key + Math.floor(index / MODELS)}`,
        provider: "a",
        model: `model-${index % MODELS}`,
        operation: "chat.completions",
        counts: { ...noCounts(), requests: 1, input: key + index, output: index },
      }));
      await usage.add({ number: key, rows });
    }
    return {
      leastTurns: keys * MODELS / ROWS_A_TURN,
      reports: (rest) =>
        new UsageReports({ usage, config, keys: KEY_NAMES, now: () => NOON + 1, rest }),
      close: () => usage.close(),
    };
  };
  const config = parseConfig({
    providers: { a: { upstream: "http://127.0.0.1:9/v1" } },
    prices: { "model-*": { input: 1, output: 2 } },
  });
  return { few: await fill(FEW_KEYS), many: await fill(MANY_KEYS), toExportText, toReportText };
}

const KEY_NAMES = {
  get: (id: string) => Promise.resolve({ name: id, team: `team-${id.length}` }),
};

/** A store with rows of a number of keys. */
interface Filled {
  readonly leastTurns: number;
  readonly reports: (rest: () => Promise<void>) => UsageReports;
  readonly close: () => Promise<void>;
}

/** The work of each turn. @param run Gets the function that ends a turn */
const countTurns = (run: (rest: () => Promise<void>) => Promise<void>) =>
  countWorkOfTurns((endTurn) =>
    run(async () => {
      endTurn();
      await setImmediate();
    })
  );

describe("a report of many rows", () => {
  let endCounting = () => {};
  let loaded: Awaited<ReturnType<typeof loadReports>>;
  beforeAll(async () => {
    endCounting = beginCounting();
    loaded = await loadReports();
  });
  afterAll(async () => {
    endCounting();
    await Promise.all([loaded.few.close(), loaded.many.close()]);
  });

  /** Asserts that no turn's work depends on the number of rows. */
  async function assertBounded(
    run: (reports: UsageReports, rest: () => Promise<void>) => Promise<void>,
  ): Promise<void> {
    const { few, many } = loaded;
    await countTurns((rest) => run(few.reports(rest), rest)); // one-time initialization
    const ofFew = await countTurns((rest) => run(few.reports(rest), rest));
    const ofMany = await countTurns((rest) => run(many.reports(rest), rest));
    assert.ok(ofMany.length > many.leastTurns, `${ofMany.length} turns`);
    const [least, most] = [Math.max(...ofFew), Math.max(...ofMany)];
    assert.ok(most <= MAX_WORK, `turn ${ofMany.indexOf(most)} of ${ofMany.length}: ${most}`);
    assert.ok(most / least <= MAX_GROWTH, `growth ${(most / least).toFixed(2)}`);
  }

  const base = { lastMs: 24 * 3_600_000, sort: "cost", limit: 10_000 } as const;
  const queries: readonly UsageQuery[] = [
    { ...base, by: ["key", "model"] },
    { ...base, by: ["team", "model"], team: "team-9" },
    { ...base, by: ["key", "hour"], top: 20 },
  ];
  for (const query of queries) {
    const subject = `${query.by.join(" and ")}${
      query.top === undefined ? "" : `, the ${query.top} largest`
    }`;
    it(`works in bounded turns by ${subject}`, () =>
      assertBounded(async (reports, rest) => {
        const report = await reports.report(query);
        assert.ok(report.rows.length > 0);
        let length = 0;
        for await (const part of loaded.toReportText(report, rest)) length += part.length;
        assert.ok(length > 0);
      }));
  }

  it("works in bounded turns when it is exported", () =>
    assertBounded(async (reports) => {
      const query: UsageExportQuery = { lastMs: 24 * 3_600_000 };
      let length = 0;
      for await (const part of loaded.toExportText("csv", reports.export(query))) {
        length += part.length;
      }
      assert.ok(length > FEW_KEYS * MODELS);
    }));
});
