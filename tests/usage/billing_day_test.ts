/**
 * A day of agents with caches, tiers, broken streams and retries: the gateway's sums are the
 * provider's bill, and budgets hold.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { createRandom } from "../../scripts/chaos/random.ts";
import { formatCost } from "../../src/config/cost.ts";
import { PriceBook } from "../../src/config/price_book.ts";
import { addAmounts, type ClassAmounts, partsOf } from "../../src/exchange/billing.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { BillingProvider, type End, PRICES } from "../support/billing_provider.ts";
import { it } from "../support/cases.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";

const KEY = "own-key-of-an-agent";
const CALLS = 300;
const SEED = 36;
/** The most output of a call. Tokens. */
const MOST_OUTPUT = 2000;

describe("a day of agents", () => {
  let upstream: Provider;
  let under: UnderTest;
  let billing: BillingProvider;
  afterEach(async () => {
    await under.close();
    await upstream.close();
  });

  async function start(
    end: () => End,
    limits?: Record<string, unknown>,
    isBoundedByBytes = false,
  ): Promise<void> {
    billing = new BillingProvider(createRandom(SEED), { end, isBoundedByBytes });
    upstream = await startProvider((response, call) => billing.answer(response, call));
    under = await startUnderTest({
      upstreams: { a: upstream.url },
      config: { prices: PRICES, keys: [{ id: "agent", key: KEY, ...(limits && { limits }) }] },
      provider: { maxOutput: MOST_OUTPUT, maxCalls: 3 },
    });
  }

  const random = createRandom(SEED);
  const chance = (share: number) => random.chance(share);
  /** Makes the next call of an agent. */
  async function call(text = "Hi"): Promise<RawAnswer> {
    const messages = [{ role: "user", content: text }];
    const stream = chance(0.5) && { stream: true };
    const long = chance(0.2) && { long: true };
    const tier = chance(0.3) && { service_tier: chance(0.5) ? "fast" : "flex" };
    const [path, body] = chance(0.5)
      ? ["/v1/messages", {
        model: "claude-opus",
        max_tokens: MOST_OUTPUT,
        messages,
        ...stream,
        ...chance(0.3) && { speed: "fast" },
      }]
      : chance(0.5)
      ? ["/v1/responses", {
        model: "gpt-sol",
        max_output_tokens: MOST_OUTPUT,
        input: text,
        ...stream,
        ...long,
        ...tier,
      }]
      : ["/v1/chat/completions", {
        model: "gpt-sol",
        max_completion_tokens: MOST_OUTPUT,
        messages,
        ...stream,
        ...long,
        ...tier,
      }];
    const before = under.records.length;
    const headers = { ...under.headers, "gateway-auth": `Bearer ${KEY}` };
    const answer = await callRaw(under.a, { path, headers, body: JSON.stringify(body) });
    await under.settled(before + 1);
    return answer;
  }

  /** A message that broke off has stated its input and one token of output. */
  const isStated = ({ usage, isEstimated, outcome }: ExchangeRecord) =>
    usage !== undefined && isEstimated !== true && outcome === "ok";

  it.large("is billed to the last unit for every class that was stated", async () => {
    const endings = createRandom(SEED + 1);
    await start(() => endings.chance(0.1) ? "broken" : endings.chance(0.1) ? "failed" : "whole");
    for (let made = 0; made < CALLS; made++) await call();
    const prices = new PriceBook({ prices: PRICES, providers: {} });
    let classes: ClassAmounts = {};
    let cost = 0n;
    for (const record of under.records.filter(isStated)) {
      const { usage = assert.fail(), model = "", startedAt } = record;
      for (const part of partsOf(usage)) classes = addAmounts(classes, part.classes);
      const found = prices.costOf(usage, { provider: "a", model }, startedAt);
      assert.deepEqual([found.missing, found.unpriced], [undefined, undefined]);
      cost += found.amount ?? 0n;
    }
    // A broken stream states nothing at its end. A plain answer cannot break here.
    const stated = billing.bill.filter(({ end, isStream }) => end === "whole" || !isStream);
    const billed = stated.reduce<ClassAmounts>(
      (sum, entry) => addAmounts(sum, entry.classes),
      {},
    );
    assert.ok(stated.length > CALLS / 2, "too few calls state their usage");
    assert.deepEqual(sorted(classes), sorted(billed));
    const nano = stated.reduce((sum, entry) => sum + entry.cost, 0);
    assert.equal(Number(formatCost(cost)).toFixed(9), (nano / 1e9).toFixed(9));
  });

  it.large("never exceeds a budget by more than the last call used beyond its reservation", async () => {
    await start(() => "whole", { budget: "5 USD/day" });
    let passed = 0;
    for (let refused = 0; refused < 20;) {
      const { status } = await call();
      if (status === 200) passed++;
      else refused++;
    }
    assert.ok(passed > 10, "the budget is used");
    const costs = billing.bill.map(({ cost }) => cost);
    const spent = costs.reduce((sum, cost) => sum + cost, 0);
    assert.ok(spent <= 5e9 + Math.max(...costs), `${spent / 1e9} USD were spent`);
  });

  it.large("never exceeds a strict budget, also if streams break and calls are made at once", async () => {
    const endings = createRandom(SEED + 1);
    const end = () => endings.chance(0.5) ? "broken" : "whole";
    const limits = { budget: "5 USD/day", mode: "strict" };
    await start(end, limits, true);
    let passed = 0;
    for (let refused = 0; refused < 20;) {
      const answers = await Promise.all(Array.from({ length: 5 }, () => call("x".repeat(20_000))));
      for (const { status } of answers) {
        if (status === 429) refused++;
        else passed++;
      }
    }
    assert.ok(passed > 10, "the budget is used");
    const spent = billing.bill.reduce((sum, { cost }) => sum + cost, 0);
    assert.ok(spent <= 5e9, `${spent / 1e9} USD were spent`);
  });
});

const sorted = (amounts: ClassAmounts) =>
  Object.entries(amounts).filter(([, amount]) => amount > 0).sort();
