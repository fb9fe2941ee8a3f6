/**
 * Answers of providers through the gateway: the billing classes of their usage, and the exact cost.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { findBoundCost } from "../../src/config/bound_cost.ts";
import { formatCost, parseCost, toNano } from "../../src/config/cost.ts";
import { PriceBook } from "../../src/config/price_book.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { startUnderTest } from "../support/gateway.ts";
import {
  CASES,
  classesOf,
  eventsOf,
  expectedClasses,
  type MoneyCase,
  PRICES,
  pricesOf,
  RESERVATIONS,
  toCall,
  toEventStream,
} from "../support/money_vectors.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";

const KEY = "own-key-with-a-budget";
/** Money of the budget, in 10^-9 of its currency. */
const BUDGET = 1000 * 1e9;
/** Size of the pieces in which the stand-in sends streams. Bytes. */
const PIECE = 97;
const STANDARD = ["default", "standard", "auto", "on_demand", "global", "not_available"];
const named = (name: string | undefined) => STANDARD.includes(name ?? "") ? undefined : name;

/** The record of a call, and the money that its budget was charged. */
interface Settled {
  readonly record: ExchangeRecord;
  readonly charged: number;
}

describe("an answer of a provider", () => {
  let provider: Provider;
  let answer: { status: number; headers: Record<string, string>; body: Uint8Array };
  beforeAll(async () => {
    provider = await startProvider(async (response, { path }) => {
      if (path === "/v1/models") {
        return response.setHeader("content-type", "application/json").end("{}");
      }
      response.writeHead(answer.status, answer.headers);
      for (let at = 0; at < answer.body.length; at += PIECE) {
        response.write(answer.body.subarray(at, at + PIECE));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
    });
  });
  afterAll(() => provider.close());

  function settingsOf(each: MoneyCase) {
    const prices = pricesOf(each);
    const own = prices[each.model];
    const isGeoStated = JSON.stringify(each.body ?? each.events ?? {}).includes("inference_geo");
    const limits = own === undefined ? {} : { limits: { budget: "1000 USD/month" } };
    return {
      provider: {
        operations: ["all"],
        prices: own === undefined ? prices : { ...prices, "*": own },
        ...(isGeoStated || each.geo === undefined ? {} : { region: each.geo }),
        ...(each.stated === undefined ? {} : { statesCost: true }),
      },
      config: { keys: [{ id: "team", key: KEY, ...limits }] },
    };
  }

  async function settle(each: MoneyCase, isStream: boolean): Promise<Settled> {
    const events = isStream ? eventsOf(each) : undefined;
    const type = isStream ? "text/event-stream" : "application/json";
    answer = {
      status: each.status ?? 200,
      headers: { "content-type": type, ...each.headers },
      body: Buffer.from(
        events === undefined ? JSON.stringify(each.body ?? "") : toEventStream(events),
      ),
    };
    const now = Date.parse(each.at);
    const under = await startUnderTest({
      upstreams: { a: provider.url },
      ...settingsOf(each),
      parts: { clock: { ...systemClock, now: () => now } },
    });
    try {
      const headers = { ...under.headers, "gateway-auth": `Bearer ${KEY}` };
      await callRaw(under.a, { headers, ...toCall(each, isStream) });
      const record = await under.settled();
      const { headers: limits } = await callRaw(under.a, {
        method: "GET",
        path: "/v1/models",
        headers: { ...headers, "content-type": undefined },
      });
      await under.settled(2);
      const left = /"spend";r=(\d+)/.exec(limits.ratelimit ?? "")?.[1] ?? NaN;
      return { record, charged: BUDGET - Number(left) };
    } finally {
      await under.close();
    }
  }

  function costOf(each: MoneyCase, { usage, model = each.model }: ExchangeRecord) {
    const { provider: settings } = settingsOf(each);
    const book = new PriceBook({ prices: {}, providers: { a: settings } });
    assert.ok(usage !== undefined, "usage is stated");
    return book.costOf(usage, { provider: "a", model }, Date.parse(each.at));
  }

  function assertStated(each: MoneyCase, { record, charged }: Settled): void {
    const { usage } = record;
    assert.ok(usage !== undefined, "usage is stated");
    assert.deepEqual(classesOf(usage), expectedClasses(each));
    if (each.total !== undefined) assert.equal(usage.total, each.total);
    const [first] = usage.parts ?? [];
    assert.equal(first?.tariff.tier, named(each.tier), "tier");
    assert.equal(named(first?.tariff.geo), named(each.geo), "region");
    if (each.asked !== undefined) assert.deepEqual(first?.tariff.asked, each.asked);
    if (each.context !== undefined) assert.equal(first?.tariff.context, each.context);
    assert.equal(usage.statedCost, each.stated);
    const { amount, missing, unpriced } = costOf(each, record);
    assert.equal(amount === undefined ? null : formatCost(amount), each.cost);
    assert.equal(missing, each.reason);
    if (missing === undefined) assert.deepEqual(unpriced, each.unpriced);
    else assert.ok(unpriced !== undefined, "nothing has a price");
    const isCharged = !Number.isNaN(charged) && each.unpriced === undefined;
    if (isCharged && each.cost !== null) assert.equal(charged, toNano(parseCost(each.cost)));
    else if (isCharged) assert.ok(charged > 0, "an unknown price is not free");
  }

  function assertEstimated({ record, charged }: Settled): void {
    assert.equal(record.isEstimated, true);
    assert.ok((record.usage?.total ?? 0) > 0);
    assert.ok(charged > 0);
  }

  for (const each of CASES) {
    const check = (settled: Settled): void => {
      const isFree = each.free === true || each.interface === "openai.moderations";
      if (each.charge !== undefined) assertEstimated(settled);
      else if (isFree) {
        assert.deepEqual([settled.record.usage, settled.charged || 0], [undefined, 0]);
      } else assertStated(each, settled);
    };
    if (each.events === undefined) {
      it(`is divided into its classes: ${each.id}`, async () => check(await settle(each, false)));
    }
    if (eventsOf(each) !== undefined) {
      it(`is divided into its classes in a stream: ${each.id}`, async () =>
        check(await settle(each, true)));
    }
  }
});

describe("the most that a call can cost", () => {
  for (const each of RESERVATIONS) {
    it(`is that of the dearest tariff: ${each.id}`, () => {
      const { price = assert.fail("no price") } = { price: PRICES[each.price] };
      const { amount, missing } = findBoundCost(price, {
        input: each.inputTokens,
        output: each.maxOutput,
        hasLongWrites: each.longWrites ?? false,
        ...(each.modalities !== undefined && { inputKinds: ["Audio"], outputKinds: ["Audio"] }),
        ...(each.tiers !== undefined && { tiers: each.tiers }),
        ...(each.geos !== undefined && { geos: each.geos }),
        ...(each.calls !== undefined && { units: each.calls }),
      }, Date.parse(each.at));
      assert.equal(missing === undefined ? formatCost(amount) : null, each.most);
    });
  }

  it("covers the charge by a tariff without a price: the fee of the call, and dear output", () => {
    const price = { input: 1, output: 2, outputImage: 30, requests: 5 };
    const tiers = ["priority"];
    const bound = { input: 1_000_000, output: 1_000_000, tiers, outputKinds: ["Image"] } as const;
    const { amount, missing } = findBoundCost(price, bound, 0);
    assert.deepEqual([formatCost(amount), missing], ["31.005", "tier"]);
  });
});
