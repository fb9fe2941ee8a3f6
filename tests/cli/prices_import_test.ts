/** `sallyport prices import`: exact prices from published tables, and a name for all the rest. */
// runtimes: once
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { costOf, formatCost } from "../../src/config/cost.ts";
import type { Price, PriceRow } from "../../src/config/prices.ts";
import { checkPriceFile, type PriceFile } from "../../src/config/price_table.ts";
import type { ClassAmounts, Tariff } from "../../src/exchange/billing.ts";
import { runCommand } from "../support/command.ts";
import { GENAI_PRICES, LITELLM, MODELS_DEV } from "../support/price_tables.ts";
import { makeFolder } from "../support/program.ts";

const NOW = Date.now();
const DAY_MS = 86_400_000;

let folder: ReturnType<typeof makeFolder>;
beforeEach(() => void (folder = makeFolder()));
afterEach(() => folder.remove());
const pathOf = (name: string) => join(folder.path, name);
const write = (content: unknown, name: string) =>
  writeFileSync(pathOf(name), typeof content === "string" ? content : JSON.stringify(content));
const readOut = (): PriceFile => {
  const checked = checkPriceFile(JSON.parse(readFileSync(pathOf("prices.json"), "utf8")), "USD");
  return "prices" in checked ? checked : assert.fail(JSON.stringify(checked));
};
const run = (table: unknown, format: string, provider: string, ...more: string[]) => {
  write(table, "table.json");
  return runCommand(
    ["prices", "import", "table.json", "--format", format, "--provider", provider]
      .concat("--out", "prices.json", more),
    { cwd: folder.path },
  );
};
const take = async (table: unknown, format: string, provider: string, ...more: string[]) => {
  const { status, stdout, stderr } = await run(table, format, provider, ...more);
  assert.equal(status, 0, stderr);
  return { stdout, prices: existsSync(pathOf("prices.json")) ? readOut().prices : {} };
};
const priceOf = (prices: Readonly<Record<string, Price>>, model: string): Price =>
  prices[model] ?? assert.fail(`${model} in ${Object.keys(prices)}`);

/** Returns the cost of some classes, or what is missing. */
function cost(price: Price, classes: ClassAmounts, tariff: Partial<Tariff> = {}, at = NOW): string {
  const found = costOf(price, { classes, tariff: { context: 0, ...tariff } }, at);
  if (found.unpriced !== undefined) return `no ${Object.keys(found.unpriced)}`;
  return found.amount === undefined ? `no ${found.missing}` : formatCost(found.amount);
}
const M = 1_000_000;

