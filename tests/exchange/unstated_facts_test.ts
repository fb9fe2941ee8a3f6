/** The cost of calls whose answers leave out a fact that decides about it, or state it wrongly. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Answering, chunk, type Provider, startProvider } from "../support/provider.ts";
import { callRaw, openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "a-gateway-key-with-a-budget";
/** A budget that no test reaches. It shows the charge, in 10^-9 USD. */
const BUDGET = 1000e9;
const PRICES = {
  "test-*": {
    input: 1,
    output: 10,
    requests: 5,
    webSearches: 10,
    factors: [{ when: { tier: "priority" }, times: 2 }, { when: { geo: "us" }, times: 3 }],
  },
  "other-*": { input: 1, output: 10 },
  "dear-*": { input: 100, output: 1000 },
};
const JSON_TYPE = { "content-type": "application/json" };
const EVENTS = { "content-type": "text/event-stream" };
const toEvent = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`;
const CHAT = "/v1/chat/completions";
const MESSAGES = [{ role: "user", content: "Hi" }];
const ASKED = { model: "test-1", messages: MESSAGES, stream: true };

/** A schema of 400 kB: answers repeat the tools of their request. */
const SCHEMA = Object.fromEntries(
  Array.from({ length: 30_000 }, (_, index) => [`name_${index}`, 1]),
);
const TOOLS = [{ type: "function", name: "f", parameters: SCHEMA }];

describe("the charge of a call", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  let answering: Answering;
  beforeEach(async () => {
    provider = await startProvider((response, call) =>
      call.path === "/v1/models" ? response.end("{}") : answering(response, call)
    );
  });
  afterEach(async () => {
    await under?.close();
    await provider.close();
  });

  const start = async (ofProvider = {}, limits = {}): Promise<UnderTest> =>
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { operations: ["all"], ...ofProvider },
      config: {
        prices: PRICES,
        keys: [{ id: "one", key: KEY, limits: { budget: "1000 USD/month", ...limits } }],
      },
    });
  const toCall = (gateway: UnderTest, fields: unknown, path = CHAT) => ({
    path,
    headers: { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` },
    body: JSON.stringify(fields),
  });
  /** Makes a call whose answer is read to its end. */
  async function call(gateway: UnderTest, fields: unknown, path = CHAT): Promise<ExchangeRecord> {
    const before = gateway.records.length;
    await callRaw(gateway.a, toCall(gateway, fields, path));
    return await gateway.settled(before + 1);
  }
  /** Makes a call that is left once a text of its answer has arrived. */
  async function leave(
    gateway: UnderTest,
    fields: unknown,
    { after, path = CHAT }: { readonly after: string; readonly path?: string },
  ): Promise<ExchangeRecord> {
    const before = gateway.records.length;
    const { socket, received, closed } = openRaw(
      gateway.a,
      toRawRequest(gateway.a, toCall(gateway, fields, path)),
    );
    await until(() => received().includes(after), "the moment to leave");
    socket.destroy();
    await closed;
    return await gateway.settled(before + 1);
  }
  /** The money that was charged so far, in 10^-9 USD. */
  async function spent(gateway: UnderTest): Promise<number> {
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${KEY}` };
    const answer = await callRaw(gateway.a, { method: "GET", path: "/v1/models", headers });
    return BUDGET - Number(/"spend";r=(\d+)/.exec(answer.headers.ratelimit ?? "")?.[1] ?? NaN);
  }
  /** Cost of estimated tokens at the standard tariff, and of one call. */
  const costOf = ({ usage }: ExchangeRecord, factor: number) =>
    (1000 * (usage?.input ?? NaN) + 10_000 * (usage?.output ?? NaN)) * factor + 5_000_000;

  it("is by the tier and the region that its caller asked for, if the answer broke off", async () => {
    answering = (response) => response.writeHead(200, EVENTS).write(chunk("Hello"));
    const gateway = await start();
    const dear = { ...ASKED, service_tier: "priority", inference_geo: "us" };
    const record = await leave(gateway, dear, { after: "Hello" });
    assert.equal(record.isEstimated, true);
    assert.equal(await spent(gateway), costOf(record, 2 * 3));
  });

  it("is by the region of the provider only if the answer states none", async () => {
    const gateway = await start({ region: "us" });
    const fields = { ...ASKED, stream: false, max_tokens: 10 };
    const factors = { global: 1, us: 3, not_available: 3 };
    for (const [inference_geo, factor] of Object.entries(factors)) {
      const before = await spent(gateway);
      const usage = { input_tokens: 1000, output_tokens: 100, inference_geo };
      answering = (response) =>
        response.writeHead(200, JSON_TYPE).end(JSON.stringify({ type: "message", usage }));
      await call(gateway, fields, "/v1/messages");
      assert.equal(await spent(gateway) - before, factor * 2_000_000 + 5_000_000, inference_geo);
    }
  });

  it("is not the cost that the provider stated for the begin of a stream", async () => {
    const usage = {
      prompt_tokens: 10,
      completion_tokens: 1,
      total_tokens: 11,
      cost: 0.000_000_001,
    };
    const begin = toEvent({ choices: [], usage }) + chunk("word ".repeat(200));
    answering = (response) => response.writeHead(200, EVENTS).write(begin);
    const gateway = await start({ statesCost: true });
    const record = await leave(gateway, ASKED, { after: "word word" });
    assert.equal(record.isEstimated, true);
    assert.equal(await spent(gateway), costOf(record, 1));
  });

  it("is not a cost that no answer can have", async () => {
    let cost = "1e80";
    answering = (response) =>
      response.writeHead(200, JSON_TYPE).end(
        `{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":0,"total_tokens":1000,` +
          `"cost":${cost}}}`,
      );
    const gateway = await start({ statesCost: true });
    await call(gateway, { ...ASKED, stream: false });
    const byPrice = await spent(gateway);
    assert.equal(byPrice, 1_000_000 + 5_000_000);
    cost = "0.25";
    await call(gateway, { ...ASKED, stream: false });
    assert.equal(await spent(gateway), byPrice + 250_000_000);
  });

  const TEXT = "word ".repeat(200);
  const ZEROS = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  const zeroMessage = { input_tokens: 0, output_tokens: 0 };
  const textOf = (content: string) => ({
    choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
  });
  const toAnswer = (type: Record<string, string>, body: string): Answering => (response) =>
    void response.writeHead(200, type).end(body);
  const DONE = "data: [DONE]\n\n";

  const WITHOUT_TOKENS: Readonly<Record<string, [path: string, answering: Answering]>> = {
    "a chat": [CHAT, toAnswer(JSON_TYPE, JSON.stringify({ ...textOf(TEXT), usage: ZEROS }))],
    "the stream of a chat": [
      CHAT,
      toAnswer(EVENTS, chunk(TEXT, "stop") + toEvent({ choices: [], usage: ZEROS }) + DONE),
    ],
    "a message": [
      "/v1/messages",
      toAnswer(
        JSON_TYPE,
        JSON.stringify({ content: [{ type: "text", text: TEXT }], usage: zeroMessage }),
      ),
    ],
  };
  for (const [name, [path, answer]] of Object.entries(WITHOUT_TOKENS)) {
    it(`is estimated if ${name} has text, but states no tokens`, async () => {
      answering = answer;
      const gateway = await start();
      const fields = { ...ASKED, stream: name.includes("stream"), max_tokens: 5000 };
      const record = await call(gateway, fields, path);
      assert.equal(record.isEstimated, true);
      const { input = 0, output = 0 } = record.usage ?? {};
      assert.ok(input > 0 && output >= 200, `${input} and ${output} tokens`);
      assert.equal(await spent(gateway), costOf(record, 1));
    });
  }

  it("is nothing for an answer that states no tokens and has no text", async () => {
    const gateway = await start();
    for (const answer of [textOf(""), { error: { message: "The model is overloaded" } }]) {
      answering = toAnswer(JSON_TYPE, JSON.stringify({ ...answer, usage: ZEROS }));
      const { usage, isEstimated } = await call(gateway, { ...ASKED, stream: false });
      assert.deepEqual([usage?.total, isEstimated], [0, undefined]);
    }
  });

  it("is the stated cost of an answer that states no tokens", async () => {
    const usage = { ...ZEROS, cost: 0.25 };
    answering = toAnswer(JSON_TYPE, JSON.stringify({ ...textOf(TEXT), usage }));
    const gateway = await start({ statesCost: true });
    await call(gateway, { ...ASKED, stream: false });
    assert.equal(await spent(gateway), 250_000_000);
  });

  it("keeps the stated input next to text without stated output", async () => {
    const usage = { prompt_tokens: 1000, completion_tokens: 0, total_tokens: 1000 };
    answering = toAnswer(JSON_TYPE, JSON.stringify({ ...textOf(TEXT), usage }));
    const gateway = await start();
    const record = await call(gateway, { ...ASKED, stream: false });
    assert.equal(record.isEstimated, true);
    assert.equal(record.usage?.input, 1000);
    assert.ok((record.usage?.output ?? 0) >= 200, `${record.usage?.output} tokens of output`);
  });

  it("is the usage that a stream stated before a usage without tokens", async () => {
    const usage = { prompt_tokens: 1000, completion_tokens: 50, total_tokens: 1050 };
    const end = toEvent({ choices: [], usage }) + toEvent({ choices: [], usage: ZEROS }) + DONE;
    answering = toAnswer(EVENTS, chunk(TEXT, "stop") + end);
    const gateway = await start();
    const record = await call(gateway, ASKED);
    assert.deepEqual([record.usage?.total, record.isEstimated], [1050, undefined]);
  });

  it("has an estimated output if only the beginning of a message states its tokens", async () => {
    const usage = { input_tokens: 1000, output_tokens: 1 };
    const delta = { type: "text_delta", text: TEXT };
    const events = [
      { type: "message_start", message: { type: "message", usage } },
      { type: "content_block_delta", index: 0, delta },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: {} },
      { type: "message_stop" },
    ];
    answering = toAnswer(EVENTS, events.map(toEvent).join(""));
    const gateway = await start();
    const record = await call(gateway, { ...ASKED, max_tokens: 5000 }, "/v1/messages");
    assert.deepEqual([record.outcome, record.isEstimated], ["ok", true]);
    assert.equal(record.usage?.input, 1000);
    assert.ok((record.usage?.output ?? 0) >= 200, `${record.usage?.output} tokens of output`);
  });

  it("counts all stated tokens under a limit of tokens, also if the total is too small", async () => {
    const usage = { prompt_tokens: 1000, completion_tokens: 50, total_tokens: 0 };
    answering = (response) =>
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ choices: [], usage }));
    const gateway = await start();
    const { usage: stated } = await call(gateway, { ...ASKED, stream: false });
    assert.equal(stated?.total, 1050);
  });

  it("is estimated if no answer can have as many tokens as are stated", async () => {
    const usage = { prompt_tokens: 9e15, completion_tokens: 1, total_tokens: 9e15 };
    answering = (response) =>
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ choices: [], usage }));
    const gateway = await start();
    const record = await call(gateway, { ...ASKED, stream: false });
    assert.equal(record.isEstimated, true);
    assert.equal(await spent(gateway), costOf(record, 1));
  });

  it("is not that of the standard tier if the name of the tier is too long to be kept", async () => {
    const usage = { prompt_tokens: 1000, completion_tokens: 0, total_tokens: 1000 };
    const answer = { choices: [], usage, service_tier: "x".repeat(300) };
    answering = (response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify(answer));
    const gateway = await start();
    await call(gateway, { ...ASKED, stream: false });
    assert.equal(await spent(gateway), 2 * 3 * 1_000_000 + 5_000_000, "the dearest factors");
  });

  it("is by the model that answered, if the body named another one than the path", async () => {
    const usageMetadata = {
      promptTokenCount: 1000,
      candidatesTokenCount: 0,
      totalTokenCount: 1000,
    };
    let modelVersion = "dear-1";
    answering = (response) =>
      response.writeHead(200, JSON_TYPE).end(
        JSON.stringify({ candidates: [], usageMetadata, modelVersion }),
      );
    const gateway = await start();
    const fields = { model: "other-1", contents: [] };
    await call(gateway, fields, "/v1/models/dear-1:generateContent");
    const dear = await spent(gateway);
    assert.equal(dear, 100 * 1_000_000);
    modelVersion = "";
    await call(gateway, fields, "/v1/models/dear-1:generateContent");
    assert.equal(await spent(gateway), 2 * dear, "an answer that names no model");
    for (const version of ["other-1-2026-11-26", "unknown-1"]) {
      modelVersion = version;
      const before = await spent(gateway);
      const { usage } = await call(gateway, fields, "/v1/models/other-1:generateContent");
      assert.equal(usage?.parts?.[0]?.model, undefined);
      assert.equal(await spent(gateway), before + 1_000_000, version);
    }
  });

  it("is by the model in a path of Bedrock, whose answers name none", async () => {
    const usage = { inputTokens: 1000, outputTokens: 0, totalTokens: 1000 };
    answering = (response) =>
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ output: {}, usage }));
    const gateway = await start();
    const fields = { model: "other-1", messages: [] };
    const { model } = await call(gateway, fields, "/v1/model/dear-1%3A0/converse");
    assert.equal(model, "dear-1:0");
    assert.equal(await spent(gateway), 100 * 1_000_000);
  });

  it("is that of the model that replaced another one before its first token", async () => {
    const counts = { input_tokens: 1000, output_tokens: 0 };
    const iterations = [{ type: "fallback_message", model: "dear-1", ...counts }];
    const usage = { ...counts, iterations };
    answering = (response) =>
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ type: "message", usage }));
    const gateway = await start();
    const fields = { model: "other-1", messages: MESSAGES, max_tokens: 10 };
    await call(gateway, fields, "/v1/messages");
    assert.equal(await spent(gateway), 100 * 1_000_000);
  });

  it("has the searches of an answer that is longer than 64 kB, also those of maps", async () => {
    const parts = [{ text: "x".repeat(100_000) }];
    const groundingChunks = [
      { web: { uri: "https://example.com/", title: "A page" } },
      { maps: { uri: "https://example.com/maps", title: "A place", placeId: "places/1" } },
    ];
    const groundingMetadata = { webSearchQueries: ["one", "two"], groundingChunks };
    const answer = {
      candidates: [{ content: { parts }, groundingMetadata, finishReason: "STOP" }],
      usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 10, totalTokenCount: 20 },
      modelVersion: "gemini-3-pro",
    };
    const plain = JSON.stringify(answer);
    const answers: Readonly<Record<string, Answering>> = {
      "streamGenerateContent?alt=sse": toAnswer(EVENTS, toEvent(answer)),
      streamGenerateContent: toAnswer(JSON_TYPE, `[${plain}]`),
      generateContent: toAnswer(JSON_TYPE, plain),
    };
    const gateway = await start();
    for (const [method, answer] of Object.entries(answers)) {
      answering = answer;
      const path = `/v1/models/test-1:${method}`;
      const { usage } = await call(gateway, { model: "test-1", contents: [] }, path);
      assert.equal(usage?.parts?.[0]?.classes.webSearches, 2 + 1, method);
    }
  });

  it("is that of a stream if events answer a request without the field for it", async () => {
    const content = { parts: [{ text: "word ".repeat(20) }] };
    answering = (response) =>
      response.writeHead(200, EVENTS).write(
        toEvent({ candidates: [{ content }] }),
        () => response.destroy(),
      );
    const gateway = await start();
    const path = "/v1/models/test-1:streamGenerateContent?alt=sse";
    const { stream, usage } = await call(gateway, { model: "test-1", contents: [] }, path);
    assert.equal(stream, true);
    assert.ok((usage?.output ?? NaN) < 100, `${usage?.output} tokens of output`);
  });

  for (const stream of [false, true]) {
    it(`is by input and output if a response states them as a chat does [stream: ${stream}]`, async () => {
      const response = {
        id: "resp_1",
        status: "completed",
        output: [],
        usage: {
          prompt_tokens: 1000,
          completion_tokens: 100,
          total_tokens: 1100,
          prompt_tokens_details: { cached_tokens: 400 },
        },
      };
      answering = stream
        ? toAnswer(EVENTS, toEvent({ type: "response.completed", response }))
        : toAnswer(JSON_TYPE, JSON.stringify(response));
      const gateway = await start();
      const fields = { model: "other-1", input: "Hi", stream };
      const { usage } = await call(gateway, fields, "/v1/responses");
      assert.deepEqual(usage, { total: 1100, input: 1000, output: 100, cached: 400 });
      assert.equal(await spent(gateway), 2_000_000);
    });
  }

  it("has the searches of a response that repeats long tools", async () => {
    const output = [{ type: "file_search_call", status: "completed" }];
    const usage = { input_tokens: 10, output_tokens: 0, total_tokens: 10 };
    const answer = JSON.stringify({ status: "completed", output, tools: TOOLS, usage });
    answering = (response) => response.writeHead(200, JSON_TYPE).end(answer);
    const gateway = await start();
    const made = await call(gateway, { model: "test-1", input: "Hi" }, "/v1/responses");
    assert.equal(made.usage?.parts?.[0]?.classes.fileSearches, 1);
  });

  it("is the usage of an answer that states it before 200 kB of content", async () => {
    const text = "x".repeat(200_000);
    const input = { usage: { input_tokens: 9, output_tokens: 9 }, service_tier: "batch" };
    const answers: Readonly<Record<string, object>> = {
      [CHAT]: {
        service_tier: "priority",
        usage: { prompt_tokens: 1000, completion_tokens: 100, total_tokens: 1100 },
        choices: [{ index: 0, message: { content: text }, finish_reason: "stop" }],
      },
      "/v1/messages": {
        type: "message",
        usage: {
          input_tokens: 1000,
          output_tokens: 100,
          service_tier: "priority",
          iterations: [{ type: "message", input_tokens: 1000, output_tokens: 100 }],
        },
        content: [{ type: "text", text }, { type: "tool_use", input }],
      },
    };
    const gateway = await start();
    for (const [path, answer] of Object.entries(answers)) {
      const before = await spent(gateway);
      answering = (response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify(answer));
      const fields = { ...ASKED, stream: false, max_tokens: 10 };
      const { isEstimated } = await call(gateway, fields, path);
      assert.equal(isEstimated, undefined, path);
      assert.equal(await spent(gateway) - before, 2 * 2_000_000 + 5_000_000, path);
    }
  });

  it("is the usage at the end of a stream that repeats long tools and a long schema", async () => {
    const usage = { input_tokens: 10, output_tokens: 5000, total_tokens: 5010 };
    const text = { format: { type: "json_schema", schema: SCHEMA } };
    const response = { status: "completed", output: [], text, tools: TOOLS, usage };
    const end = toEvent({ type: "response.completed", response });
    answering = (answer) => answer.writeHead(200, EVENTS).end(`event: response.completed\n${end}`);
    const gateway = await start();
    const fields = { model: "test-1", input: "Hi", stream: true };
    const record = await call(gateway, fields, "/v1/responses");
    assert.deepEqual([record.outcome, record.usage?.total], ["ok", 5010]);
  });

  it("admits a call under a strict budget that asks for the standard tier only", async () => {
    const usage = { input_tokens: 10, output_tokens: 0 };
    answering = (response) =>
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ type: "message", usage }));
    const gateway = await start({ maxOutput: 100 }, { mode: "strict" });
    const fields = { ...ASKED, stream: false, max_tokens: 10, service_tier: "standard_only" };
    const { status } = await call(gateway, fields, "/v1/messages");
    assert.equal(status, 200);
  });
});
