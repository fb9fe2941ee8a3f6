/** The history: its stores in memory and in a file, its meter and its reports. */
// runtimes: once
import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { ConfigError } from "../../src/config/config.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { HistoryBook, MemoryHistory } from "../../src/usage/history/book.ts";
import { FileHistory } from "../../src/usage/history/history_file.ts";
import { HistoryMeter } from "../../src/usage/history/meter.ts";
import { HistoryReports } from "../../src/usage/history/report.ts";
import type { HistoryBatch, HistoryRow, HistoryStore } from "../../src/usage/history/rows.ts";
import { UsageRefusal } from "../../src/usage/query.ts";
import { makeFolder } from "../support/program.ts";
import { until } from "../support/until.ts";
import { exchange, NOON, rest, StillClock } from "../support/usage.ts";
import { describeHistoryStore, makeRow, readAll } from "./history_suite.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const ALL = { from: 0, to: 8.64e15 } as const;

describeHistoryStore("in memory", (clock) => {
  const store = new MemoryHistory(() => clock.ms);
  return Promise.resolve({
    open: () => Promise.resolve(store),
    write: () => Promise.resolve(),
    close: () => Promise.resolve(),
  });
});

describeHistoryStore("in a file", (clock) => {
  const { path, remove } = makeFolder();
  const file = join(path, "keys.history.jsonl");
  const stores: FileHistory[] = [];
  return Promise.resolve({
    open: () => {
      const store = new FileHistory(new SharedFile(file), { clock, report: assert.fail });
      stores.push(store);
      return store.start().then(() => store);
    },
    write: async () => {
      for (const store of stores) await store.close();
    },
    close: () => Promise.resolve(remove()),
  });
});

describe("the history in a file", () => {
  it("survives a restart, is only for its owner, and is written once a minute", async () => {
    const { path, remove } = makeFolder();
    const file = join(path, "keys.history.jsonl");
    const clock = new StillClock();
    const open = () => new FileHistory(new SharedFile(file), { clock, report: assert.fail });
    const store = open();
    await store.add({ number: 1, rows: [makeRow(NOON)] });
    assert.deepEqual(clock.timers.map(({ ms }) => ms), [MINUTE_MS]);
    await store.close();
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const next = open();
    await next.start();
    assert.deepEqual(await readAll(next, { step: "hour", ...ALL }), [makeRow(NOON)]);
    remove();
  });

  it("leaves out damaged lines, and does not touch the file of a later version", async () => {
    const { path, remove } = makeFolder();
    const file = join(path, "keys.history.jsonl");
    const store = new FileHistory(new SharedFile(file), {
      clock: new StillClock(),
      report: () => {},
    });
    await store.add({ number: 1, rows: [makeRow(NOON)] });
    await store.close();
    const good = readFileSync(file, "utf8");
    const damaged = [
      '["minute",1',
      "7",
      '["minute",1,["a"],[1]]',
      '["minute",1,["","","","ok","nobody"],["x"]]',
    ];
    writeFileSync(file, `${damaged.join("\n")}\n${good}`);
    assert.deepEqual(await readAll(store, { step: "minute", ...ALL }), [makeRow(NOON)]);
    writeFileSync(file, `["version",2]\n${good}`);
    const other = new FileHistory(new SharedFile(file), {
      clock: new StillClock(),
      report: () => {},
    });
    await assert.rejects(other.start(), ConfigError);
    remove();
  });

  it("keeps the correction of an earlier day while another gateway writes", async () => {
    const { path, remove } = makeFolder();
    const file = new SharedFile(join(path, "keys.history.jsonl"));
    const clock = new StillClock();
    const [one, other] = [
      new FileHistory(file, { clock, report: assert.fail }),
      new FileHistory(file, { clock, report: assert.fail }),
    ];
    const earlier = makeRow(clock.ms - clock.ms % HOUR_MS - 2 * DAY_MS);
    await one.add({ number: 1, rows: [earlier] });
    await other.add({ number: 1, rows: [makeRow(clock.ms - clock.ms % HOUR_MS)] });
    await other.close();
    await one.close();
    assert.deepEqual((await readAll(other, { step: "hour", ...ALL }))[0], earlier);
    remove();
  });
});

