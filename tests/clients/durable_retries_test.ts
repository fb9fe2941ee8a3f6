/**
 * The `openai` client with a timeout that is shorter than the answer: its retries attach to the
 * running call.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import OpenAI from "openai";
import { startUnderTest, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import {
  answerPlain,
  answerStream,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { until } from "../support/until.ts";

const ask = (content: string): OpenAI.ChatCompletionCreateParamsNonStreaming => ({
  model: "test-1",
  messages: [{ role: "user", content }],
});
const HI = ask("Hi");
/** Longer than the part that Deno's listener buffers before it reports that a caller left. */
const LONG = ask("Hi ".repeat(1000));
/** Long for a busy machine; the tests control the duration of answers. */
const TIMEOUT_MS = 1000;

describe("retries of a client library", () => {
  let provider: Provider;
  let under: UnderTest;
  let client: OpenAI;
  /** The same client, with a timeout that no test reaches. */
  let patient: OpenAI;
  const waiting: ServerResponse[] = [];

  beforeEach(async () => {
    waiting.length = 0;
    provider = await startProvider((response) => waiting.push(response));
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { durable: { retries: true } },
    });
    const defaultHeaders = { "Gateway-Auth": `Bearer ${under.key}` };
    const options = { apiKey: UPSTREAM_KEY, baseURL: `${under.a}/v1`, defaultHeaders };
    patient = new OpenAI(options);
    client = new OpenAI({ ...options, timeout: TIMEOUT_MS, maxRetries: 5 });
  });

  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  /** Waits until the client has cancelled its first attempt and sent the call again. */
  const retried = () =>
    until(
      () =>
        under.gateway.openExchanges === 2 ||
        under.records.some(({ operation }) => operation === "exchange.attach"),
      "the retry",
    );

  for (const [name, body] of [["short", HI], ["long", LONG]] as const) {
    it(`get the answer of the running call: plain, ${name}`, async () => {
      const answer = client.chat.completions.create(body);
      await retried();
      for (const response of waiting) answerPlain(response);
      assert.equal((await answer).choices[0]?.message.content, "Hello");
      assert.equal(provider.calls.length, 1);
    });
  }

  it("get the answer of the running call: streamed", async () => {
    const answer = client.chat.completions.create({ ...HI, stream: true });
    await retried();
    for (const response of waiting) answerStream(response, stream("Hello", " you"));
    let text = "";
    for await (const chunk of await answer) text += chunk.choices[0]?.delta.content ?? "";
    assert.equal(text, "Hello you");
    assert.equal(provider.calls.length, 1);
  });

  it("make a separate call if two equal ones run", async () => {
    const [left, right] = [
      patient.chat.completions.create(HI),
      patient.chat.completions.create(HI),
    ];
    await until(() => provider.calls.length === 2, "two calls");
    const headers = { ...under.headers, "x-stainless-retry-count": "1" };
    const retry = fetch(`${under.a}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: JSON.stringify(HI),
    });
    await until(() => provider.calls.length === 3, "a separate call: both are read");
    for (const response of waiting) answerPlain(response);
    await Promise.all([left, right]);
    assert.equal((await retry).headers.get("idempotency-replayed"), null);
    await (await retry).text();
  });

  it("make a new call after a failure of the provider", async () => {
    const answer = patient.chat.completions.create(HI);
    await until(() => provider.calls.length === 1, "the call");
    waiting[0]?.writeHead(503, { "content-type": "application/json" }).end("{}");
    await until(() => provider.calls.length === 2, "another call");
    const last = waiting.at(-1);
    if (last !== undefined) answerPlain(last);
    assert.equal((await answer).choices[0]?.message.content, "Hello");
  });
});
