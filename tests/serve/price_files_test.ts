/** Prices in a file that the configuration names: its form, its mistakes, and its reload. */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { runCommand } from "../support/command.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";

const BASE = {
  listen: [{ port: 0 }],
  providers: { a: { upstream: "openai" } },
  keys: [{ id: "k", key: "0123456789-secret-key" }],
};
const PRICE = { input: 1, output: 2 };

/** A file whose row in line 3 has some conditions, and the row in line 2 others. */
const withRows = (first: object, second: object): string =>
  `{"currency": "USD", "prices": {"m": {"input": 1, "rows": [\n${
    [first, second].map((when) => JSON.stringify({ when, rates: { input: 2 } })).join(",\n")
  }]}}}`;
const HOURS = { from: "01:00", to: "04:00" };
const ALIKE = "prices.m.rows[1]: expected different conditions: an earlier row has the same:3";

/** A file of prices with one mistake, and the part of the message that names it. */
const WRONG: readonly [name: string, text: string, says: string][] = [
  ["an unknown field", '{\n"currency": "USD",\n"vat": 1,\n"prices": {}}', "vat: unknown setting:3"],
  [
    "an unknown field of a price",
    '{"currency": "USD", "prices": {\n"gpt-4.1": {\n"input": 1,\n"outptu": 2}}}',
    "prices.gpt-4.1.outptu: unknown setting:4",
  ],
  [
    "a negative number",
    '{"currency": "USD", "prices": {\n"m": {"input": 1,\n"output": -2}}}',
    "prices.m.output: expected a price from 0 to 1000000, with 9 decimals at most:3",
  ],
  [
    "a number that is no decimal",
    '{"currency": "USD", "prices": {\n"m": {\n"input": "1e3"}}}',
    "prices.m.input: expected a price from 0 to 1000000, with 9 decimals at most:3",
  ],
  [
    "two rows that match alike",
    '{"currency": "USD", "prices": {"m": {"rows": [\n{"rates": {"input": 1}},\n' +
    '{"when": {"over": 9}, "rates": {"input": 2}},\n{"when": {"from": 10},\n"rates": {}}]}}}',
    "prices.m.rows[2]: expected different conditions: an earlier row has the same:4",
  ],
  ["two names of the standard tier", withRows({ tier: "default" }, { tier: "standard" }), ALIKE],
  ["two names of no region", withRows({ geo: "global" }, { geo: "not_available" }), ALIKE],
  [
    "the same choices in another order",
    withRows({ asked: { size: "1", quality: "hd" } }, { asked: { quality: "hd", size: "1" } }),
    ALIKE,
  ],
  [
    "the same days in another order",
    withRows({ hours: [{ days: [1, 2], ...HOURS }] }, { hours: [{ days: [2, 1], ...HOURS }] }),
    ALIKE,
  ],
  [
    "the same days in two ranges",
    withRows(
      { hours: [{ days: [2], ...HOURS }, { days: [1, 1], ...HOURS }] },
      { hours: [{ days: [1, 2], ...HOURS }] },
    ),
    ALIKE,
  ],
  [
    "a row whose choices are empty",
    withRows({ tier: "flex" }, { asked: {} }),
    "prices.m.rows[1]: expected conditions: the rates of the price itself have none:3",
  ],
  [
    "a day that is not in the calendar",
    withRows({ tier: "flex" }, { since: "2026-02-31T00:00:00Z" }),
    'prices.m.rows[1].when.since: expected a time with its zone, such as "2026-08-21T00:00:00Z":3',
  ],
  [
    "an end before the start",
    withRows({ tier: "flex" }, {
      since: "2026-03-01T00:00:00Z",
      until: "2026-03-01T01:00:00+02:00",
    }),
    "prices.m.rows[1].when.until: expected a time after since:3",
  ],
  [
    "a factor whose end is its start",
    '{"currency": "USD", "prices": {"m": {"input": 1, "factors": [{"times": 2, "when": {\n' +
    '"since": "2026-03-01T00:00:00Z",\n"until": "2026-03-01T00:00:00Z"}}]}}}',
    "prices.m.factors[0].when.until: expected a time after since:3",
  ],
  [
    "a row without conditions next to rates without conditions",
    '{"currency": "USD", "prices": {"m": {"input": 1,\n"rows": [\n{"rates": {"input": 2}}]}}}',
    "prices.m.rows[0]: expected conditions: the rates of the price itself have none:3",
  ],
  [
    "a model that occurs twice",
    '{"currency": "USD", "prices": {\n"m": {"input": 1},\n"m": {"input": 2}}}',
    "prices.file: expected each name once: an earlier line has the same:3",
  ],
  [
    "another currency",
    '{\n"currency": "EUR", "prices": {}}',
    "currency: expected USD, the currency of all prices:2",
  ],
  [
    "a price in another currency",
    '{"currency": "USD", "prices": {\n"gpt-4.1": {"input": 1,\n"currency": "EUR"}}}',
    "prices.gpt-4.1.currency: expected USD, the currency of all prices:3",
  ],
  ["no currency", '{"prices": {}}', "currency: is missing:1"],
  [
    "another file",
    '{"currency": "USD", "prices": {\n"file": "more.json"}}',
    "prices.file: cannot read a file here: give the prices themselves:2",
  ],
  ["a mistake of JSON", '{"currency":\n}', "prices.file: cannot parse the file: line 2"],
];

