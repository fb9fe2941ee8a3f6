/**
 * Metrics by key: bounded, off by default, in money if there are prices, and summed over workers.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, it } from "@std/testing/bdd";
import { PriceBook } from "../../src/config/price_book.ts";
import { parseConfig } from "../../src/config/config.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { KeyMetrics, type KeyMetricsOptions } from "../../src/observe/metrics/key_metrics.ts";
import { MetricRegistry } from "../../src/observe/metrics/metric_registry.ts";
import { CostMetrics } from "../../src/observe/metrics/cost_metrics.ts";
import { CallCosts } from "../../src/observe/call_costs.ts";
import { toMetricsText } from "../../src/observe/metrics/metrics_text.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
import { startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const record: ExchangeRecord = {
  id: "x",
  startedAt: 0,
  durationMs: 1,
  overheadMs: 1,
  outcome: "ok",
  status: 200,
  provider: "a",
  keyId: "one",
  operation: "chat.completions",
  model: "gpt",
  bytesIn: 1,
  bytesOut: 1,
  retries: 0,
  usage: { total: 1500, input: 1000, output: 500, cached: 200 },
};
const price = { input: 2, output: 10, cached: 1 };
const options: KeyMetricsOptions = {
  maxKeys: 2,
  costs: new CallCosts(
    new PriceBook({
      providers: { a: { prices: { "gpt*": price } } },
      prices: { rest: { input: 1, output: 1 } },
    }),
    "EUR",
  ),
};

function make() {
  const registry = new MetricRegistry();
  const metrics = new KeyMetrics(registry);
  const read = (): Readonly<Record<string, string>> =>
    Object.fromEntries(
      toMetricsText(registry.snapshot(), "text").split("\n").filter((line) => /^\w+\{/.test(line))
        .map((line) => line.split(/ (?=[^ ]*$)/)),
    );
  return { metrics, read };
}

describe("the metrics of amounts and costs by class", () => {
  it("count amounts, costs and what no price covers, with bounded labels", () => {
    const registry = new MetricRegistry();
    const observer = new CostMetrics(registry).under(options.costs);
    const parts = [
      { classes: { input: 7, cacheWriteLong: 5, webSearches: 2 }, tariff: { context: 12 } },
      { model: "unknown", classes: { output: 3 }, tariff: { context: 0 } },
    ];
    for (let call = 0; call < 2; call++) {
      observer.settled({ ...record, replica: 0, usage: { total: 15, parts } });
    }
    observer.settled({ ...record, replica: 0, model: "gpt-2" });
    observer.settled({ ...record, status: 500, model: "made up", usage: { total: 1, output: 1 } });
    const text = toMetricsText(registry.snapshot(), "text");
    const seriesOf = (metric: string) =>
      Object.fromEntries(
        Array.from(
          text.matchAll(
            new RegExp(`^sallyport_${metric}_total\\{provider="a",(.*)\\} (.*)$`, "gm"),
          ),
          ([, labels, value]) => [labels, Number(value)],
        ),
      );
    assert.deepEqual(seriesOf("unpriced"), {
      'model="gpt",class="cacheWriteLong"': 10,
      'model="gpt",class="output"': 6,
      'model="gpt",class="webSearches"': 4,
      'model="other",class="output"': 1,
    });
    assert.deepEqual(seriesOf("billed"), {
      'model="gpt",class="input"': 14,
      'model="gpt",class="cacheWriteLong"': 10,
      'model="gpt",class="webSearches"': 4,
      'model="gpt",class="output"': 6,
      'model="gpt-2",class="input"': 800,
      'model="gpt-2",class="cacheRead"': 200,
      'model="gpt-2",class="output"': 500,
      'model="other",class="output"': 1,
    });
    assert.deepEqual(seriesOf("cost"), {
      'model="gpt",class="input",currency="EUR"': 0.000028,
      'model="gpt-2",class="input",currency="EUR"': 0.0016,
      'model="gpt-2",class="cacheRead",currency="EUR"': 0.0002,
      'model="gpt-2",class="output",currency="EUR"': 0.005,
    });
  });
});

describe("metrics by key", () => {
  it("are off, on for a thousand keys, or on for the configured number", () => {
    const read = (byKey?: boolean | number) =>
      parseConfig({ providers: { a: { upstream: "openai" } }, metrics: { byKey } }).metrics.maxKeys;
    assert.deepEqual([undefined, false, true, 7].map(read), [0, 0, 1000, 7]);
    for (const wrong of [0, -1, 1.5, 1e9, "yes"]) {
      assert.throws(
        () => read(wrong as number),
        /metrics\.byKey: expected true, false or a number of keys/,
      );
    }
  });

  it("count exchanges by concern, refusals, tokens and costs", () => {
    const { metrics, read } = make();
    const { settled } = metrics.under(options);
    settled(record);
    settled({ ...record, outcome: "upstream_cut" });
    settled({ ...record, isEstimated: true });
    const { usage: _, ...without } = record;
    settled({
      ...without,
      outcome: "refused",
      status: 429,
      code: "rate_limit_exceeded",
      limit: "requests",
    });
    settled({ ...record, provider: "b", model: "unpriced" });
    settled({ ...record, provider: "b", model: "rest", usage: { total: 1_000_000 } });
    const { keyId: _id, ...nobodys } = record;
    settled(nobodys);
    const seen = read();
    // 800 + 200 input tokens, the latter from the cache, and 500 output tokens, three times. Plus
    // usage that states only a sum.
    const cost = 3 * (800 * 2 + 200 * 1 + 500 * 10) / 1e6 + 1;
    const { 'sallyport_key_cost_total{key="one",currency="EUR"}': told = "", ...counts } = seen;
    assert.ok(Math.abs(Number(told) - cost) < 1e-9, told);
    assert.deepEqual(counts, {
      'sallyport_key_exchanges_total{key="one",concern="nobody"}': "4",
      'sallyport_key_exchanges_total{key="one",concern="caller"}': "1",
      'sallyport_key_exchanges_total{key="one",concern="operator"}': "1",
      'sallyport_key_limits_refused_total{key="one",limit="requests"}': "1",
      'sallyport_key_tokens_total{key="one",type="input"}': "3000",
      'sallyport_key_tokens_total{key="one",type="output"}': "1001500",
      'sallyport_key_estimated_tokens_total{key="one"}': "1500",
    });
  });

  it("name the configured number of keys at most, and keep those when the configuration changes", () => {
    const { metrics, read } = make();
    const before = metrics.under(options);
    for (let count = 0; count < 50; count++) before.settled({ ...record, keyId: `key-${count}` });
    before.settled({ ...record, keyId: "key-1" });
    const after = metrics.under({
      ...options,
      maxKeys: 3,
      costs: new CallCosts(new PriceBook({ providers: {}, prices: {} }), "EUR"),
    });
    after.settled({ ...record, keyId: "key-49" });
    after.settled({ ...record, keyId: "key-48" });
    const exchanges = Object.entries(read()).filter(([series]) =>
      series.startsWith("sallyport_key_exchanges")
    );
    assert.deepEqual(Object.fromEntries(exchanges), {
      'sallyport_key_exchanges_total{key="key-0",concern="nobody"}': "1",
      'sallyport_key_exchanges_total{key="key-1",concern="nobody"}': "2",
      'sallyport_key_exchanges_total{key="(other)",concern="nobody"}': "50",
    });
  });

  describe("of a gateway", () => {
    const closing: (() => unknown)[] = [];
    afterEach(async () => {
      await endPrograms();
      for (const close of closing.splice(0).reverse()) await close();
    });

    async function start(
      more: Record<string, unknown>,
      env: Record<string, string> = {},
      ...args: string[]
    ) {
      const provider = await startProvider();
      const folder = makeFolder();
      closing.push(() => folder.remove(), () => provider.close());
      const config = {
        listen: [{ port: 0 }],
        admin: { port: 0 },
        providers: { a: { upstream: provider.url } },
        keys: [
          { id: "first", name: "a name", key: "a-gateway-key-first" },
          { id: "second", key: "a-gateway-key-second", limits: { requests: "3/h" } },
        ],
        drain: { delay: "0s" },
        ...more,
      };
      writeFileSync(join(folder.path, "gateway.jsonc"), JSON.stringify(config));
      const program = startProgram(["serve", "--log", "off", ...args], { cwd: folder.path, env });
      const url = await program.waitFor(/listening on (http:\S+)/);
      const admin = await program.waitFor(/admin on (http:\S+)/);
      const send = (name: string) =>
        callRaw(url, {
          headers: {
            "authorization": "Bearer sk-1",
            "gateway-auth": `Bearer a-gateway-key-${name}`,
            "content-type": "application/json",
          },
          body: GOOD_BODY,
        });
      const read = async () => await (await fetch(`${admin}/metrics`)).text();
      return { send, read };
    }

    it("are summed over workers, with the counts of each", async () => {
      const { send, read } = await start({ metrics: { byKey: true } }, {}, "--workers", "2");
      for (let count = 0; count < 6; count++) {
        await Promise.all(["first", "second", "unknown"].map(send));
      }
      await until(
        async () => /key_exchanges_total\{key="first",concern="nobody"\} 6\n/.test(await read()),
        "all of the first key's calls are counted",
      );
      const text = await read();
      assert.match(text, /sallyport_key_exchanges_total\{key="second",concern="nobody"\} 3\n/);
      assert.match(text, /sallyport_key_exchanges_total\{key="second",concern="caller"\} 3\n/);
      assert.match(text, /sallyport_key_limits_refused_total\{key="second",limit="requests"\} 3\n/);
      assert.match(text, /sallyport_key_tokens_total\{key="first",type="output"\} [1-9]/);
      assert.doesNotMatch(text, /a name|key="(?!first|second)/);
    });

    it("can be enabled by a variable too, and are absent unless they are enabled", async () => {
      const asked = await start({}, { SALLYPORT_METRICS_BY_KEY: "1" });
      for (const name of ["first", "second"]) assert.equal((await asked.send(name)).status, 200);
      const text = await asked.read();
      assert.match(text, /sallyport_key_exchanges_total\{key="first",concern="nobody"\} 1\n/);
      assert.match(text, /sallyport_key_exchanges_total\{key="\(other\)",concern="nobody"\} 1\n/);
      const quiet = await start({});
      await quiet.send("first");
      assert.doesNotMatch(await quiet.read(), /sallyport_key_|key="/);
    });
  });
});