describe("the size of the history", () => {
  it("is bounded by time: minutes for a day, hours for 30 days", async () => {
    const clock = new StillClock();
    const store = new MemoryHistory(() => clock.ms);
    const old = [DAY_MS + 2 * MINUTE_MS, DAY_MS - MINUTE_MS, 30 * DAY_MS, 31 * DAY_MS];
    await store.add({ number: 1, rows: old.map((ms) => makeRow(NOON - ms)) });
    const timesOf = async (step: "minute" | "hour") =>
      (await readAll(store, { step, ...ALL })).map(({ at }) => (NOON - at) / HOUR_MS);
    assert.deepEqual(await timesOf("minute"), [(DAY_MS - MINUTE_MS) / HOUR_MS]);
    assert.deepEqual(await timesOf("hour"), [720, 25, 24]);
  });

  it("is bounded by number: further keys of a minute are counted together", () => {
    const book = new HistoryBook();
    for (let key = 0; key < 6000; key++) book.add(makeRow(NOON, { key: `key-${key}` }));
    assert.ok(book.rows <= 10_010, String(book.rows));
    const rows = Array.from(book.read({ step: "minute", ...ALL }));
    const other = rows.find(({ key }) => key === "(other)");
    assert.deepEqual([other?.team, other?.sums[0]], ["search", 1000]);
  });

  it("is bounded over all minutes: the oldest go first, and their hours stay", () => {
    const book = new HistoryBook();
    for (let minute = 0; minute < 60; minute++) {
      for (let key = 0; key < 4900; key++) {
        book.add(makeRow(NOON + minute * MINUTE_MS, { key: `key-${key}` }));
      }
    }
    book.forget(NOON + HOUR_MS);
    assert.ok(book.rows <= 200_000, String(book.rows));
    const minutes = new Set(Array.from(book.read({ step: "minute", ...ALL }), ({ at }) => at));
    assert.ok(!minutes.has(NOON) && minutes.has(NOON + 59 * MINUTE_MS));
    assert.ok(Array.from(book.read({ step: "hour", ...ALL })).length >= 4900);
  });
});

