/** What is counted, as Prometheus reads it. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import type { ExchangeRecord } from "../../src/exchange.ts";
import { Metrics, toAggregateText } from "../../src/observe/metrics.ts";

const sources = { openExchanges: () => 3, droppedLogLines: () => 2, version: "1.2.3", runtime: "bun" };
const record: ExchangeRecord = {
  id: "x",
  startedAt: 0,
  durationMs: 100,
  overheadMs: 0.06,
  firstByteMs: 50,
  outcome: "ok",
  status: 200,
  provider: "a",
  operation: "chat.completions",
  model: "gpt",
  stream: true,
  bytesIn: 10,
  bytesOut: 20,
  retries: 1,
  usage: { total: 7, input: 3, output: 4 },
};

const valueOf = (text: string, series: string) =>
  text.split("\n").find((line) => line.startsWith(`${series} `))?.slice(series.length + 1);

describe("metrics", () => {
  it("count exchanges by how they ended, time, bytes and tokens", async () => {
    const metrics = new Metrics({ ...sources, redis: () => ({ isUp: true, failures: 4, localDecisions: 5 }) });
    metrics.settled(record);
    metrics.settled(record);
    const { usage: _, firstByteMs: __, ...bare } = record;
    metrics.settled({ ...bare, outcome: "refused", code: "invalid_gateway_key", status: 401 });
    metrics.settled({ ...bare, observedLimit: "tokens" });
    const text = await metrics.toText();
    const labels = 'provider="a",operation="chat.completions"';
    const expected = {
      [`sallyport_exchanges_total{${labels},outcome="ok",code="none",status="200"}`]: "3",
      [`sallyport_exchanges_total{${labels},outcome="refused",code="invalid_gateway_key",status="401"}`]: "1",
      'sallyport_overhead_seconds_bucket{le="0.00005",provider="a"}': "0",
      'sallyport_overhead_seconds_bucket{le="0.0001",provider="a"}': "4",
      'sallyport_first_byte_seconds_count{provider="a",stream="true"}': "2",
      'sallyport_tokens_total{provider="a",type="input"}': "6",
      'sallyport_tokens_total{provider="a",type="output"}': "8",
      'sallyport_bytes_total{provider="a",direction="out"}': "80",
      'sallyport_upstream_retries_total{provider="a"}': "4",
      'sallyport_unmetered_exchanges_total{provider="a"}': "1",
      'sallyport_limits_observed_total{limit="tokens"}': "1",
      sallyport_open_exchanges: "3",
      sallyport_log_dropped_lines: "2",
      sallyport_redis_up: "1",
      sallyport_redis_failures: "4",
      sallyport_limits_local_decisions: "5",
      'sallyport_build_info{version="1.2.3",runtime="bun"}': "1",
    };
    for (const [series, value] of Object.entries(expected)) assert.equal(valueOf(text, series), value, series);
    assert.match(text, /^process_|^nodejs_/m);
  });

  it("count on between two answers, and count nothing twice", async () => {
    const metrics = new Metrics(sources);
    const series = 'sallyport_bytes_total{provider="a",direction="in"}';
    for (const expected of ["10", "20", "20", "30"]) {
      if (valueOf(await metrics.toText(), series) !== expected) metrics.settled(record);
      assert.equal(valueOf(await metrics.toText(), series), expected);
      await metrics.toJson();
    }
  });

  it("show no series for what has not been, and take a provider's odd numbers", async () => {
    const metrics = new Metrics(sources);
    const { usage: _, firstByteMs: __, ...bare } = record;
    metrics.settled({ ...bare, bytesIn: 0, retries: 0, outcome: "refused", code: "invalid_gateway_key", status: 401 });
    const quiet = /^sallyport_(?:first_byte_seconds|tokens|unmetered\w*|upstream_retries|limits_observed)\w*\{|="in"/m;
    assert.doesNotMatch(await metrics.toText(), quiet);
    metrics.settled({ ...record, usage: { total: 5, input: 9 } });
    const text = await metrics.toText();
    assert.equal(valueOf(text, 'sallyport_tokens_total{provider="a",type="input"}'), "9");
    assert.equal(valueOf(text, 'sallyport_tokens_total{provider="a",type="output"}'), "0");
  });

  it("have no series for what a caller writes: a million models and ids cost none", async () => {
    const metrics = new Metrics(sources);
    metrics.settled(record);
    const before = (await metrics.toText()).split("\n").length;
    for (let count = 0; count < 1000; count++) {
      metrics.settled({ ...record, model: `model-${count}`, keyId: `key-${count}`, id: `id-${count}` });
    }
    assert.equal((await metrics.toText()).split("\n").length, before);
  });

  it("of several processes are added up", async () => {
    const all = [new Metrics(sources), new Metrics(sources)];
    for (const metrics of all) metrics.settled(record);
    const text = await toAggregateText(
      await Promise.all(all.map(async (metrics) => JSON.parse(JSON.stringify(await metrics.toJson())))),
    );
    const series =
      'sallyport_exchanges_total{provider="a",operation="chat.completions",outcome="ok",code="none",status="200"}';
    assert.equal(valueOf(text, series), "2");
    assert.equal(valueOf(text, "sallyport_open_exchanges"), "6");
  });
});
