/** Reports of usage: their groups, their periods, and costs. */
// runtimes: once
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import { USAGE_ORDERS, UsageRefusal } from "../../src/usage/query.ts";
import { type UsageReport, UsageReports } from "../../src/usage/report.ts";
import { UsageQuerySchema } from "../../src/admin/api/usage.ts";
import { type ConfigInput, parseConfig } from "../../src/config/config.ts";
import {
  DAY_MS,
  HOUR_MS,
  noCounts,
  OTHER_NAME,
  ROWS_A_TURN,
  type UsageCounts,
  type UsageRange,
  type UsageRow,
  UsageUnavailable,
} from "../../src/usage/counts.ts";
import * as v from "valibot";
import { it } from "../support/cases.ts";
import { DAY, NOON, rest } from "../support/usage.ts";

const row = (counts: Partial<UsageCounts>, more: Partial<UsageRow> = {}): UsageRow => ({
  at: NOON,
  key: "k1",
  provider: "a",
  model: "gpt-4o",
  operation: "chat.completions",
  counts: { ...noCounts(), requests: 1, ...counts },
  ...more,
});

const CONFIG = {
  providers: {
    a: { upstream: "https://a.example" },
    b: {
      upstream: "https://b.example",
      prices: { "gpt-4o": { input: 1, output: 1 }, "claude-*": { input: 4, output: 4 } },
    },
  },
  prices: {
    "gpt-4o": { input: 2.5, output: 10, cached: 1.25 },
    "gpt-*": { input: 100, output: 100 },
    "gpt-4o-mini*": { input: 0.15, output: 0.6 },
  },
  currency: "EUR",
};

/** Existing keys; the others were removed. */
const KEYS: Readonly<Record<string, { readonly name?: string; readonly team?: string }>> = {
  k1: { name: "team-x", team: "search" },
  k3: { team: "search" },
  k4: {},
};

/** Makes a report from rows that are kept at any time. */
function ask(
  rows: readonly UsageRow[],
  query: Record<string, string> = {},
  now = NOON + HOUR_MS / 2,
  usage: ConfigInput["usage"] = {},
) {
  const ranges: UsageRange[] = [];
  const reports = new UsageReports({
    usage: {
      backend: "memory",
      async *read(range: UsageRange) {
        ranges.push(range);
        yield rows;
      },
    },
    config: parseConfig({ ...CONFIG, usage }),
    keys: {
      get: (id) => id === "broken" ? Promise.reject(new Error("away")) : Promise.resolve(KEYS[id]),
    },
    now: () => now,
    rest,
  });
  const running = reports.report(v.parse(UsageQuerySchema, query));
  return running.then((report) => ({ report, range: ranges[0] ?? assert.fail("not read") }));
}

const million = { input: 1_000_000, output: 1_000_000 };
const lines = ({ rows }: UsageReport, ...names: (keyof UsageReport["rows"][number])[]) =>
  rows.map((line) => names.map((name) => line[name]));

