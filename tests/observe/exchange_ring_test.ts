/**
 * The ring of settled exchanges: it returns the records that were added, and stores only the last
 * ones.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { createTest, endKindOf } from "../../src/observe/live/exchange_filter.ts";
import {
  compareCursors,
  type ExchangePage,
  mergePages,
} from "../../src/observe/live/exchange_page.ts";
import { ExchangeRing } from "../../src/observe/live/exchange_ring.ts";
import { KEPT_EXCHANGES, type LiveExchange } from "../../src/observe/live/live_report.ts";

const record = (more: Partial<ExchangeRecord> = {}): ExchangeRecord => ({
  id: "1",
  startedAt: 1000,
  durationMs: 10,
  overheadMs: 0.05,
  outcome: "ok",
  status: 200,
  bytesIn: 1,
  bytesOut: 2,
  retries: 0,
  ...more,
});

/** A record with all of its fields. */
const WHOLE = record({
  id: "f2b4",
  calledMs: 0.5,
  firstByteMs: 3.25,
  firstTokenMs: 4,
  outcome: "timeout",
  code: "upstream_idle_timeout",
  cause: "timeout",
  retryCause: "reset",
  provider: "a",
  keyId: "team-x",
  run: "nightly",
  repeats: 4,
  operation: "chat.completions",
  genAi: "chat",
  isMetered: true,
  model: "modèle-\u{1f511}-1",
  stream: false,
  retries: 1,
  replica: 0,
  usage: { total: 12, input: 8, output: 4, cached: 0, reasoning: 1 },
  isEstimated: true,
  limit: "requests",
  observedLimit: "tokens",
});

/** Reads all pages. */
function readAll(
  find: (before: LiveExchange | undefined) => ExchangePage,
): { all: LiveExchange[]; pages: number } {
  const all: LiveExchange[] = [];
  let page = find(undefined);
  let pages = 1;
  all.push(...page.exchanges);
  while (page.reached !== undefined) {
    page = find(page.reached as LiveExchange);
    all.push(...page.exchanges);
    pages++;
  }
  return { all, pages };
}

describe("the ring of exchanges", () => {
  it("returns the records that it was given, without the error and the names of headers", () => {
    const ring = new ExchangeRing();
    const given = [record(), WHOLE, record({ model: "", usage: { total: 3 } })];
    for (const each of given) {
      ring.add({ ...each, error: new Error("x"), withheld: { request: ["x-a"] } }, 5000);
    }
    const written = JSON.parse(JSON.stringify(ring.within(0, 10, 10))) as LiveExchange[];
    const back = written.map(({ settledAt, ...rest }) => {
      assert.ok(settledAt >= 5000 && settledAt < 5001);
      return rest;
    });
    assert.deepEqual(back, given);
  });

  it("keeps the last 10,000", () => {
    const ring = new ExchangeRing();
    for (let count = 0; count < 25_000; count++) ring.add(record({ id: `id-${count}` }), count);
    const { all } = readAll((before) => ring.find({ filter: {}, limit: 300, before }));
    assert.equal(all.length, KEPT_EXCHANGES);
    assert.deepEqual([all[0]?.id, all.at(-1)?.id], ["id-24999", "id-15000"]);
  });

  it("answers a filter page by page, with bounded work for each, with or without newer records", () => {
    const ring = new ExchangeRing();
    for (let count = 0; count < 9000; count++) {
      ring.add(record({ id: String(count), status: count % 1500 === 0 ? 500 : 200 }), 7000);
    }
    let looked = 0;
    const { all, pages } = readAll((before) => {
      if (++looked === 2) {
        for (let count = 0; count < 100; count++) ring.add(record({ id: `new-${count}` }), 7000);
      }
      return ring.find({ filter: { status: "5xx" }, limit: 10, before });
    });
    assert.deepEqual(all.map(({ id }) => id), ["7500", "6000", "4500", "3000", "1500", "0"]);
    assert.equal(pages, 5);
  });

  it("continues after the last page, also when the clock goes back and several settle at once", () => {
    const ring = new ExchangeRing();
    for (const [index, now] of [9000, 9000, 9000, 4000, 4000, 9000, 12_000].entries()) {
      ring.add(record({ id: String(index) }), now);
    }
    const { all } = readAll((before) => ring.find({ filter: {}, limit: 2, before }));
    assert.deepEqual(all.map(({ id }) => id), ["6", "5", "4", "3", "2", "1", "0"]);
    assert.deepEqual(ring.within(4, 5, 9).map(({ id }) => id), ["3", "4"]);
  });

  it("merges pages of several rings without gaps and duplicates", () => {
    const rings = [new ExchangeRing(), new ExchangeRing(), new ExchangeRing()];
    for (let count = 0; count < 5000; count++) {
      const id = String(count).padStart(5, "0");
      rings[count % 7 % 3]?.add(
        record({ id, status: count % 50 === 0 ? 429 : 200 }),
        1000 + Math.floor(count / 40),
      );
    }
    for (const [limit, filter] of [[7, {}], [100, {}], [9, { status: "429" }]] as const) {
      const { all } = readAll((before) =>
        mergePages(rings.map((ring) => ring.find({ filter, limit, before })), limit)
      );
      assert.equal(all.length, "status" in filter ? 100 : 5000);
      assert.equal(new Set(all.map(({ id }) => id)).size, all.length);
      for (let index = 1; index < all.length; index++) {
        const [one, other] = [all[index - 1], all[index]];
        assert.ok(one !== undefined && other !== undefined && compareCursors(one, other) < 0);
      }
    }
    assert.deepEqual(mergePages([], 10).exchanges, []);
  });
});

describe("a filter of exchanges", () => {
  const passes = (filter: Parameters<typeof createTest>[0], more: Partial<LiveExchange> = {}) =>
    createTest(filter)({ ...WHOLE, keyName: "name of people", team: "search", ...more });

  it("matches only if each of its parts matches", () => {
    const good = [
      { search: "TEAM-X" },
      { search: "504" },
      {
        id: "f2b4",
        provider: "a",
        model: "MODÈLE",
        operation: "chat",
        code: "idle",
        outcome: "errors",
        status: "50",
      },
      { key: "am-x", minDurationMs: 10, minFirstTokenMs: 4, stream: false },
      { team: "search", key: "people" },
      { search: "SEARCH" },
      {},
    ] as const;
    for (const filter of good) assert.ok(passes(filter, { status: 504 }), JSON.stringify(filter));
    const bad = [
      { search: "nothing" },
      { id: "f2b" },
      { provider: "A" },
      { model: "gpt" },
      { outcome: "refused" },
      { status: "5xx", code: "dns" },
      { stream: true },
      { key: "of nobody" },
      { team: "sea" },
      { minDurationMs: 10.1 },
      { minFirstTokenMs: 5 },
    ] as const;
    for (const filter of bad) assert.ok(!passes(filter, { status: 504 }), JSON.stringify(filter));
    assert.ok(passes({ key: "PEOPLE" }));
    assert.ok(!createTest({ minFirstTokenMs: 1 })(record()), "there was no token");
  });

  it("assigns each outcome to one of four kinds", () => {
    const kinds = [
      ["ok", 200, "ok"],
      ["refused", 401, "refused"],
      ["upstream_error", 404, "refused"],
      ["upstream_error", 500, "errors"],
      ["upstream_error", 200, "errors"],
      ["client_closed", 499, "cancelled"],
      ["shed", 503, "errors"],
    ] as const;
    for (const [outcome, status, kind] of kinds) assert.equal(endKindOf({ outcome, status }), kind);
  });
});
