/**
 * Usage that the gateway requests and the caller does not: one field is added to the request, and
 * one chunk is removed from the answer.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { ServerResponse } from "node:http";
import { setImmediate } from "node:timers";
import { afterEach, describe, it } from "@std/testing/bdd";
import OpenAI from "openai";
import { closeAll, startWith } from "../support/aimock.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { answerPlain, type Arrived, chunk } from "../support/provider.ts";
import { openRaw, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const ASKING = '"stream_options":{"include_usage":true},';
const USAGE = { prompt_tokens: 11, completion_tokens: 2, total_tokens: 13 };
const HEAD =
  '"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"test-1"';
const USAGE_CHUNK = `data: {${HEAD},"choices":[],"usage":${JSON.stringify(USAGE)}}\n\n`;
/** The first chunk of Azure's streams: without choices and without usage. */
const FILTER_CHUNK =
  `data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}],"usage":null}\n\n`;
const WORDS = [
  FILTER_CHUNK,
  ": quiet\n\n",
  chunk('say "choices":[],"usage":{}'),
  chunk("Hel"),
  chunk("lo"),
].join("");
const BEFORE = WORDS + chunk(null, "stop");
const DONE = "data: [DONE]\n\n";

const ASK = { provider: { usage: "ask" } };
const BODY =
  '{"model":"test-1",  "messages":[{"role":"user","content":"Hi \\u00fc"}],"seed":1.0,"stream":true}';

/** Writes one piece at a time, each in its own packet. */
async function writePieces(
  response: ServerResponse,
  text: string,
  size = text.length,
  end = true,
): Promise<void> {
  const bytes = Buffer.from(text);
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  for (let at = 0; at < bytes.length; at += size) {
    await new Promise<void>((resolve) =>
      response.write(bytes.subarray(at, at + size), () => setImmediate(resolve))
    );
  }
  if (end) response.end();
}

const call = (base: string, { headers }: UnderTest, body: string, path = "/chat/completions") =>
  fetch(`${base}/v1${path}`, { method: "POST", headers, body });

/** Answers like OpenAI: with usage only if the request asks for it. */
const answerAsAsked = (size?: number) => (response: ServerResponse, { body }: Arrived) => {
  const isAsked = JSON.parse(String(body)).stream_options?.include_usage === true;
  return writePieces(response, BEFORE + (isAsked ? USAGE_CHUNK : "") + DONE, size);
};

