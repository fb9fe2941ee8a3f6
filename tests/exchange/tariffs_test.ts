/** Money that a budget reserves: by the dearest tariff that a request can meet. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { ShapeName } from "../../src/config/shape.ts";
import { closeAll } from "../support/aimock.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { startShaped } from "../support/shapes.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";

const KEY = "own-key-with-a-budget";
/** A million tokens: the body of each call has fewer than 1,500 tokens, and 1,000 of output. */
const RATES = { input: 4, cacheRead: 0.2, cacheWrite: 5, cacheWriteLong: 8, output: 20 };
const PRICES = {
  m: {
    ...RATES,
    webSearches: 10,
    rows: [{ when: { over: 100_000 }, rates: { ...RATES, output: 200 } }],
    factors: [
      { when: { tier: "fast" }, times: 2 },
      { when: { tier: "priority" }, times: "1.5" },
      { when: { geo: "us" }, times: "1.1" },
    ],
  },
};
/** Above the dearest standard call, 0.0275, and below all others. */
const BUDGET = "0.028 USD/day";
const MESSAGE = { role: "user", content: "Hi" };
const REQUEST = { model: "m", max_tokens: 1000, messages: [MESSAGE] };
const CACHED = { type: "text", text: "Hi", cache_control: { type: "ephemeral", ttl: "1h" } };

describe("a strict budget of money", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  beforeEach(async () => {
    const usage = { input_tokens: 1, output_tokens: 1 };
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ type: "message", content: [], usage }));
    });
  });
  afterEach(async () => {
    await under?.close();
    await provider.close();
  });

  async function start(
    ofProvider: Record<string, unknown> = {},
    budget = BUDGET,
  ): Promise<void> {
    const limits = { budget, mode: "strict" };
    under = await startUnderTest({
      upstreams: { a: provider.url },
      config: { prices: PRICES, keys: [{ id: "one", key: KEY, limits }] },
      provider: { maxOutput: 1000, ...ofProvider },
    });
  }
  async function call(more: Record<string, unknown> = {}): Promise<RawAnswer> {
    const gateway = under ?? assert.fail("not started");
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` };
    const body = JSON.stringify({ ...REQUEST, ...more });
    return await callRaw(gateway.a, { path: "/v1/messages", headers, body });
  }
  const codeOf = ({ status, body }: RawAnswer) =>
    status === 200 ? "ok" : JSON.parse(body).error.code;

  it("admits a call whose dearest standard price fits", async () => {
    await start();
    assert.equal(codeOf(await call()), "ok");
    assert.equal(codeOf(await call({ speed: "standard", inference_geo: "global" })), "ok");
  });

  it("is not misled by a text about caches, or with escaped letters", async () => {
    await start();
    const text = String.raw`"Is \"ttl\" of sound \"input_audio\" free? \u00e9"`;
    const gateway = under ?? assert.fail("not started");
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` };
    const body = JSON.stringify(REQUEST).replace('"Hi"', text);
    assert.equal(codeOf(await callRaw(gateway.a, { path: "/v1/messages", headers, body })), "ok");
    const hidden = JSON.stringify({ ...REQUEST, messages: [{ role: "user", content: [CACHED] }] })
      .replace("ttl", String.raw`\u0074tl`);
    const refused = await callRaw(gateway.a, { path: "/v1/messages", headers, body: hidden });
    assert.equal(codeOf(refused), "model_not_priced", "it can have sound, too");
  });

  const DEARER: Readonly<Record<string, Record<string, unknown>>> = {
    "writes to the cache for an hour": { messages: [{ role: "user", content: [CACHED] }] },
    "asks for the fast tier": { speed: "fast" },
    "asks for a region": { inference_geo: "us" },
    "asks for priority, which answers name so": { service_tier: "fast" },
    "has more input than a threshold": {
      messages: [{ role: "user", content: "x".repeat(100_001) }],
    },
  };
  for (const [what, more] of Object.entries(DEARER)) {
    it(`refuses a call that ${what}, if that is dearer than the budget`, async () => {
      await start();
      assert.equal(codeOf(await call(more)), "request_exceeds_limit");
      assert.equal(provider.calls.length, 0);
      await under?.close();
      await start({}, "1 USD/day");
      assert.equal(codeOf(await call(more)), "ok");
    });
  }

  it("reserves the dearest tier that the provider can choose, and the region of its models", async () => {
    await start({ tiers: ["priority"] });
    assert.equal(codeOf(await call()), "request_exceeds_limit");
    await under?.close();
    await start({ region: "us" });
    assert.equal(codeOf(await call()), "request_exceeds_limit");
  });

  it("records choices that a price can name, and no other text in their place", async () => {
    await start({}, "1 USD/day");
    const askedFor = async (quality: string) => {
      const before = under?.records.length ?? 0;
      assert.equal(codeOf(await call({ quality })), "ok");
      await under?.settled(before + 1);
      return under?.records.at(-1)?.usage?.parts?.[0]?.tariff.asked;
    };
    assert.deepEqual(await askedFor("hd"), { quality: "hd" });
    assert.equal(await askedFor("a prompt of the caller"), undefined);
  });

  it("refuses a tier, a region or an output without a price", async () => {
    await start({}, "1 USD/day");
    const unpriced: Record<string, unknown>[] = [
      { service_tier: "turbo" },
      { inference_geo: "eu" },
      { modalities: ["text", "audio"] },
    ];
    for (const more of unpriced) assert.equal(codeOf(await call(more)), "model_not_priced");
    assert.equal(provider.calls.length, 0);
  });
});