describe("the meter of the history", () => {
  const costs = { of: () => ({ amount: 5n * 10n ** 15n }) };
  const open = (store?: HistoryStore) => {
    const clock = new StillClock();
    const memory = new MemoryHistory(() => clock.ms);
    const meter = new HistoryMeter({ store: store ?? memory, clock });
    return { clock, memory, meter, observer: meter.under(costs) };
  };
  const read = (store: Pick<HistoryStore, "read">) =>
    readAll(store as HistoryStore, { step: "minute", ...ALL });

  it("counts how calls ended, their tokens, costs and times, in the minute of their end", async () => {
    const { meter, observer } = open();
    const forwarded = { calledMs: 1, firstByteMs: 40, durationMs: 250, team: "search" };
    observer.settled(exchange({ ...forwarded, startedAt: NOON + MINUTE_MS - 100 }));
    observer.settled(exchange({ outcome: "refused", status: 429, code: "rate_limit_exceeded" }));
    observer.settled(exchange({ ...forwarded, outcome: "upstream_error", status: 503 }));
    const refused = { outcome: "upstream_error", status: 401, provider: "b" } as const;
    observer.settled(exchange({ ...refused, usesHeldKey: true }));
    observer.settled(exchange(refused));
    const unknown = { keyId: undefined, provider: undefined };
    observer.settled(exchange({ ...unknown, outcome: "refused", status: 401 }));
    const counted = (await read(meter)).map(({ at, team, end, concern, sums }) => [
      (at - NOON) / MINUTE_MS,
      team,
      end,
      concern,
      sums.join(),
    ]);
    assert.deepEqual(counted, [
      [0, "", "rate_limit_exceeded", "caller", "1,0,0,0,0,7,4,5"],
      [0, "", "upstream_401", "operator", "1,0,0,0,0,7,4,5"],
      [0, "", "upstream_401", "caller", "1,0,0,0,0,7,4,5"],
      [0, "search", "upstream_503", "operator", "1,1,250,1,40,7,4,5,0,0,0,0,0,1"],
      [1, "search", "ok", "nobody", "1,1,250,1,40,7,4,5,0,0,0,0,0,1"],
    ]);
  });

  it("replaces an estimate by the usage that is stated later", async () => {
    const { meter, observer } = open();
    observer.restated?.({
      startedAt: NOON,
      durationMs: 10,
      keyId: "team",
      team: "search",
      plan: undefined,
      provider: "a",
      model: "m",
      operation: "responses",
      estimate: { total: 10, output: 6 },
      stated: { total: 7, input: 3, output: 4 },
    });
    assert.deepEqual((await read(meter)).map(({ sums }) => sums.join()), ["0,0,0,0,0,-3,-2,0"]);
  });

  it("passes its counts on every ten seconds, or as often as the store asks for", () => {
    for (const [store, ms] of [[{}, 10_000], [{ flushMs: 1000 }, 1000]] as const) {
      const { observer, clock } = open(Object.assign(new MemoryHistory(() => 0), store));
      observer.settled(exchange({}));
      assert.deepEqual(clock.timers.map((timer) => timer.ms), [ms]);
    }
  });

  it("sends a batch that was not accepted again, unchanged, and keeps the counts meanwhile", async () => {
    const sent: HistoryBatch[] = [];
    let isDown = true;
    const { clock, observer } = open({
      add: (batch) => {
        sent.push(batch);
        return isDown ? Promise.reject(new Error("down")) : Promise.resolve();
      },
      async *read() {},
      close: () => Promise.resolve(),
    });
    observer.settled(exchange());
    clock.fire();
    await until(() => sent.length === 1 && clock.timers.length === 1, "it has failed");
    observer.settled(exchange());
    isDown = false;
    clock.fire();
    await until(() => sent.length === 2, "it is sent again");
    assert.deepEqual(sent[1], sent[0]);
    observer.settled(exchange());
    clock.fire();
    await until(() => sent.length >= 3, "the others follow");
    const calls = sent.slice(1).flatMap(({ rows }) => rows).reduce(
      (n, { sums }) => n + (sums[0] ?? 0),
      0,
    );
    assert.equal(calls, 3);
    assert.deepEqual(sent.slice(1).map(({ number }) => number), [1, 2]);
  });

  it("keeps a bounded number of counts while the store fails: the oldest are deleted", async () => {
    let isDown = true;
    const rows: HistoryRow[] = [];
    const { clock, meter } = open({
      add: (batch) => {
        if (isDown) return Promise.reject(new Error("down"));
        rows.push(...batch.rows);
        return Promise.resolve();
      },
      async *read() {},
      close: () => Promise.resolve(),
    });
    const failAgain = async () => {
      clock.fire();
      await until(() => clock.timers.length === 1, "it has failed");
    };
    meter.add([makeRow(NOON - MINUTE_MS)]);
    await failAgain();
    for (let minute = 0; minute < 50; minute++) {
      meter.add(
        Array.from(
          { length: 4900 },
          (_, key) => makeRow(NOON + minute * MINUTE_MS, { key: `key-${key}` }),
        ),
      );
    }
    await failAgain();
    isDown = false;
    await meter.close();
    await meter.close();
    assert.ok(rows.length > 150_000 && rows.length <= 200_001, String(rows.length));
    assert.equal(rows[0]?.at, NOON - MINUTE_MS, "the batch in transit stays the same");
    assert.equal(rows.at(-1)?.at, NOON + 49 * MINUTE_MS);
  });
});