describe("reports of usage", () => {
  it("add up by the requested dimensions, the largest first, with the names of keys", async () => {
    const rows = [
      row({ input: 1 }),
      row({ input: 5 }, { key: "k2", model: "o3" }),
      row({ input: 2, output: 3, partial: 1 }, { provider: "b", at: NOON + HOUR_MS }),
      row({ input: 1 }, { key: "broken" }),
    ];
    const { report } = await ask(rows);
    assert.deepEqual(lines(report, "key", "name", "requests", "partial", "tokens"), [
      ["k1", "team-x", 2, 1, 6],
      ["k2", undefined, 1, 0, 5],
      ["broken", undefined, 1, 0, 1],
    ]);
    assert.deepEqual([report.totals.requests, report.totals.tokens, report.totals.input], [
      4,
      12,
      9,
    ]);
    const byTwo = (await ask(rows, { by: "provider,model" })).report;
    assert.deepEqual(lines(byTwo, "provider", "model", "tokens"), [["a", "o3", 5], [
      "b",
      "gpt-4o",
      5,
    ], [
      "a",
      "gpt-4o",
      2,
    ]]);
    const byHour = (await ask(rows, { by: "hour" })).report;
    assert.deepEqual(lines(byHour, "hour", "requests"), [["2026-11-21T12:00Z", 3], [
      "2026-11-21T13:00Z",
      1,
    ]]);
    const byDay = (await ask(rows, { by: "key, day" })).report;
    const byMonth =
      (await ask([...rows, row({}, { at: Date.UTC(2026, 9, 31) })], { by: "month", last: "60d" }))
        .report;
    assert.deepEqual(lines(byMonth, "month", "requests"), [["2026-10", 1], ["2026-11", 4]]);
    assert.deepEqual(lines(byDay, "key", "day", "requests"), [
      ["k1", "2026-11-21", 2],
      ["k2", "2026-11-21", 1],
      ["broken", "2026-11-21", 1],
    ]);
  });

  it("can be about one key, provider or model", async () => {
    const rows = [
      row({}),
      row({}, { key: "k2" }),
      row({}, { provider: "b" }),
      row({}, { model: "o3" }),
    ];
    for (
      const [query, requests] of [
        [{ key: "k1" }, 3],
        [{ provider: "b" }, 1],
        [{ model: "o3" }, 1],
        [
          { model: "x" },
          0,
        ],
      ] as const
    ) {
      assert.equal(
        (await ask(rows, query)).report.totals.requests,
        requests,
        JSON.stringify(query),
      );
    }
  });

  it("can be about one team, and so can exports", async () => {
    const rows = ["k1", "k3", "k4", "gone", "jwt:corp:ann"].map((key) => row({}, { key }));
    rows.push(
      row({}, { key: "jwt:corp:bob", team: "ads" }),
      row({}, { key: "jwt:corp:ann", team: "ads" }),
    );
    for (
      const [team, keys] of [
        ["search", ["k1", "k3"]],
        ["(none)", ["k4"]],
        ["(removed)", ["gone"]],
        ["(identity tokens)", ["jwt:corp:ann"]],
        ["ads", ["jwt:corp:ann", "jwt:corp:bob"]],
        ["x", []],
      ] as const
    ) {
      const { report } = await ask(rows, { team });
      assert.deepEqual(lines(report, "key").flat().sort(), keys);
      assert.equal(report.totals.requests, keys.length);
    }
    await assert.rejects(ask([row({}, { key: "broken" })], { team: "search" }), UsageUnavailable);
  });

  it("are sorted by a sum, also in pages", async () => {
    const rows = [
      row({ input: 9, failed: 1 }, { key: "k1", model: "none" }),
      row({ input: 4, requests: 7, cached: 2 }, { key: "k2" }),
      row({ output: 5, reasoning: 3, estimated: 1 }, { key: "k3" }),
      row({ input: 1, cached: 1 }, { key: "k4" }),
    ];
    const orders: Record<string, string[]> = {
      tokens: ["k1", "k3", "k2", "k4"],
      cost: ["k3", "k2", "k4", "k1"],
      requests: ["k2", "k1", "k3", "k4"],
      input: ["k1", "k2", "k4", "k3"],
      cached: ["k2", "k4", "k1", "k3"],
      output: ["k3", "k1", "k2", "k4"],
      reasoning: ["k3", "k1", "k2", "k4"],
      failed: ["k1", "k3", "k2", "k4"],
      estimated: ["k3", "k1", "k2", "k4"],
      unpriced: ["k1", "k3", "k2", "k4"],
    };
    assert.deepEqual(Object.keys(orders), [...USAGE_ORDERS]);
    for (const [sort, keys] of Object.entries(orders)) {
      assert.deepEqual(lines((await ask(rows, { sort })).report, "key").flat(), keys, sort);
      const found: unknown[] = [];
      let after: string | null | undefined;
      do {
        const { report }: { report: UsageReport } = await ask(rows, {
          sort,
          limit: "1",
          ...(after && { after }),
        });
        found.push(...lines(report, "key").flat());
        after = report.next;
      } while (after !== null);
      assert.deepEqual(found, keys, `${sort} in pages`);
    }
    await assert.rejects(ask(rows, { sort: "cost", after: '[9,1,"k1"]' }), UsageRefusal);
    await assert.rejects(ask(rows, { sort: "cost", after: '[9,1,"k1","1.5"]' }), UsageRefusal);
  });

  it("add up all except the largest groups of the whole period, hour by hour, if only a few are requested", async () => {
    const at = NOON - HOUR_MS;
    const rows = [
      row({ input: 9 }, { key: "k1" }),
      row({ input: 5 }, { key: "k2" }),
      row({ input: 5 }, { key: "k2", at }),
      row({ input: 6 }, { key: "k3" }),
      row({ input: 1 }, { key: "k4" }),
      row({ input: 2 }, { key: OTHER_NAME, at }),
    ];
    const { report } = await ask(rows, { by: "hour,key", top: "2" });
    const [before, then] = ["2026-11-21T11:00Z", "2026-11-21T12:00Z"];
    assert.deepEqual(lines(report, "hour", "key", "tokens"), [
      [before, "k2", 5],
      [before, OTHER_NAME, 2],
      [then, "k1", 9],
      [then, OTHER_NAME, 7],
      [then, "k2", 5],
    ]);
    assert.equal(report.totals.tokens, 28);
    const byCost = (await ask(rows, { by: "key,model", top: "1", sort: "cost" })).report;
    assert.deepEqual(lines(byCost, "key", "model", "tokens"), [[OTHER_NAME, OTHER_NAME, 18], [
      "k2",
      "gpt-4o",
      10,
    ]]);
    assert.deepEqual(lines((await ask(rows, { by: "hour", top: "1" })).report, "hour"), [[before], [
      then,
    ]]);
  });

  it("use the price of the provider's model, its pattern, the model, the longest pattern", async () => {
    const priced: [provider: string, model: string, cost: string | null][] = [
      ["a", "gpt-4o", "12.5"],
      ["b", "gpt-4o", "2"],
      ["b", "claude-3", "8"],
      ["a", "claude-3", null],
      ["a", "gpt-5", "200"],
      ["a", "gpt-4o-mini-2024", "0.75"],
      ["a", OTHER_NAME, null],
      ["gone", "gpt-4o", "12.5"],
      ["constructor", "toString", null],
    ];
    for (const [provider, model, cost] of priced) {
      const { report } = await ask([row(million, { provider, model })]);
      assert.equal(report.totals.cost, cost, `${provider} ${model}`);
      assert.equal(report.totals.unpriced, cost === null ? 2_000_000 : 0);
    }
  });

  it("state a cost if tokens and a price are known, and count usage without a price", async () => {
    const { report } = await ask([
      row({ input: 10, output: 10, cached: 4 }),
      row({ input: 10, other: 7 }),
      row({ input: 3 }, { model: "o3" }),
      row({ unmetered: 1 }),
    ], { by: "model" });
    // (6 + 10) * 2.5 + 4 * 1.25 + (10 + 7) * 10, in millionths: a sum alone is output beyond input
    assert.deepEqual(lines(report, "model", "tokens", "unpriced", "cost"), [[
      "gpt-4o",
      37,
      0,
      "0.000215",
    ], [
      "o3",
      3,
      3,
      null,
    ]]);
    assert.deepEqual([report.totals.unpriced, report.totals.cost, report.currency], [
      3,
      "0.000215",
      "EUR",
    ]);
    const none = (await ask([row({ unmetered: 1 })])).report;
    assert.equal(none.totals.cost, null, "a price alone is no cost");
    assert.equal((await ask([])).report.totals.cost, null);
  });

  it("mark the gateway's estimates", async () => {
    const rows = [row({ input: 10, estimated: 1 }), row({ input: 5, requests: 2 })];
    const { report } = await ask(rows);
    assert.deepEqual(lines(report, "requests", "estimated", "tokens"), [[3, 1, 15]]);
    assert.equal(report.totals.estimated, 1);
    assert.equal(
      report.totals.estimatedCost,
      "0",
      "what was counted before tokens of estimates were",
    );
  });

  it("state the tokens and the money that the gateway estimated", async () => {
    const some = { input: 10, output: 6, estimated: 1, estimatedInput: 4, estimatedOutput: 2 };
    const rows = [row(some), row({ input: 5, requests: 2 }), row(some, { model: "claude-4" })];
    const { report } = await ask(rows, { by: "model" });
    assert.deepEqual(
      lines(
        report,
        "model",
        "estimated",
        "estimatedInput",
        "estimatedOutput",
        "cost",
        "estimatedCost",
      ),
      [
        ["gpt-4o", 1, 4, 2, "0.0000975", "0.00003"],
        ["claude-4", 1, 4, 2, null, null],
      ],
    );
    const { estimatedInput, estimatedOutput, estimatedCost } = report.totals;
    assert.deepEqual([estimatedInput, estimatedOutput, estimatedCost], [8, 4, "0.00003"]);
  });

  it("add up by team, by the present team of a key", async () => {
    const keys = ["k1", "k3", "k1", "k4", "gone", OTHER_NAME];
    const rows = keys.map((key, index) => row({ input: 10 - index }, { key }));
    const { report } = await ask(rows, { by: "team" });
    assert.deepEqual(lines(report, "team", "tokens"), [["search", 27], ["(none)", 7], [
      "(removed)",
      6,
    ], [OTHER_NAME, 5]]);
    const both = (await ask(rows, { by: "team,key" })).report;
    assert.deepEqual(lines(both, "team", "key")[0], ["search", "k1"]);
    await assert.rejects(ask([row({}, { key: "broken" })], { by: "team" }), UsageUnavailable);
  });

  it("are divided into pages, which together are complete", async () => {
    const rows = Array.from(
      { length: 30 },
      (_, index) => row({ input: index % 7 }, { key: `key-${index}` }),
    );
    const { report: whole } = await ask(rows, { limit: "100" });
    assert.equal(whole.next, null);
    const found: unknown[] = [];
    let after: string | null = null;
    do {
      const query: Record<string, string> = { limit: "4", ...(after !== null && { after }) };
      const { report }: { report: UsageReport } = await ask(rows, query);
      found.push(...report.rows);
      assert.equal(report.left, 30 - found.length);
      assert.deepEqual(report.totals, whole.totals);
      after = report.next;
    } while (after !== null);
    assert.deepEqual(found, whole.rows);
  });

  it.large("are made in short steps, and refuse queries that need too much memory", async () => {
    let groups = 0;
    let rests = 0;
    let sinceRest = 0;
    let longest = 0;
    const reports = new UsageReports({
      usage: {
        backend: "memory",
        async *read() {
          for (let from = 0; from < groups; from += ROWS_A_TURN) {
            sinceRest += ROWS_A_TURN;
            longest = Math.max(longest, sinceRest);
            const length = Math.min(ROWS_A_TURN, groups - from);
            yield Array.from(
              { length },
              (_, index) => row({ input: from + index }, { key: `key-${from + index}` }),
            );
          }
        },
      },
      config: parseConfig(CONFIG),
      keys: { get: () => Promise.resolve(undefined) },
      now: () => NOON,
      rest() {
        rests++;
        sinceRest = 0;
        return Promise.resolve();
      },
    });
    const query = v.parse(UsageQuerySchema, { limit: "10000" });
    groups = 100_000;
    const { rows, left } = await reports.report(query);
    assert.equal(longest, ROWS_A_TURN);
    // One rest for each part of the rows that are read, the groups that are compared, and the page
    // that is sorted and written.
    assert.equal(rests, (2 * 100_000 + 2 * 10_000) / ROWS_A_TURN);
    assert.deepEqual([rows.length, left, rows[0]?.input, rows.at(-1)?.input], [
      10_000,
      90_000,
      99_999,
      90_000,
    ]);
    groups = 1_000_001;
    await assert.rejects(reports.report(query), UsageRefusal);
  });

  it("and exports work in steps even if none of many rows is selected", async () => {
    let rests = 0;
    const reports = new UsageReports({
      usage: {
        backend: "memory",
        async *read() {
          for (let part = 0; part < 20; part++) yield [row({})];
        },
      },
      config: parseConfig(CONFIG),
      keys: { get: () => Promise.resolve(undefined) },
      now: () => NOON,
      rest: () => Promise.resolve(void rests++),
    });
    for await (const _ of reports.export({ lastMs: HOUR_MS, key: "nobody" })) assert.fail();
    assert.equal(rests, 20);
  });

  it("cover the period that the configuration keeps", async () => {
    const usage = { hours: "2d", days: "30d" };
    const step = async (query: Record<string, string>) =>
      (await ask([], query, undefined, usage)).range.step;
    assert.equal(await step({ last: "2d" }), "hour");
    assert.equal(await step({ last: "3d" }), "day");
    await assert.rejects(step({ last: "31d" }), /days are kept for 30 days/);
    await assert.rejects(step({ by: "hour", last: "3d" }), /hours are kept for 2 days/);
    const { range } = await ask([], { from: "2026-01-01" }, undefined, usage);
    assert.equal(new Date(range.from).toISOString().slice(0, 10), "2026-10-22");
  });

  it("cut rows in excess of the limit, say so, and include them in the total", async () => {
    const rows = Array.from(
      { length: 30 },
      (_, index) => row({ input: index }, { key: `key-${index}` }),
    );
    const { report } = await ask(rows, { limit: "4" });
    assert.deepEqual(lines(report, "key"), [["key-29"], ["key-28"], ["key-27"], ["key-26"]]);
    assert.deepEqual([report.left, report.totals.requests], [26, 30]);
  });

  const TIMES: readonly [query: Record<string, string>, step: string, from: string, to: string][] =
    [
      [{}, "hour", "2026-11-14T12", "2026-11-21T13"],
      [{ last: "90m" }, "hour", "2026-11-21T11", "2026-11-21T13"],
      [{ last: "9d" }, "day", "2026-11-12T00", "2026-11-22T00"],
      [{ by: "day" }, "day", "2026-11-14T00", "2026-11-22T00"],
      [{ by: "hour,key", last: "8d" }, "hour", "2026-11-13T12", "2026-11-21T13"],
      [{ from: "2026-11-20" }, "hour", "2026-11-20T00", "2026-11-21T13"],
      [{ from: "2026-11-20", to: "2026-11-21" }, "hour", "2026-11-20T00", "2026-11-21T00"],
      [{ from: "2026-10-01", to: "2026-11-01" }, "day", "2026-10-01T00", "2026-11-01T00"],
      [{ to: "2026-11-21T10:30Z", last: "1h" }, "hour", "2026-11-21T09", "2026-11-21T11"],
      [{ from: "2020-01-01" }, "day", "2025-10-17T00", "2026-11-22T00"],
      [{ from: "2026-11-21", to: "2099-01-01" }, "hour", "2026-11-21T00", "2026-11-21T14"],
    ];
  for (const [query, step, from, to] of TIMES) {
    it(`${JSON.stringify(query)} is ${from} to ${to} by the ${step}`, async () => {
      const { range, report } = await ask([], query);
      assert.deepEqual([range.step, report.from, report.to], [
        step,
        `${from}:00:00.000Z`,
        `${to}:00:00.000Z`,
      ]);
      assert.deepEqual([new Date(range.from).toISOString(), new Date(range.to).toISOString()], [
        report.from,
        report.to,
      ]);
    });
  }

  it("never request more hours or days than are stored", async () => {
    const { range } = await ask([], { from: "1970-01-01", to: "1970-01-02" });
    assert.ok(range.to - range.from <= DAY_MS, "nothing");
    const { range: all } = await ask([], { from: "1970-01-01" }, DAY + 20 * 365 * DAY_MS);
    assert.ok((all.to - all.from) / DAY_MS <= 402);
  });

  it("refuse queries that cannot be answered", async () => {
    const wrong: [query: Record<string, string>, param: string][] = [
      [{ by: "hour", last: "9d" }, "by"],
      [{ from: "2026-11-20", to: "2026-11-20" }, "from"],
      [{ from: "2030-01-01" }, "from"],
    ];
    for (const [query, param] of wrong) {
      await assert.rejects(
        ask([], query),
        (error) => error instanceof UsageRefusal && error.param === param,
      );
    }
    for (const after of ["", "[]", "[1,2]", '[1,2,"k1","m"]', '["1",2,"k1"]', "[1,2,3]"]) {
      await assert.rejects(
        ask([], { after }),
        (error) => error instanceof UsageRefusal && error.param === "after",
      );
    }
    await assert.rejects(
      ask([], { last: "401d" }),
      (error) => error instanceof UsageRefusal && error.param === "last",
    );
  });
});