/** A request for 1,000 tokens of output, and its cost. USD a million tokens. */
interface Asking {
  readonly shape: ShapeName;
  readonly path: string;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
  readonly rate: number;
}
const GENERATION = { contents: [{ parts: [{ text: "Hi" }] }] };
const gemini = { shape: "gemini", path: "/v1beta/models/m:generateContent", rate: 18 } as const;
const generationConfig = { maxOutputTokens: 1000 };
const converse = { shape: "bedrock", path: "/model/m/converse", rate: 18 } as const;
const CONVERSATION = {
  messages: [{ role: "user", content: [{ text: "Hi" }] }],
  inferenceConfig: { maxTokens: 1000 },
};
const TIER_HEADER = "x-amzn-bedrock-service-tier";

const ASKING: Readonly<Record<string, Asking>> = {
  "no tier": { ...gemini, body: { ...GENERATION, generationConfig }, rate: 10 },
  "Google's tier": {
    ...gemini,
    body: { ...GENERATION, generationConfig, serviceTier: "priority" },
  },
  "Google's tier in another spelling": {
    ...gemini,
    body: { ...GENERATION, generationConfig, service_tier: "SERVICE_TIER_PRIORITY" },
  },
  "pictures of Google": {
    ...gemini,
    body: {
      ...GENERATION,
      generationConfig: { ...generationConfig, responseModalities: ["TEXT", "IMAGE"] },
    },
    rate: 30,
  },
  "the tier of Converse": {
    ...converse,
    body: { ...CONVERSATION, serviceTier: { type: "priority" } },
  },
  "a tier in a header": {
    ...converse,
    path: "/model/m/invoke",
    headers: { [TIER_HEADER]: "priority" },
    body: { max_tokens: 1000, messages: [MESSAGE] },
  },
  "two tiers, of which the provider reads one": {
    ...converse,
    headers: { [TIER_HEADER]: "flex" },
    body: { ...CONVERSATION, serviceTier: { type: "priority" } },
  },
};

describe("a budget of money", () => {
  afterEach(closeAll);

  for (const [name, { shape, path, body, headers, rate }] of Object.entries(ASKING)) {
    it(`reserves the cost of a request for ${name}`, async () => {
      const factors = [
        { when: { tier: "priority" }, times: "1.8" },
        { when: { tier: "flex" }, times: "0.5" },
      ];
      const prices = { m: { input: 0, output: 10, outputImage: 30, factors } };
      const { under: gateway } = await startShaped(shape, (response) => {
        response.writeHead(200, { "content-type": "application/json" }).end("{}");
      }, {
        config: { prices, keys: [{ id: "one", key: KEY, limits: { budget: "1 USD/day" } }] },
      });
      const answer = await callRaw(new URL(gateway.a).origin, {
        path,
        headers: { ...gateway.headers, "gateway-auth": `Bearer ${KEY}`, ...headers },
        body: JSON.stringify(body),
      });
      const left = Number(/"spend";r=(\d+)/.exec(answer.headers.ratelimit ?? "")?.[1]);
      assert.equal(1e9 - left, rate * 1e6);
    });
  }
});
