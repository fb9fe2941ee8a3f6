/** Prices, and the costs of tokens with them: exact to the last decimal. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { checkConfig, ConfigError } from "../../src/config/config.ts";
import { costOf, formatCost } from "../../src/config/cost.ts";
import type { Price } from "../../src/config/prices.ts";
import { partsOf } from "../../src/exchange/billing.ts";

const config = (more: Record<string, unknown>, provider: Record<string, unknown> = {}) =>
  checkConfig({ providers: { a: { upstream: "openai", ...provider } }, ...more });

const COSTS: readonly [
  price: Price,
  input: number,
  cached: number,
  output: number,
  cost: string,
][] = [
  [{ input: 2.5, output: 10, cached: 1.25 }, 1_000_000, 0, 0, "2.5"],
  [{ input: 2.5, output: 10, cached: 1.25 }, 1_000_000, 400_000, 1_000_000, "12"],
  [{ input: 2.5, output: 10 }, 1_000_000, 400_000, 0, "2.5"],
  [{ input: 2.5, output: 10 }, 0, 0, 0, "0"],
  [{ input: 0, output: 0 }, 5, 5, 5, "0"],
  [{ input: 0.000001, output: 0 }, 1, 0, 0, "0.000000000001"],
  // In binary floating point 0.1 + 0.2 is not 0.3: 3 tokens at 0.1 and 1 at 0.2.
  [{ input: 0.1, output: 0.2 }, 3, 0, 1, "0.0000005"],
  [{ input: 0.07, output: 0.3 }, 123_456_789, 0, 987_654_321, "304.93827153"],
  [{ input: 1e6, output: 1e6 }, Number.MAX_SAFE_INTEGER, 0, 0, "9007199254740991"],
  [{ input: 0.000003, output: 0 }, Number.MAX_SAFE_INTEGER, 0, 0, "27021.597764222973"],
  [{ input: 3, output: 0, cached: 1 }, 2, 9, 0, "0.000002"],
];

const WRONG: readonly [setting: Record<string, unknown>, path: string][] = [
  [{ prices: 5 }, "prices"],
  [{ prices: [{ input: 1, output: 1 }] }, "prices.0"],
  [{ prices: { "": { input: 1, output: 1 } } }, "prices."],
  [{ prices: { m: 5 } }, "prices.m"],
  [{ prices: { m: {} } }, "prices.m"],
  [{ prices: { m: { input: "1e2", output: 1 } } }, "prices.m.input"],
  [{ prices: { m: { input: "-1", output: 1 } } }, "prices.m.input"],
  [{ prices: { m: { input: -1, output: 1 } } }, "prices.m.input"],
  [{ prices: { m: { input: 1, output: 0.0000001 } } }, "prices.m.output"],
  [{ prices: { m: { input: 1, output: "1.0000000001" } } }, "prices.m.output"],
  [{ prices: { m: { input: 1, output: 1e7 } } }, "prices.m.output"],
  [{ prices: { m: { input: 1, output: NaN } } }, "prices.m.output"],
  [{ prices: { m: { input: 1, output: 1, cache: 1 } } }, "prices.m.cache"],
  [{ currency: "usd" }, "currency"],
  [{ currency: "=1+" }, "currency"],
];

describe("prices", () => {
  for (const [price, input, cached, output, cost] of COSTS) {
    it(`${input} tokens, ${cached} of them cached, and ${output} cost ${cost} at ${JSON.stringify(price)}`, () => {
      const [part = assert.fail()] = partsOf({ total: input + output, input, cached, output });
      const { amount = assert.fail() } = costOf(price, part, 0);
      assert.equal(formatCost(amount), cost);
    });
  }

  it("are empty, in US dollars, by default", () => {
    const { prices, currency, providers } = config({});
    assert.deepEqual([prices, currency, providers.a?.prices], [{}, "USD", undefined]);
  });

  it("can be set for all providers and for one", () => {
    const price = { input: 2.5, output: 10, cached: 1.25 };
    const { prices, currency, providers } = config(
      { prices: { "gpt-*": price }, currency: "EUR" },
      {
        prices: { o3: price },
      },
    );
    assert.deepEqual([prices, currency, providers.a?.prices], [{ "gpt-*": price }, "EUR", {
      o3: price,
    }]);
  });

  for (const [setting, path] of WRONG) {
    it(`${JSON.stringify(setting)} is a mistake, named by its path`, () => {
      assert.throws(
        () => config(setting),
        (error) =>
          error instanceof ConfigError && error.issues.some((issue) => issue.path.startsWith(path)),
      );
    });
  }
});
