/** The arithmetic of the bench: goals, comparisons, and the configurations of peers. */
// runtimes: once
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { deriveAll } from "../../scripts/bench/derived.ts";
import { goalFor, isWithin, toText } from "../../scripts/bench/goals.ts";
import type { Reading } from "../../scripts/bench/load.ts";
import type { Measurement } from "../../scripts/bench/measurements.ts";
import { fillIn } from "../../scripts/bench/peers.ts";
import { toReport } from "../../scripts/bench/report.ts";
import { SESSION } from "../../scripts/bench/requests.ts";
import { conclude, type Series } from "../../scripts/bench/session.ts";
import type { RunningSubject } from "../../scripts/bench/subjects.ts";
import { makeTls, makeWorkers } from "../../scripts/docs/production_performance.ts";
import { makeFolder } from "../support/program.ts";

const usage = { cpuNs: 0, coreBusy: 1, foreign: 0, loadBusy: 0 };

function readingOf(value: number, details: Reading["details"] = {}): Reading {
  return { value, details, wrong: 0, count: 1, usage };
}

function seriesOf(name: string, values: readonly number[], base?: string): Series {
  const subject = { subject: { name }, name } as unknown as RunningSubject;
  const readings = values.map((value) => readingOf(value));
  return { subject, name, base, readings, count: values.length, wrong: 0 };
}

const overTls: Measurement = {
  name: "tls",
  title: "plain over TLS",
  unit: "µs of processor time",
  compare: "ratio",
  isThroughput: false,
  heats: "plain",
  extraSeconds: 0,
  isTls: true,
  measure: () => Promise.reject(new Error("not measured")),
};

describe("a goal of the bench", () => {
  it("belongs to a runtime, and can differ for a point of a curve", () => {
    assert.deepEqual(goalFor("tls", "gateway node 26"), { atMost: 0.9 });
    assert.deepEqual(goalFor("delay", "gateway bun", 1000), { atMost: 1 });
    assert.deepEqual(goalFor("delay", "gateway bun", 5000), { atMost: 2 });
    assert.deepEqual(goalFor("connections", "gateway deno", 1000), { atLeast: 0.8 });
    assert.equal(goalFor("connections", "gateway deno", 32), undefined);
    assert.equal(goalFor("tls", "bare bun"), undefined);
  });

  it("can be a ratio and a peer that needs more; a peer that was not measured is no bound", () => {
    const goal = { atMost: 1.6, below: "caddy" };
    assert.ok(isWithin({ value: 1.6, own: 99, peer: 100 }, goal));
    assert.ok(!isWithin({ value: 1.7, own: 99, peer: 100 }, goal));
    assert.ok(!isWithin({ value: 1.6, own: 100, peer: 100 }, goal));
    assert.ok(isWithin({ value: 1.6, own: 100, peer: undefined }, goal));
    assert.equal(toText(goal), "at most 1.6, below caddy");
    assert.equal(toText({ atLeast: 2 / 3 }), "at least 0.67");
  });

  it("is decided from the readings of one run, round by round", () => {
    const bare = seriesOf("bare bun", [100, 200, 100]);
    const gateway = seriesOf("gateway bun", [150, 300, 190], "bare bun");
    const met = conclude(overTls, [bare, gateway, seriesOf("caddy", [191, 191, 191])]);
    assert.equal(met.comparisons[0]?.spread.median, 1.5);
    assert.equal(met.comparisons[0]?.isMet, true);
    assert.equal(met.comparisons[0]?.byCpu, undefined);
    const missed = conclude(overTls, [bare, gateway, seriesOf("caddy", [189, 189, 189])]);
    assert.equal(missed.comparisons[0]?.isMet, false);
    assert.match(toReport(missed), /gateway bun \/ bare bun .*at most 1\.6, below caddy: MISSED/);
  });
});

describe("answers of the bench", () => {
  it("are counted, and a wrong one is reported and makes the figure not quotable", () => {
    const right = seriesOf("gateway bun", [1, 2]);
    const wrong = { ...seriesOf("caddy", [1, 2]), count: 1234, wrong: 5, example: "500" };
    const result = conclude(overTls, [right, wrong]);
    assert.deepEqual(result.rows.map(({ answers }) => answers), [
      { count: 2, wrong: 0 },
      { count: 1234, wrong: 5 },
    ]);
    assert.match(toReport(result), /gateway bun .*all 2 right/);
    const paced = conclude({ ...overTls, name: "paced" }, [right]);
    assert.equal(paced.rows[0]?.answers, undefined, "its count is that of events");
    assert.match(toReport(result), /caddy .*5 of 1,234 WRONG.*NOT QUOTABLE: 5 wrong answers.*500/);
  });
});

