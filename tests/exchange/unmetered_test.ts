/** Operations whose answers state no usage, and operations that are not in the table. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { ShapeName } from "../../src/config/shape.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";

const KEY = "own-key-with-a-limit";
const PRICES = { "gemini-*": { input: 1, output: 10 } };

describe("operations without stated usage", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  let answer: { readonly status?: number; readonly body: unknown };
  beforeEach(async () => {
    answer = { body: { id: "object-1" } };
    provider = await startProvider((response) => {
      response.writeHead(answer.status ?? 200, { "content-type": "application/json" });
      response.end(JSON.stringify(answer.body));
    });
  });
  afterEach(async () => {
    await under?.close();
    await provider.close();
  });

  async function start(
    limits: Record<string, unknown> | undefined,
    ofProvider: Record<string, unknown> = {},
  ): Promise<UnderTest> {
    return under = await startUnderTest({
      upstreams: { a: ofProvider.shape ? new URL(provider.url).origin : provider.url },
      config: { prices: PRICES, keys: [{ id: "one", key: KEY, ...(limits && { limits }) }] },
      provider: { operations: ["all"], ...ofProvider },
    });
  }
  async function call(
    gateway: UnderTest,
    path: string,
    { method = "POST", body = "{}" }: { readonly method?: string; readonly body?: string } = {},
  ): Promise<RawAnswer> {
    const before = gateway.records.length;
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` };
    const done = await callRaw(gateway.a, {
      method,
      path,
      headers,
      body: method === "POST" ? body : "",
    });
    await gateway.settled(before + 1);
    return done;
  }
  const codeOf = ({ status, body }: RawAnswer): string => {
    if (status < 400) return "ok";
    const { error, gatewayCode } = JSON.parse(body);
    return gatewayCode ?? error.details?.[0]?.metadata.code ?? error.code;
  };
  const leftOf = ({ headers }: RawAnswer, policy: string) =>
    Number(new RegExp(`"${policy}";r=(\\d+)`).exec(headers.ratelimit ?? "")?.[1] ?? NaN);

  for (const limits of [{ tokens: "1M/day" }, { budget: "5 USD/day" }]) {
    it(`are refused before they are sent under ${JSON.stringify(limits)}`, async () => {
      const gateway = await start(limits);
      for (const path of ["/v1/files", "/v1/batches", "/v1/fine_tuning/jobs", "/v1/threads"]) {
        const refused = await call(gateway, path);
        assert.deepEqual([refused.status, codeOf(refused)], [403, "operation_not_metered"], path);
        assert.match(refused.body, /callPrices/);
      }
      assert.equal(provider.calls.length, 0);
    });
  }

  const LATER: Readonly<Record<string, [shape: ShapeName, path: string]>> = {
    "a video of Google": ["gemini", "/v1beta/models/gemini-3:predictLongRunning"],
    "a batch of Google": ["gemini", "/v1beta/models/gemini-3:batchGenerateContent"],
    "a batch of embeddings of Google": ["gemini", "/v1beta/models/gemini-3:asyncBatchEmbedContent"],
    "a video of Bedrock": ["bedrock", "/async-invoke"],
  };
  for (const [name, [shape, path]] of Object.entries(LATER)) {
    it(`are refused under a limit, and have the price of a call: ${name}`, async () => {
      const gateway = await start({ budget: "5 USD/day" }, { shape });
      assert.equal(codeOf(await call(gateway, path)), "operation_not_metered");
      assert.equal(provider.calls.length, 0);
      await gateway.close();
      const callPrices = { videos: 0.5, batches: 0.5 };
      const priced = await start({ budget: "5 USD/day" }, { shape, callPrices });
      assert.equal(leftOf(await call(priced, path), "spend"), 4_500_000_000);
    });
  }

  it("can be read and deleted under a limit, because that costs nothing", async () => {
    const gateway = await start({ tokens: "1M/day" });
    assert.equal(codeOf(await call(gateway, "/v1/files", { method: "GET" })), "ok");
    assert.equal(codeOf(await call(gateway, "/v1/files/1", { method: "DELETE" })), "ok");
    assert.equal(codeOf(await call(gateway, "/v1/conversations")), "ok");
  });

  it("pass without such a limit, and are counted as unmetered", async () => {
    const gateway = await start({ requests: "10/h" });
    assert.equal(codeOf(await call(gateway, "/v1/batches")), "ok");
    const record = gateway.records.at(-1);
    assert.deepEqual([record?.isMetered, record?.usage], [true, undefined]);
  });

  it("are charged the price of a call, if the provider accepts them", async () => {
    const callPrices = { batches: 0.5, files: 0 };
    const gateway = await start({ budget: "5 USD/day" }, { callPrices });
    assert.equal(codeOf(await call(gateway, "/v1/files")), "ok");
    assert.equal(leftOf(await call(gateway, "/v1/batches"), "spend"), 4_500_000_000);
    answer = { status: 400, body: { error: {} } };
    await call(gateway, "/v1/batches");
    answer = { body: {} };
    assert.equal(leftOf(await call(gateway, "/v1/batches"), "spend"), 4_000_000_000);
  });

  it("of an unknown path are charged an estimate, by the model that the path or the body names", async () => {
    const gateway = await start({ budget: "5 USD/day" }, { maxOutput: 1000 });
    const body = JSON.stringify({ contents: [{ parts: [{ text: "Hi" }] }] });
    assert.equal(
      codeOf(await call(gateway, "/v1/models/gemini-3:generateContent", { body })),
      "ok",
    );
    const usage = gateway.records.at(-1)?.usage;
    assert.ok((usage?.total ?? 0) > 0);
    assert.equal(gateway.records.at(-1)?.model, "gemini-3");
    const named = JSON.stringify({ model: "gemini-3" });
    assert.equal(codeOf(await call(gateway, "/v1/decisions", { body: named })), "ok");
    const unnamed = await call(gateway, "/v1/decisions");
    assert.equal(codeOf(unnamed), "model_not_priced");
  });
});