describe("a file of prices", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });
  const write = (content: unknown, name = "gateway.jsonc") => {
    const file = join(folder.path, name);
    writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content), {
      mode: 0o600,
    });
    return file;
  };
  const check = (config: object, env: Record<string, string> = {}) =>
    runCommand(["check", "--config", write({ ...BASE, ...config })], { env });

  it("is read for all providers and for one; the configuration's own prices come first", async () => {
    write({ currency: "USD", date: "2026-11-26", prices: { m: PRICE, n: PRICE } }, "all.json");
    write({ currency: "USD", prices: { file: PRICE } }, "a.json");
    const { stdout, stderr } = await check({
      prices: { file: "all.json", n: { input: 3 } },
      providers: { a: { upstream: "openai", prices: { file: "a.json" } } },
    });
    const config = JSON.parse(stdout || assert.fail(stderr));
    assert.deepEqual(config.prices, { m: PRICE, n: { input: 3 } });
    assert.deepEqual(config.providers.a.prices, { file: PRICE }, "a model can have this name");
  });

  it("is named by a variable too, and allowed by the flags for Deno", async () => {
    const file = write({ currency: "USD", prices: { m: PRICE } }, "prices.json");
    const env = { SALLYPORT_PRICES: '{"file": "prices.json"}' };
    const { stdout, stderr } = await check({}, env);
    assert.deepEqual(JSON.parse(stdout || assert.fail(stderr)).prices, { m: PRICE });
    const flags = await runCommand(["check", "--config", write(BASE), "--deno-flags"], { env });
    assert.ok(flags.stdout.includes(file), flags.stdout);
  });

  for (const [name, text, says] of WRONG) {
    it(`is refused with ${name}, by path and line`, async () => {
      const file = write(text, "prices.json");
      const { status, stderr } = await check({ prices: { file: "prices.json" } });
      assert.equal(status, 2);
      const [, message = "", line = ""] = /^(.*):(\d+)$/.exec(says) ?? [, says];
      assert.ok(stderr.includes(message), stderr);
      assert.ok(stderr.includes(`(${file}:${line}`), stderr);
      assert.equal(stderr.trim().split("\n").length, 1, stderr);
    });
  }

  it("is refused if it is absent; every other mistake is named too", async () => {
    const { status, stderr } = await check({ prices: { file: "none.json" }, log: "loud" });
    assert.equal(status, 2);
    assert.match(stderr, /prices\.file: cannot read the file \(ENOENT\) \(.*none\.json\)/);
    assert.match(stderr, /log: expected "auto"/);
  });

  it("is not needed for a budget to be refused: prices in another currency are named", async () => {
    const { stderr } = await check({
      prices: { "gpt-4.1": { ...PRICE, currency: "EUR" } },
      providers: { a: { upstream: "openai", prices: { m: { ...PRICE, currency: "CHF" } } } },
    });
    assert.match(stderr, /: prices\.gpt-4\.1\.currency: expected USD.*gateway\.jsonc:1\)/);
    assert.match(stderr, /: providers\.a\.prices\.m\.currency: expected USD/);
  });

  it("is read again at SIGHUP, if it alone has changed and if it has a mistake", async () => {
    const writePrice = (input: number) =>
      write({ currency: "USD", prices: { "claude-x": { input } } }, "prices.json");
    writePrice(1);
    const config = write({ ...BASE, prices: { file: "prices.json" } });
    const program = startProgram(["serve", "--config", config, "--log", "off"]);
    await program.waitFor(/(warning: prices\.claude-x: has no cacheWrite)/);
    await program.waitFor(/listening on (http:\S+)/);
    writePrice(-1);
    program.kill("SIGHUP");
    await program.waitFor(/not reloaded.*(prices\.claude-x\.input: expected a price)/);
    writePrice(2);
    program.kill("SIGHUP");
    const digest = await program.waitFor(/reloaded.*digest ([0-9a-f]+)/);
    const checked = await runCommand(["check", "--config", config]);
    assert.match(checked.stderr, new RegExp(`digest ${digest}`));
  });
});

describe("a model that writes caches", () => {
  const warned = async (prices: object) => {
    const folder = makeFolder();
    try {
      const file = join(folder.path, "gateway.jsonc");
      writeFileSync(file, JSON.stringify({ ...BASE, prices }), { mode: 0o600 });
      const { stderr } = await runCommand(["check", "--config", file]);
      return Array.from(
        stderr.matchAll(/warning: prices\.(\S+): has no cacheWrite/g),
        ([, m]) => m,
      );
    } finally {
      folder.remove();
    }
  };

  it("is named if its price, or one of its rows, has no price of cache writes", async () => {
    const written = { ...PRICE, cacheWrite: 1.25 };
    const names = [
      "claude-opus-5-5",
      "anthropic/claude-haiku-5-5",
      "us.anthropic.claude-sonnet-5-v1:0",
      "claude-*",
      "gpt-5.6",
      "gpt-6.2-sol",
      "gpt-*",
    ];
    const others = ["gpt-5.5", "gpt-5", "gpt-4*", "o3", "gemini-3-pro", "*", "not-claude"];
    const all = Object.fromEntries([...names, ...others].map((name) => [name, PRICE]));
    assert.deepEqual(await warned(all), names);
    assert.deepEqual(await warned({ "claude-x": written }), []);
    const rows = [{ when: { over: 200_000 }, rates: PRICE }];
    assert.deepEqual(await warned({ "claude-x": { ...written, rows } }), ["claude-x"]);
  });
});