describe("the results of paced streams", () => {
  const paced = (at: number): Measurement => ({ ...overTls, name: "paced", title: "paced", at });
  const readings = [readingOf(7, { withSetupUs: 9, p999Ms: 3 })];
  const series = [{ ...seriesOf("gateway bun", []), readings }];
  const namesOf = (at: number) => deriveAll(paced(at), series).map(([{ name }]) => name);

  it("include the cost with set-up at 500 streams, and the tail at 1,000 and at 5,000", () => {
    assert.deepEqual([500, 1000, 5000, 9].map(namesOf), [
      ["paced-setup"],
      ["delay"],
      ["delay"],
      [],
    ]);
    assert.deepEqual(deriveAll({ ...paced(500), name: "paced-alone" }, series), []);
  });

  it("keep the unit and the comparison of their figure", () => {
    const [setup] = deriveAll(paced(500), series);
    assert.equal(setup?.[0].compare, "ratio");
    assert.equal(setup?.[1][0]?.readings[0]?.value, 9);
    const [delay] = deriveAll(paced(5000), series);
    assert.equal(delay?.[0].unit, "ms");
    assert.equal(delay?.[0].compare, "difference");
    assert.equal(delay?.[1][0]?.readings[0]?.value, 3);
  });
});

describe("the bodies of a session", () => {
  const bodies = SESSION.bodies ?? [];
  it("grow to 400 kB, and each contains the messages of the one before", () => {
    const messages = bodies.map((body): unknown[] => JSON.parse(body).messages);
    for (const [index, longer] of messages.slice(1).entries()) {
      const shorter = messages[index] ?? [];
      assert.deepEqual(longer.slice(0, shorter.length), shorter);
      assert.ok(longer.length > shorter.length);
    }
    const last = bodies.at(-1)?.length ?? 0;
    assert.ok(last > 380_000 && last < 420_000, String(last));
  });

  it("are one line each, because the load generator reads one a line", () => {
    for (const body of bodies) assert.doesNotMatch(body, /\n/);
  });
});

describe("the tables of calls over TLS and of workers", () => {
  const comparison = (subject: string, median: number) => ({ subject, spread: { median } });
  const row = (subject: string, median: number, more: object = {}) => ({
    subject,
    spread: { median },
    details: { cpuUs: median },
    answers: { count: 4321, wrong: 0 },
    objections: [],
    ...more,
  });
  const write = (results: readonly unknown[]) => {
    const folder = makeFolder();
    const file = join(folder.path, "results.json");
    writeFileSync(file, JSON.stringify({ results }));
    return { file, remove: () => folder.remove() };
  };

  it("have the ratio to ten bare lines, and the number of right answers", () => {
    const wrong = { answers: { count: 10, wrong: 2 }, objections: ["2 wrong answers"] };
    const { file, remove } = write([{
      name: "tls",
      title: "plain over TLS",
      unit: "µs of processor time",
      compare: "ratio",
      rows: [row("bare bun", 100), row("gateway bun", 150), row("caddy", 160, wrong)],
      comparisons: [comparison("gateway bun", 1.5)],
    }]);
    const text = makeTls([file]);
    assert.equal(makeTls([`${file}.missing`]), "Not measured yet.");
    remove();
    assert.match(text, /\| gateway bun \| 150 µs \(1\.50 × bare\) \| all 4,321 \|/);
    assert.match(text, /\| caddy \| – \| 2 of 10 WRONG \|/);
  });

  it("have throughput and processor time by the number of connections", () => {
    const result = (at: number, subject: string, median: number) => ({
      ...{ name: "workers", at, comparisons: [] },
      rows: [row(subject, median)],
    });
    const { file, remove } = write([
      result(64, "gateway bun, 1 process", 3000),
      result(2, "gateway bun, 1 process", 1000),
      result(64, "gateway deno, 1 process", 2000),
    ]);
    const text = makeWorkers([file]);
    remove();
    assert.match(text, /\| 64 connections, a second \| CPU of a call \| 2 connections/);
    assert.match(text, /gateway bun, 1 process \| 3,000 \| 3,000 µs \| 1,000 \| 1,000 µs \|/);
    assert.match(text, /gateway deno, 1 process \| 2,000 \| 2,000 µs \| – \| – \|/);
  });
});

describe("the configuration of a peer", () => {
  const values = {
    ...{ port: "1", upstream: "127.0.0.1:2", directory: "/d", key: "k", limit: "" },
    ...{ listen: "", trust: "", tls: "", scheme: "http" },
  };
  for (const source of ["nginx.conf", "haproxy.cfg", "Caddyfile", "h2o.conf"]) {
    it(`${source} has only names with a value`, () => {
      const text = readFileSync(`scripts/bench/bare/${source}`, "utf8");
      assert.doesNotMatch(fillIn(text, values), /\{\{\w/);
      assert.throws(
        () => fillIn(text, { ...values, port: undefined as never }),
        /port has no value/,
      );
    });
  }
});