describe("the import of LiteLLM's table", () => {
  it("takes rates by tier, threshold and region, exactly", async () => {
    const { prices, stdout } = await take(LITELLM, "litellm", "a=openai", "--models", "gpt-6*");
    assert.deepEqual(Object.keys(prices), ["gpt-6.2-sol"]);
    const price = priceOf(prices, "gpt-6.2-sol");
    const all = { input: M, output: M, cacheRead: M, cacheWrite: M };
    assert.equal(cost(price, all), "16.6");
    assert.equal(cost(price, { input: M, output: M }, { context: 272_000 }), "14");
    assert.equal(cost(price, { input: M, output: M }, { context: 272_001 }), "22");
    assert.equal(cost(price, { input: M, output: M }, { tier: "priority" }), "28");
    assert.equal(cost(price, { input: M, output: M }, { tier: "batch" }), "7");
    assert.equal(cost(price, { input: M }, { tier: "ultrafast" }), "6");
    const long = { context: 300_000, tier: "priority" };
    assert.equal(cost(price, { input: M, output: M }, long), "44");
    assert.equal(cost(price, { input: M }, { geo: "eu" }), "2.2");
    assert.equal(cost(price, { webSearches: 1, fileSearches: 2, codeSessions: 1 }), "0.045");
    assert.match(stdout, /without a billing class.*\n {2}file_search_cost_per_gb_per_day \(gpt-6/);
    assert.match(stdout, /To use it, set providers\.a\.prices to \{ "file": "/);
  });

  it("leaves a tier without a price at a threshold unpriced, not at the lower price", async () => {
    const { prices } = await take(LITELLM, "litellm", "openai", "--models", "gpt-6*");
    const price = priceOf(prices, "gpt-6.2-sol");
    assert.equal(cost(price, { input: M }, { tier: "flex" }), "1");
    assert.equal(cost(price, { input: M }, { tier: "flex", context: 300_000 }), "no tier");
  });

  it("reads each number by its shortest text, and refuses more than nine decimals", async () => {
    const { prices, stdout } = await take(LITELLM, "litellm", "openai", "--models", "gpt-*");
    assert.deepEqual(priceOf(prices, "gpt-4o-mini"), {
      input: 0.15,
      output: 0.6,
      source: "litellm openai",
    });
    assert.equal(priceOf(prices, "gpt-tiny").input, "0.0000001", "a text where JSON writes 1e-7");
    assert.equal(prices["gpt-too-fine"], undefined);
    assert.match(stdout, /input_cost_per_token: more than 9 decimals \(gpt-noise, gpt-too-fine\)/);
    assert.match(stdout, /input_cost_per_token: expected a decimal from 0 \(gpt-negative\)/);
  });

  it("leaves 0 without a price, because it means free or unknown", async () => {
    const { prices, stdout } = await take(LITELLM, "litellm", "deepseek");
    assert.equal("cacheWrite" in priceOf(prices, "deepseek-chat"), false);
    assert.match(
      stdout,
      /free or unknown.*\n {2}cache_creation_input_token_cost \(deepseek-chat\)/,
    );
    const openai = await take(LITELLM, "litellm", "openai");
    assert.equal(openai.prices["gpt-free"], undefined);
    assert.match(openai.stdout, /all of its prices \(gpt-free\)/);
  });

  it("names every key that it does not understand", async () => {
    const { stdout } = await take(LITELLM, "litellm", "openai", "--models", "gpt-new-keys");
    const [, keys = ""] = /^not understood:\n((?: {2}.*\n)+)/m.exec(stdout) ?? [];
    assert.deepEqual(keys.trim().split(/\n\s*/), [
      "input_cost_per_smell (gpt-new-keys)",
      "lunar_phase (gpt-new-keys)",
      "output_cost_per_token_above_1hr (gpt-new-keys)",
    ]);
    const all = await take(LITELLM, "litellm", "openai", "--models", "*", "--dry-run");
    const [, others = ""] = /^not understood:\n((?: {2}.*\n)+)/m.exec(all.stdout) ?? [];
    assert.equal(others, keys, "all other keys of the table are understood");
  });

  it("takes audio, images by size, seconds once, characters and video", async () => {
    const { prices, stdout } = await take(LITELLM, "litellm", "openai");
    const audio = priceOf(prices, "gpt-4o-audio-preview");
    assert.equal(cost(audio, { inputAudio: M, outputAudio: M, cacheReadAudio: M }), "122.5");
    const image = priceOf(prices, "gpt-image-1");
    assert.equal(
      cost(image, { input: M, inputImage: M, cacheReadImage: M, outputImage: M }),
      "57.5",
    );
    assert.equal(cost(priceOf(prices, "whisper-1"), { audioMs: 3_600_000 }), "0.36");
    assert.equal(prices["whisper-differs"], undefined);
    assert.match(stdout, /another price for the same thing \(whisper-differs\)/);
    assert.equal(cost(priceOf(prices, "tts-1"), { characters: M }), "15");
    assert.equal(cost(priceOf(prices, "sora-2"), { videoMs: 8000 }), "0.8");
    const square = { asked: { size: "1024x1024" } };
    assert.equal(cost(priceOf(prices, "dall-e-2"), { images: 1 }, square), "0.019922944");
    const tall = { asked: { size: "1024x1792", quality: "hd" } };
    assert.equal(cost(priceOf(prices, "dall-e-3"), { images: 1 }, tall), "0.12");
    assert.equal(cost(priceOf(prices, "dall-e-3"), { images: 1 }), "0.04");
    assert.equal(
      cost(priceOf(prices, "gpt-5.6-fast-key"), { input: M }, { tier: "priority" }),
      "2.5",
    );
  });

  it("takes long cache writes, factors and thresholds of each provider", async () => {
    const { prices } = await take(LITELLM, "litellm", "anthropic");
    const opus = priceOf(prices, "claude-opus-5-5");
    assert.equal(cost(opus, { cacheWrite: M, cacheWriteLong: M }), "13");
    assert.equal(cost(opus, { input: M }, { geo: "us", tier: "fast" }), "8.8");
    const sonnet = priceOf(prices, "claude-sonnet-4-5");
    assert.equal(cost(sonnet, { cacheWriteLong: M }, { context: 200_001 }), "12");
    const { prices: xai } = await take(LITELLM, "litellm", "xai");
    assert.equal(cost(priceOf(xai, "grok-4"), { input: M }, { context: 200_000 }), "4");
    const { prices: qwen } = await take(LITELLM, "litellm", "dashscope");
    assert.equal(cost(priceOf(qwen, "qwen-plus"), { input: M }, { context: 256_000 }), "0.4");
    assert.equal(cost(priceOf(qwen, "qwen-plus"), { input: M }, { context: 256_001 }), "1.2");
  });

  it("takes off-peak hours, whose days are those of a time zone", async () => {
    const { prices, stdout } = await take(LITELLM, "litellm", "deepseek");
    const price = priceOf(prices, "deepseek-chat");
    const at = (time: string) => cost(price, { input: M }, {}, Date.parse(time));
    assert.equal(at("2026-11-25T16:29:00Z"), "0.56");
    assert.equal(at("2026-11-25T16:30:00Z"), "0.28");
    assert.equal(at("2026-11-26T00:29:00Z"), "0.28");
    assert.equal(at("2026-11-26T00:30:00Z"), "0.56");
    // Friday 16:00 in UTC is Saturday in Shanghai; Sunday 16:00 is Monday there.
    assert.equal(at("2026-11-27T15:59:00Z"), "0.56");
    assert.equal(at("2026-11-27T16:00:00Z"), "0.28");
    assert.equal(at("2026-11-29T15:59:00Z"), "0.28");
    assert.equal(at("2026-11-29T16:00:00Z"), "0.56");
    assert.match(stdout, /not understood:\n {2}off_peak_pricing: its hours \(deepseek-lunar\)/);
  });

  it("takes fees of calls: searches by context, search units, pages, requests", async () => {
    const { prices } = await take(LITELLM, "litellm", "perplexity");
    const sonar = priceOf(prices, "sonar-deep");
    assert.equal(cost(sonar, { webSearches: 1, citation: M }), "2.008");
    const high = { asked: { search_context_size: "high" } };
    assert.equal(cost(sonar, { webSearches: 1 }, high), "0.012");
    const { prices: cohere } = await take(LITELLM, "litellm", "cohere");
    assert.equal(cost(priceOf(cohere, "rerank-v4"), { searchUnits: 1 }), "0.002");
    const { prices: mistral, stdout } = await take(LITELLM, "litellm", "mistral");
    assert.equal(cost(priceOf(mistral, "mistral-ocr"), { pages: 3 }), "0.003");
    const annotated = { asked: { pages: "annotated" } };
    assert.equal(cost(priceOf(mistral, "mistral-ocr"), { pages: 3 }, annotated), "0.009");
    assert.match(stdout, /file_search_cost_per_gb_per_day \(mistral-ocr\)/);
    const vertex = await take(LITELLM, "litellm", "vertex_ai-language-models");
    const video = priceOf(vertex.prices, "gemini-3-video");
    assert.equal(cost(video, { inputVideo: M, outputVideo: M, requests: 1 }), "5.01");
    assert.equal(cost(video, { input: M }, { geo: "regional" }), "1.1");
    assert.match(vertex.stdout, /needs "region": "regional" at a provider \(gemini-3-video\)/);
  });

  it("takes no key and no mode for a price because every object has its name", async () => {
    const odd = { toString: 1, constructor: 2, hasOwnProperty: 3 };
    const entry = { litellm_provider: "openai", input_cost_per_token: 1e-6 };
    const table = {
      a: { ...entry, ...odd },
      b: { ...entry, mode: "constructor", name: 4 },
      toString: entry,
    };
    const { prices, stdout } = await take(table, "litellm", "openai");
    assert.deepEqual(Object.keys(prices), ["a", "b", "toString"]);
    assert.match(
      stdout,
      /not understood:\n {2}constructor \(a\)\n {2}hasOwnProperty \(a\)\n {2}name \(b\)\n/,
    );
    assert.match(stdout, / {2}toString\n {4}\+ input 1\n/);
  });

  it("refuses a name with two prices", async () => {
    const { status, stdout, stderr } = await run(LITELLM, "litellm", "azure");
    assert.equal(status, 2);
    assert.match(stdout, /two different prices under this name \(gpt-4o\)/);
    assert.match(stderr, /the table has no price of a wanted model of azure/);
  });
});

describe("the import of other tables", () => {
  it("takes thresholds and modes of models.dev, and names the rest", async () => {
    const { prices, stdout } = await take(MODELS_DEV, "models.dev", "openai");
    const price = priceOf(prices, "gpt-6.2-sol");
    assert.equal(cost(price, { input: M, cacheWrite: M, inputAudio: M, reasoning: M }), "56.5");
    assert.equal(cost(price, { input: M }, { context: 272_001 }), "4");
    assert.equal(cost(price, { input: M }, { tier: "priority" }), "4");
    assert.equal(cost(price, { input: M }, { tier: "priority", context: 272_001 }), "no tier");
    assert.equal(cost(priceOf(prices, "old-long"), { input: M }, { context: 200_001 }), "2");
    assert.match(
      stdout,
      /not understood:\n {2}experimental\.modes\.odd \(.*\n {2}horoscope \(gpt-6/,
    );
    assert.match(stdout, /its name is taken as the threshold \(old-long\)/);
    assert.match(stdout, /a condition that is not known \(by-night\)/);
    assert.equal(prices["by-night"], undefined);
    assert.equal(prices["gpt-free"], undefined);
  });

  it("takes dates, hours and thresholds of genai-prices", async () => {
    const { prices, stdout } = await take(GENAI_PRICES, "genai-prices", "anthropic");
    const price = priceOf(prices, "claude-sonnet-5-5");
    const before = Date.parse("2026-10-06T23:59:59Z");
    assert.equal(cost(price, { cacheRead: M }, {}, before), "0.3");
    assert.equal(cost(price, { cacheRead: M }, {}, before + 1000), "0.15");
    const long = { context: 200_001 };
    assert.equal(cost(price, { input: M, output: M, cacheRead: M }, long), "21.15");
    assert.equal(cost(price, { cacheWriteLong: M, webSearches: 1 }), "6.01");
    const night = Date.parse("2026-11-26T00:10:00Z");
    assert.equal(cost(priceOf(prices, "night-owl"), { input: M }, {}, night), "1");
    assert.match(stdout, /not understood:\n {2}prices\.sausage_mtok \(night-owl\)/);
  });

  it("refuses only the models whose prices a file of prices cannot have", async () => {
    const constraint = { start_date: "2026-13-45" };
    const prices = { input_mtok: 1 };
    const models = [
      { id: "dated", prices: [{ prices }, { constraint, prices }] },
      { id: "123", prices },
      { id: "constructor", prices },
      { id: "dear", prices: { input_mtok: 1e7 } },
      { id: "fine", prices },
    ];
    const { prices: taken, stdout } = await take([{ id: "x", models }], "genai-prices", "x");
    assert.deepEqual(Object.keys(taken), ["fine"]);
    const [, lines = ""] = /^refused.*:\n((?: {2}.*\n)+)/m.exec(stdout) ?? [];
    assert.deepEqual(lines.trim().split(/\n\s*/), [
      "expected another name of the model (constructor)",
      "expected the name of a model (123)",
      "input: expected a price from 0 to 1000000, with 9 decimals at most (dear)",
      'rows[0].when.since: expected a time with its zone, such as "2026-08-21T00:00:00Z" (dated)',
    ]);
  });
});

describe("an import into a file that is there", () => {
  const table = (input: number, more: object = {}) => ({
    "gpt-6": { litellm_provider: "openai", input_cost_per_token: input, ...more },
    "gpt-7": { litellm_provider: "openai", input_cost_per_token: 1e-6 },
  });
  const age = (days: number) => {
    const file = readFileSync(pathOf("prices.json"), "utf8");
    const now = new Date(NOW).toISOString().slice(0, 10);
    const then = new Date(NOW - days * DAY_MS).toISOString().slice(0, 10);
    writeFileSync(pathOf("prices.json"), file.replaceAll(now, then));
  };

  it("opens changed prices today, and prices history as before", async () => {
    const factor = { provider_specific_entry: { us: 1.1 } };
    await take(table(1e-6, factor), "litellm", "openai");
    const other = { provider_specific_entry: { us: 1.2 }, output_cost_per_token_flex: 1e-6 };
    const { prices, stdout } = await take(table(2e-6, other), "litellm", "openai");
    assert.match(stdout, /changed \(1\):\n {2}gpt-6\n(?: {4}.*\n)* {4}\+ \[since \S+\] input 2\n/);
    assert.match(stdout, /unchanged \(1\): gpt-7/);
    const price = priceOf(prices, "gpt-6");
    const us = { geo: "us" };
    assert.equal(cost(price, { input: M }, us, NOW - DAY_MS), "1.1");
    assert.equal(cost(price, { input: M }, us), "2.4");
    assert.equal(cost(price, { output: M }, { tier: "flex" }), "1");
    assert.equal(cost(price, { output: M }, { tier: "flex" }, NOW - DAY_MS), "no tier");
    // On another day, and back again: each period keeps its price.
    age(3);
    const again = await take(table(1e-6, factor), "litellm", "openai");
    const last = priceOf(again.prices, "gpt-6");
    const costs = [5, 2, 0].map((days) => cost(last, { input: M }, us, NOW - days * DAY_MS));
    assert.deepEqual(costs, ["1.1", "2.4", "1.1"]);
  });

  it("replaces rows of the same day, and writes nothing without a difference", async () => {
    await take(table(1e-6), "litellm", "openai");
    await take(table(2e-6), "litellm", "openai");
    const { prices } = await take(table(3e-6), "litellm", "openai");
    const rows: readonly PriceRow[] = priceOf(prices, "gpt-6").rows ?? [];
    assert.deepEqual(rows.map(({ rates }) => rates.input), [3]);
    const { stdout } = await take(table(3e-6), "litellm", "openai");
    assert.match(stdout, /was not written: no price has changed/);
  });

  it("ends prices of models that the table has lost, but no price of another source", async () => {
    await take(table(1e-6), "litellm", "openai");
    const { prices } = readOut();
    write({ ...readOut(), prices: { ...prices, mine: { input: 5 } } }, "prices.json");
    const { "gpt-6": _, ...rest } = table(1e-6);
    const { prices: left, stdout } = await take(rest, "litellm", "openai");
    assert.match(stdout, /^closed \(1\):\n {2}gpt-6\n/m);
    assert.equal(cost(priceOf(left, "gpt-6"), { input: M }, {}, NOW - DAY_MS), "1");
    assert.equal(cost(priceOf(left, "gpt-6"), { input: M }), "no row");
    assert.deepEqual(left.mine, { input: 5 });
    const { stdout: again } = await take(rest, "litellm", "openai");
    assert.doesNotMatch(again, /closed/);
    // A price that is refused today, or 0, ends nothing.
    const refused = { ...table(1.23456789012e-7), "gpt-7": { litellm_provider: "openai" } };
    const { stdout: wrong } = await run(refused, "litellm", "openai");
    assert.doesNotMatch(wrong, /closed|changed \(/);
  });

  it("states source, date and digest of the table; --dry-run writes nothing", async () => {
    const dry = await run(table(1e-6), "litellm", "openai", "--dry-run");
    assert.match(dry.stdout, /added \(2\):[^]*was not written \(--dry-run\)/);
    assert.equal(existsSync(pathOf("prices.json")), false);
    await take(table(1e-6), "litellm", "openai");
    const { source, date, digest, currency } = readOut();
    assert.deepEqual([source, currency], ["litellm openai, table.json", "USD"]);
    assert.equal(date, new Date(NOW).toISOString().slice(0, 10));
    assert.match(digest ?? "", /^[0-9a-f]{64}$/);
  });

  it("refuses a file of another currency, and mistakes of the command", async () => {
    write('{"currency": "EUR",\n"prices": {}}', "prices.json");
    const foreign = await run(table(1e-6), "litellm", "openai");
    assert.equal(foreign.status, 2);
    assert.match(foreign.stderr, /currency: expected USD.*prices\.json:1\)/);
    const cases: readonly [args: string[], says: RegExp][] = [
      [[], /name the file of the table/],
      [["none.json"], /--format takes litellm, models\.dev, genai-prices/],
      [["none.json", "--format", "litellm"], /--provider takes/],
      [["none.json", "--format", "litellm", "--provider", "x"], /--out takes/],
      [
        ["none.json", "--format", "litellm", "--provider", "x", "--out", "o.json"],
        /cannot read the table none\.json \(ENOENT\)/,
      ],
      [
        ["table.json", "--format", "genai-prices", "--provider", "x", "--out", "o.json"],
        /does not have the form of a table of genai-prices/,
      ],
    ];
    for (const [args, says] of cases) {
      const { status, stderr } = await runCommand(["prices", "import", ...args], {
        cwd: folder.path,
      });
      assert.equal(status, 2, stderr);
      assert.match(stderr, says);
    }
  });
});