describe("a report of the history", () => {
  const NOW = NOON + 30 * MINUTE_MS;
  async function make() {
    const store = new MemoryHistory(() => NOW);
    const failed = { end: "upstream_503", concern: "operator" } as const;
    const limited = { end: "budget_exceeded", concern: "caller", key: "key-2" } as const;
    const slow = [1, 1, 9000, 1, 900, 7, 4, 2_000_000_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    await store.add({
      number: 1,
      rows: [
        makeRow(NOW - 20 * DAY_MS, failed),
        makeRow(NOW - 20 * MINUTE_MS),
        makeRow(NOW - 10 * MINUTE_MS, failed),
        makeRow(NOW - 5 * MINUTE_MS, failed),
        makeRow(NOW - 5 * MINUTE_MS, limited),
        makeRow(NOW, { provider: "b", team: "ads", key: "key-3", sums: slow }),
      ],
    });
    return new HistoryReports({ history: store, currency: "USD", now: () => NOW, rest });
  }

  it("says which team, since when and why", async () => {
    const reports = await make();
    const { ends, teams, keys, providers, totals, points, step } = await reports.report({
      lastMs: HOUR_MS,
    });
    const at = (minutesAgo: number) => new Date(NOW - minutesAgo * MINUTE_MS).toISOString();
    assert.deepEqual(ends, [
      { end: "upstream_503", concern: "operator", calls: 2, since: at(10), last: at(5) },
      { end: "budget_exceeded", concern: "caller", calls: 1, since: at(5), last: at(5) },
    ]);
    const tell = (all: typeof teams) =>
      all.map(({ id, calls, errors, refused }) => `${id} ${calls} ${errors} ${refused}`);
    assert.deepEqual(tell(teams), ["search 4 2 1", "ads 1 0 0"]);
    assert.deepEqual(tell(keys), ["key-1 3 2 0", "key-2 1 0 1", "key-3 1 0 0"]);
    assert.deepEqual(tell(providers), ["a 4 2 1", "b 1 0 0"]);
    assert.deepEqual([totals.calls, totals.tokens, totals.firstByte], [5, 35, 212]);
    assert.ok(Math.abs(totals.cost - 2.00000002) < 1e-12, String(totals.cost));
    assert.equal(step, 60);
    assert.equal(points.length, 61);
    const five = points.find((point) => point.at === at(5));
    assert.deepEqual(five?.ends, { upstream_503: 1, budget_exceeded: 1 });
  });

  it("is of one team, key or provider, in minutes for a day and in hours for longer", async () => {
    const reports = await make();
    const ofTeam = await reports.report({ team: "ads", lastMs: DAY_MS });
    assert.deepEqual([ofTeam.totals.calls, ofTeam.step], [1, 1800]);
    // Between the bounds 6,400 and 12,800 of its durations.
    assert.deepEqual([ofTeam.totals.p50, ofTeam.totals.p95], [9600, 12_480]);
    const ofKey = await reports.report({ key: "key-1", lastMs: 30 * DAY_MS });
    assert.deepEqual([ofKey.totals.calls, ofKey.step], [4, 12 * 3600]);
    assert.match(ofKey.ends[0]?.since ?? "", /^2026-11-01T12:00/);
    const ofProvider = await reports.report({ provider: "none", lastMs: HOUR_MS });
    assert.deepEqual([ofProvider.totals.calls, ofProvider.totals.p50], [0, null]);
    assert.deepEqual(ofProvider.ends, []);
    await assert.rejects(reports.report({ lastMs: 31 * DAY_MS }), UsageRefusal);
    const hours = await reports.report({ lastMs: 30 * DAY_MS, stepMs: HOUR_MS });
    assert.deepEqual([hours.step, hours.points.length], [3600, 721]);
    // Minutes are not kept for so long; too many of them; no such step.
    for (const stepMs of [MINUTE_MS, 7 * HOUR_MS]) {
      const refused = reports.report({ lastMs: 30 * DAY_MS, stepMs });
      await assert.rejects(refused, { param: "step", message: /expected one of 1h, 2h/ });
    }
    await assert.rejects(reports.report({ lastMs: DAY_MS, stepMs: MINUTE_MS }), UsageRefusal);
  });
});
