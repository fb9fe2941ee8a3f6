/**
 * Records, reports and merges of the fleet: of other versions, of other configurations, and of
 * nonsense.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { readAnswer, readQuestion } from "../../src/observe/fleet/exchange_questions.ts";
import { compact, LastMinute } from "../../src/observe/fleet/fleet_figures.ts";
import { toFleetMetricsText, toMetrics } from "../../src/observe/fleet/fleet_metrics.ts";
import {
  mergeGateways,
  PublishedParts,
  readHistory,
  readPublished,
  toHistory,
} from "../../src/observe/fleet/fleet_parts.ts";
import {
  arrange,
  type FleetFigures,
  LOST_MS,
  readRecord,
  writeRecord,
} from "../../src/observe/fleet/fleet_report.ts";
import {
  binOf,
  type LiveExchange,
  type LivePart,
  type LiveSecond,
} from "../../src/observe/live/live_report.ts";
import { packJson, unpackJson } from "../../src/storage/packed_json.ts";

const FIGURES: FleetFigures = {
  name: "one",
  state: "ready",
  version: "0.1.0",
  digest: "d",
  startedAt: 1000,
  runtime: "bun 1",
  workers: 1,
  workersWanted: 1,
  openExchanges: 2,
  openStreams: 1,
  rate: 3.5,
  errorShare: null,
  p50: 12,
  p95: null,
  overhead: 0.05,
  memoryBytes: 5,
  isRedisUp: true,
  localDecisions: 0,
};
const second = (at: number, more: Partial<LiveSecond> = {}): LiveSecond => ({
  at,
  exchanges: 1,
  errors: {},
  callers: {},
  tokens: 0,
  estimatedTokens: 0,
  outputTokens: 0,
  duration: [binOf(10), 1],
  firstToken: [],
  overhead: [binOf(0.1), 1],
  providers: { a: [1, 0] },
  times: {},
  ...more,
});
const exchange = (id: string, endsAt: number): LiveExchange => ({
  id,
  startedAt: endsAt * 1000,
  settledAt: endsAt * 1000 + 10,
  durationMs: 10,
  overheadMs: 0.1,
  outcome: "ok",
  status: 200,
  bytesIn: 1,
  bytesOut: 1,
  retries: 0,
});
const part = (more: Partial<LivePart> = {}): LivePart => ({
  since: 0,
  openExchanges: 1,
  openStreams: 0,
  providers: [],
  seconds: [],
  exchanges: [],
  ...more,
});
const replica = (url: string) => ({ url, inService: 1, ejected: 0, ejectedMs: 0, failures: 0 });

describe("records of gateways", () => {
  it("are read as they were written, with their presence", () => {
    const read = (silentMs: number, hasLeft = false) =>
      readRecord({ id: "1f", silentMs, text: writeRecord(FIGURES, hasLeft) });
    assert.deepEqual(read(5), {
      ...FIGURES,
      id: "1f",
      presence: "serving",
      silentMs: 5,
      isSelf: false,
    });
    assert.deepEqual([read(LOST_MS + 1)?.presence, read(5, true)?.presence], ["lost", "left"]);
  });

  it("of another version lose unknown fields, and nonsense is not a record", () => {
    const read = (text: string) => readRecord({ id: "1f", silentMs: 0, text });
    const later = JSON.stringify({
      ...FIGURES,
      v: 7,
      colour: "blue",
      state: "dreaming",
      rate: "fast",
    });
    assert.deepEqual(read(later), {
      ...FIGURES,
      id: "1f",
      presence: "serving",
      silentMs: 0,
      isSelf: false,
      state: "starting",
      rate: 0,
    });
    const { name, p95, memoryBytes } = read('{"name":"bare"}') ?? assert.fail();
    assert.deepEqual([name, p95, memoryBytes], ["bare", null, 0]);
    for (const text of ["", "{", "null", "[]", "5", '{"name":5}']) {
      assert.equal(read(text), undefined, text);
    }
    assert.equal(read(JSON.stringify({ name: "n".repeat(5000) }))?.name.length, 100);
  });

  it("never pose as all gateways, and their names can be used in metrics, queries and pages", () => {
    const read = (id: string, name: string) =>
      readRecord({ id, silentMs: 0, text: JSON.stringify({ ...FIGURES, name }) });
    const id = crypto.randomUUID().slice(0, 13);
    for (const bad of ["all", "", "../x", "a b", "x".repeat(50)]) {
      assert.equal(read(bad, "one"), undefined, bad);
    }
    assert.equal(read(id, "all")?.name, `gateway-${id}`);
    assert.equal(read(id, "")?.name, `gateway-${id}`);
    assert.equal(read(id, 'x"} 1\n<script>')?.name, "x___1__script_");
    assert.equal(read(id, "host.example:8787")?.name, "host.example:8787");
    const endless = readRecord({
      id,
      silentMs: 0,
      text: JSON.stringify({ ...FIGURES }).replace('"p50":12', '"p50":1e999'),
    });
    assert.equal(endless?.p50, null);
  });

  it("are in order, without gateways that a younger one of the same name has replaced", () => {
    const gateway = (name: string, id: string, startedAt: number, silentMs = 0, hasLeft = false) =>
      readRecord({ id, silentMs, text: writeRecord({ ...FIGURES, name, startedAt }, hasLeft) }) ??
        assert.fail();
    const all = arrange([
      gateway("b", "a1", 1, 9000),
      gateway("b", "a2", 2, 0, true),
      gateway("b", "a3", 3),
      gateway("a", "a4", 5),
      gateway("a", "a5", 4),
      gateway("c", "a6", 9, 9000),
    ]);
    assert.deepEqual(all.map(({ id }) => id), ["a5", "a4", "a3", "a6"]);
  });
});

describe("reports of the last minute", () => {
  it("are rates of ten seconds, and shares and percentiles of sixty", () => {
    const minute = new LastMinute();
    for (let at = 0; at < 100; at++) {
      const errors = at % 2 === 0 ? { internal_error: 1 } : {};
      minute.add([second(at, { exchanges: 4, errors })], at + 1);
    }
    const { rate, errorShare, p50, overhead } = minute.figures(100, 1000);
    assert.deepEqual([rate, errorShare], [4, 30 / 240]);
    assert.ok(Math.abs((p50 ?? 0) - 10) < 0.5 && Math.abs((overhead ?? 0) - 0.1) < 0.005);
    assert.equal(minute.figures(100, 4).rate, 10, "of a gateway that has just started");
    minute.add([], 500);
    assert.deepEqual(minute.figures(500, 1000), {
      rate: 0,
      errorShare: null,
      p50: null,
      p95: null,
      overhead: null,
    });
  });

  it("have histograms that are added up with each bin once", () => {
    assert.deepEqual(compact([[3, 1, 5, 2], [5, 4], [1, 1]]), [1, 1, 3, 1, 5, 6]);
  });
});

describe("traffic of gateways", () => {
  it("is read second by second, each once, also seconds without a watcher", () => {
    const parts = new PublishedParts();
    for (let at = 0; at < 20; at++) parts.add(part({ seconds: [second(at)] }), at + 1);
    parts.fill(
      part({ exchanges: Array.from({ length: 20 }, (_, at) => exchange(String(at), at)) }),
    );
    const json = JSON.parse(JSON.stringify(parts.toJson()));
    const read = (from: number, to: number) => readPublished(json, from, to) ?? assert.fail();
    assert.deepEqual(read(15, 17).seconds.map(({ at }) => at), [15, 16]);
    assert.deepEqual(read(15, 17).exchanges.map(({ id }) => id), ["15", "16"]);
    assert.equal(read(0, 100).seconds.length, 8);
    const history = JSON.parse(
      JSON.stringify(toHistory(part({ seconds: [second(3), second(9)] }), 50)),
    );
    assert.deepEqual(readHistory(history, 50, 9)?.seconds.map(({ at }) => at), [3]);
    assert.equal(readHistory(history, 51, 9), undefined, "it answers an earlier question");
  });

  it("of another version or of nonsense breaks nothing", () => {
    for (const value of [undefined, null, 5, "x"]) {
      assert.deepEqual([readPublished(value, 0, 9), readHistory(value, 0, 9)], [
        undefined,
        undefined,
      ]);
    }
    const strange = {
      providers: [5, {}],
      parts: [null, {
        at: 1,
        seconds: [{ at: 1, new: 1, errors: null, duration: {} }, null],
        exchanges: 7,
      }],
    };
    const read = readPublished(strange, 0, 9) ?? assert.fail();
    const { seconds } = mergeGateways([["one", read], ["two", part({ seconds: [second(1)] })]]);
    assert.deepEqual([seconds.length, seconds[0]?.exchanges], [1, 1]);
  });

  it("that is hostile breaks neither a merge nor a page, and its valid parts stay", () => {
    const good = exchange("good", 1);
    const stated = {
      total: 5,
      parts: [{ model: "m", classes: { input: 5 }, tariff: { context: 5, tier: "flex" } }],
      statedCost: "0.25",
    };
    const json = `{
      "since": 1e999, "openExchanges": -5, "openStreams": "7",
      "providers": [{ "name": {}, "hosts": [], "replicas": [] }, { "name": "a", "hosts": 5, "replicas": [null, { "url": 1 }] }],
      "parts": [{
        "at": 1,
        "seconds": [
          { "at": "1" },
          { "at": 1, "exchanges": "9".repeat, "errors": {} }
        ],
        "exchanges": []
      }]
    }`.replace('"9".repeat', '"999"');
    const hostile = JSON.parse(json);
    hostile.parts[0].seconds[1].errors = JSON.parse(
      '{"__proto__": 3, "constructor": "x", "tls": 2}',
    );
    hostile.parts[0].seconds[1].duration = [1, {}];
    hostile.parts[0].seconds[1].providers = { a: "no", b: [1, 1] };
    hostile.parts[0].seconds[1].times = { a: null, b: { duration: 5 } };
    hostile.parts[0].exchanges = [
      null,
      { ...good, id: {} },
      { ...good, startedAt: 1e300 }, // no valid Date
      { ...good, outcome: "constructor" },
      { ...good, durationMs: "1" },
      { ...good, usage: { ...stated, parts: [{ classes: { input: "5" }, tariff: {} }] } },
      { ...good, usage: { ...stated, statedCost: "1e300" } },
      { ...good, usage: stated },
      { ...good, id: "x".repeat(1_000_000) },
      {
        ...good,
        model: { html: 1 },
        provider: ["a"],
        usage: { total: "5" },
        gateway: "another",
        evil: true,
      },
    ];
    const read = readPublished(hostile, 0, 9) ?? assert.fail();
    assert.deepEqual([read.since, read.openExchanges, read.openStreams], [0, 0, 0]);
    assert.deepEqual(read.exchanges, [good, good, { ...good, usage: stated }, good]);
    assert.deepEqual(read.providers, [{ name: "a", hosts: [], replicas: [] }]);
    const merged = mergeGateways([["bad", read], ["two", part({ seconds: [second(1)] })]]);
    const [only] = merged.seconds;
    assert.equal(merged.seconds.length, 1);
    assert.deepEqual([only?.exchanges, only?.duration, only?.providers], [1, [binOf(10), 1], {
      b: [1, 1],
      a: [1, 0],
    }]);
    assert.deepEqual(Object.entries(only?.errors ?? {}), [["__proto__", 3], ["tls", 2]]);
    assert.equal(Object.getPrototypeOf(only?.errors), Object.prototype);
    assert.deepEqual(only?.times, { b: { duration: [], firstToken: [] } });
  });

  it("of gateways with different providers is merged by their names", () => {
    const a = (url: string) => ({
      name: "a",
      hosts: ["a.test"],
      replicas: [replica(url), replica("http://same")],
    });
    const merged = mergeGateways([
      [
        "one",
        part({ providers: [a("http://x")], exchanges: [exchange("1", 1)], seconds: [second(1)] }),
      ],
      [
        "two",
        part({
          providers: [{ name: "b", hosts: ["b.test"], replicas: [] }, a("http://y")],
          exchanges: [exchange("0", 0)],
          seconds: [second(1)],
        }),
      ],
    ]);
    assert.deepEqual(
      merged.providers.map((
        { name, replicas },
      ) => [name, replicas.map((r) => [r.url, r.inService])]),
      [
        ["a", [["http://x", 1], ["http://same", 2], ["http://y", 1]]],
        ["b", []],
      ],
    );
    assert.deepEqual(
      merged.exchanges.map((each) => [each.id, (each as { gateway?: string }).gateway]),
      [
        ["0", "two"],
        ["1", "one"],
      ],
    );
    assert.deepEqual([merged.openExchanges, merged.seconds[0]?.duration], [2, [binOf(10), 2]]);
  });
});

describe("questions for exchanges", () => {
  const question = { id: "1f-2", query: { filter: { model: "gpt", team: "ads" }, limit: 5 } };

  it("are read as they were asked, and nothing else is accepted", () => {
    assert.deepEqual(readQuestion(JSON.stringify(question)), question);
    const { id, query } = question;
    const earlier = { ...question.query.filter, keyIds: ["k"], searchKeyIds: [] };
    assert.deepEqual(
      readQuestion(JSON.stringify({ id, query: { ...query, filter: earlier } })),
      question,
      "a question of an earlier version",
    );
    const before = { settledAt: 5.5, id: "x" };
    assert.deepEqual(
      readQuestion(JSON.stringify({ id, query: { ...query, before } }))?.query.before,
      before,
    );
    const wrong: unknown[] = [
      null,
      { id: "../live", query },
      { id, query: { ...query, limit: 1e9 } },
      { id, query: { ...query, limit: "5" } },
      { id, query: { ...query, filter: { colour: "blue" } } }, // of a later version: match unknown
      { id, query: { ...query, filter: { status: 5 } } },
      { id, query: { ...query, filter: JSON.parse('{"__proto__":{}}') } },
      { id, query: { ...query, filter: { outcome: "constructor" } } },
      { id, query: { ...query, before: { settledAt: "now", id } } },
      { id, query: { ...query, filter: { keyIds: Array(20_000).fill("abcdef") } } },
    ];
    for (const each of ["", "{", ...wrong.map((value) => JSON.stringify(value))]) {
      assert.equal(readQuestion(each), undefined, each.slice(0, 200));
    }
  });

  it("have answers with the name of the gateway, for any content", () => {
    const one = { ...exchange("1", 1), run: "nightly", repeats: 4 };
    assert.deepEqual(
      readAnswer({
        exchanges: [{ ...one, gateway: "two" }, null],
        reached: { settledAt: 1, id: "1" },
      }, "one"),
      {
        exchanges: [{ ...one, gateway: "one" }],
        reached: { settledAt: 1, id: "1" },
      },
    );
    assert.deepEqual(readAnswer({ exchanges: [], reached: { settledAt: "1" } }, "one"), {
      exchanges: [],
    });
    assert.equal(readAnswer({ exchanges: Array(1000).fill(one) }, "one")?.exchanges.length, 500);
    for (const none of [undefined, null, 5, [], { exchanges: {} }]) {
      assert.equal(readAnswer(none, "one"), undefined);
    }
  });
});

describe("metrics of gateways", () => {
  it("are accepted from Redis only if they are nothing but metrics", () => {
    const good = {
      name: "x_total",
      help: "X",
      type: "counter",
      aggregation: "sum",
      series: { 'x_total{a="1"}': 1 },
    };
    const bad = [
      null,
      { ...good, name: "x\nevil 1" },
      { ...good, name: ["x"] },
      { ...good, help: "X\nevil 1" },
      { ...good, type: "summary\n" },
      { ...good, aggregation: "constructor" },
      { ...good, series: { "x_total 1\nevil": 1 } },
      { ...good, series: { 'x_total{a="1"} 1\nevil{}': 1 } },
      { ...good, series: { x_total: "1\nevil 1" } },
    ];
    assert.deepEqual(toMetrics([...bad, good]), [good]);
    assert.deepEqual(toMetrics({ length: 1 }), []);
  });

  it("have the name of the gateway as instance, one family for all", () => {
    const counter = (value: number) => ({
      name: "x_total",
      help: "X",
      type: "counter" as const,
      aggregation: "sum" as const,
      series: { 'x_total{a="1"}': value, x_total: value },
    });
    const gateways = [
      { name: "one", metrics: [counter(1)] },
      { name: "two", metrics: undefined },
      { name: "three", metrics: [counter(3)] },
    ];
    const text = toFleetMetricsText(gateways, "text");
    assert.deepEqual(text.split("\n").slice(5), [
      "# HELP x_total X",
      "# TYPE x_total counter",
      'x_total{instance="one",a="1"} 1',
      'x_total{instance="one"} 1',
      'x_total{instance="three",a="1"} 3',
      'x_total{instance="three"} 3',
      "",
    ]);
    assert.match(text, /^sallyport_gateway_answered\{instance="two"\} 0$/m);
    assert.match(toFleetMetricsText(gateways, "openmetrics"), /# TYPE x counter\n[^]*# EOF\n$/);
  });
});

describe("packed JSON", () => {
  it("is unpacked again, and neither nonsense nor a bomb does harm", async () => {
    const packed = await packJson({ a: [1] });
    assert.deepEqual(await unpackJson(packed), { value: { a: [1] }, bytes: 9 });
    assert.deepEqual([
      await unpackJson(packed, 9),
      await unpackJson(packed, 8),
      await unpackJson(packed, -1),
    ], [
      { value: { a: [1] }, bytes: 9 },
      undefined,
      undefined,
    ]);
    assert.equal(await unpackJson(new Uint8Array([1, 2, 3])), undefined);
    const bomb = await packJson("x".repeat(9_000_000));
    assert.ok(bomb.byteLength < 100_000);
    assert.equal(await unpackJson(bomb), undefined);
  });
});