describe('a provider with usage "ask"', () => {
  afterEach(closeAll);

  it("is asked for usage in a stream; the caller gets the stream without it, however it is cut", async () => {
    let size = 1;
    const { provider, under } = await startWith((...args) => answerAsAsked(size)(...args), ASK);
    for (size of [1, 17, 100_000]) {
      for (const base of [under.a, under.b]) {
        const response = await call(base, under, BODY);
        assert.equal(await response.text(), BEFORE + DONE);
        const arrived = provider.calls.at(-1) ?? assert.fail();
        assert.equal(String(arrived.body), `{${ASKING}${BODY.slice(1)}`);
        assert.equal(arrived.headers["content-length"], String(arrived.body.length));
        const { outcome, usage, bytesIn, bytesOut } = await under.settled();
        assert.deepEqual([outcome, usage?.total, usage?.input, usage?.output], ["ok", 13, 11, 2]);
        assert.deepEqual([bytesIn, bytesOut], [Buffer.byteLength(BODY), (BEFORE + DONE).length]);
      }
    }
  });

  it("is asked for the tokens of a legacy completion", async () => {
    const { provider, under } = await startWith(answerAsAsked(), ASK);
    const body = ' \n{"model":"test-1","prompt":"Hi","stream":true}';
    assert.equal(await (await call(under.a, under, body, "/completions")).text(), BEFORE + DONE);
    assert.equal(String(provider.calls[0]?.body), ` \n{${ASKING}${body.slice(3)}`);
    assert.equal((await under.settled()).usage?.total, 13);
  });

  it("is not asked if the caller asks itself, or if the answer is no such stream", async () => {
    const { provider, under } = await startWith((response, call) => {
      const { stream } = JSON.parse(String(call.body));
      return stream === true ? answerAsAsked()(response, call) : answerPlain(response);
    }, ASK);
    const asks = BODY.replace("{", '{"stream_options":{"include_usage":true},');
    const cases: readonly [body: string, answer: string | undefined, path?: string][] = [
      [asks, BEFORE + USAGE_CHUNK + DONE],
      [BODY.replace("{", '{"stream_options":{"include_usage":false},'), BEFORE + DONE],
      [BODY.replace("{", '{"stream_options":null,'), BEFORE + DONE],
      [BODY.replace("true", "false"), undefined],
      [BODY.replace("true", "1"), undefined],
      ['{"model":"test-1","input":"Hi","stream":true}', BEFORE + DONE, "/responses"],
      [
        '{"model":"test-1","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}',
        undefined,
        "/messages",
      ],
    ];
    for (const [body, answer, path] of cases) {
      const text = await (await call(under.a, under, body, path)).text();
      if (answer !== undefined) assert.equal(text.slice(0, answer.length), answer);
      assert.equal(String(provider.calls.at(-1)?.body), body);
    }
  });

  it("is not asked unless the configuration enables it", async () => {
    const { provider, under } = await startWith(answerAsAsked());
    assert.equal(await (await call(under.a, under, BODY)).text(), BEFORE + DONE);
    assert.equal(String(provider.calls[0]?.body), BODY);
    assert.notEqual((await under.settled()).usage?.total, 13);
  });

  it("can answer with an error, or without a stream", async () => {
    let status = 400;
    const { under } = await startWith((response) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end('{"choices":[],"usage":{}}');
    }, ASK);
    for (status of [400, 200]) {
      const response = await call(under.a, under, BODY);
      assert.deepEqual([response.status, await response.text()], [
        status,
        '{"choices":[],"usage":{}}',
      ]);
    }
  });

  it("sees no event delayed, and no part of an event", async () => {
    const go: (() => void)[] = [];
    const heard = () => new Promise<void>((resolve) => go.push(resolve));
    const pieces = [
      chunk("Hel"),
      chunk("lo").slice(0, -20),
      chunk("lo").slice(-20),
      USAGE_CHUNK.slice(0, -9),
    ];
    const { under } = await startWith(async (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const [index, piece] of pieces.entries()) {
        const next = heard();
        response.write(piece);
        if (index < 3) await next;
      }
      response.end(USAGE_CHUNK.slice(-9) + chunk(null, "stop") + DONE);
    }, ASK);
    const reader = (await call(under.a, under, BODY)).body?.getReader() ?? assert.fail();
    let text = "";
    let said = "";
    for (const piece of pieces.slice(0, 3)) {
      said += piece;
      while (text.length < said.length) {
        text += Buffer.from((await reader.read()).value ?? assert.fail()).toString();
      }
      assert.equal(text, said);
      go.shift()?.();
    }
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      text += Buffer.from(read.value);
    }
    assert.equal(text, said + chunk(null, "stop") + DONE);
  });

  it("can end within the usage chunk: the stream then ends as it would without that chunk", async () => {
    const { under } = await startWith(
      (response) => writePieces(response, BEFORE + USAGE_CHUNK.slice(0, -30)),
      ASK,
    );
    assert.equal(await (await call(under.a, under, BODY)).text(), BEFORE);
    const { outcome, usage } = await under.settled();
    assert.deepEqual([outcome, usage?.total === 13], ["ok", false]);
  });

  it("can end in mid-answer: the caller gets every byte and then the error event", async () => {
    for (
      const cut of [
        BEFORE.slice(0, 420),
        WORDS + chunk("x").slice(0, 9),
        WORDS,
        WORDS + USAGE_CHUNK.slice(0, -30),
      ]
    ) {
      const { under } = await startWith((response) => writePieces(response, cut), ASK);
      const text = await (await call(under.a, under, BODY)).text();
      assert.equal(text.slice(0, cut.length), cut);
      assert.match(
        text.slice(cut.length),
        /^\n*data: \{"error":\{.*"code":"upstream_stream_truncated"\}\}\n\n$/,
      );
      assert.equal((await under.settled()).outcome, "upstream_cut");
      await closeAll();
    }
  });

  it("sees the connection close when the caller leaves", async () => {
    const { provider, under } = await startWith(
      (response) => writePieces(response, WORDS, 1000, false),
      ASK,
    );
    const raw = openRaw(under.a, toRawRequest(under.a, { headers: under.headers, body: BODY }));
    await until(() => raw.received().includes("lo"), "the stream begins");
    raw.socket.destroy();
    await until(() => provider.calls[0]?.isCut === true, "the upstream is closed");
    assert.equal((await under.settled()).outcome, "client_closed");
  });

  it("serves the openai client with and without include_usage", async () => {
    const { under } = await startWith(answerAsAsked(), ASK);
    const defaultHeaders = { "Gateway-Auth": `Bearer ${under.key}` };
    const client = new OpenAI({
      baseURL: `${under.a}/v1`,
      apiKey: UPSTREAM_KEY,
      maxRetries: 0,
      defaultHeaders,
    });
    const params: OpenAI.ChatCompletionCreateParamsStreaming = {
      model: "test-1",
      messages: [{ role: "user", content: "Hi" }],
      stream: true,
    };
    for (const include_usage of [undefined, true, false]) {
      const more = include_usage === undefined ? {} : { stream_options: { include_usage } };
      const usages: unknown[] = [];
      let text = "";
      for await (
        const { choices, usage } of await client.chat.completions.create({ ...params, ...more })
      ) {
        text += choices[0]?.delta.content ?? "";
        if (usage) usages.push(usage);
      }
      assert.equal(text, 'say "choices":[],"usage":{}Hello');
      assert.deepEqual(usages, include_usage ? [USAGE] : []);
    }
    await under.settled(3);
    assert.deepEqual(under.records.map(({ usage }) => usage?.total === 13), [true, true, false]);
  });
});
