/** Google's client library `@google/genai`, as published on npm, at its natural addresses. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { ApiError, type GenerateContentResponse, GoogleGenAI } from "@google/genai";
import { afterEach, describe, it } from "@std/testing/bdd";
import { closeAll } from "../support/aimock.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { type Answering, answerStream } from "../support/provider.ts";
import { cutAfter, failureOf, QUESTION, startShaped, unlessWorkers } from "../support/shapes.ts";

const MODEL = "gemini-3-pro";
const USAGE = {
  promptTokenCount: 12,
  cachedContentTokenCount: 4,
  candidatesTokenCount: 5,
  thoughtsTokenCount: 3,
  totalTokenCount: 20,
};
const part = (text: string, more: object = {}) => ({
  candidates: [{ content: { role: "model", parts: [{ text }] }, ...more }],
  usageMetadata: USAGE,
  modelVersion: MODEL,
});
const PARTS = [part("Hel"), part("lo"), part("!", { finishReason: "STOP" })];
/** Google ends lines with CR LF. */
const eventsOf = (parts: readonly unknown[]) =>
  parts.map((each) => `data: ${JSON.stringify(each)}\r\n\r\n`).join("");
const EVENT_STREAM = "text/event-stream";

const answerAsGoogle: Answering = (response, { path }) => {
  if (path.includes(":streamGenerateContent?alt=sse")) {
    return answerStream(response, eventsOf(PARTS));
  }
  response.writeHead(200, { "content-type": "application/json" });
  if (path.includes(":streamGenerateContent")) return response.end(JSON.stringify(PARTS));
  if (path.includes(":countTokens")) return response.end('{"totalTokens":12}');
  if (path.includes(":batchEmbedContents") || path.includes(":embedContent")) {
    return response.end('{"embeddings":[{"values":[0.1,0.2]}]}');
  }
  if (path.includes("/models")) {
    const names = [MODEL, "gemini-3-flash"].map((name) => ({ name: `models/${name}` }));
    if (/\/models(?:\?|$)/.test(path)) return response.end(JSON.stringify({ models: names }));
  }
  response.end(JSON.stringify(part("Hello!", { finishReason: "STOP" })));
};

const clientOf = ({ a, key }: UnderTest, apiVersion?: string) =>
  new GoogleGenAI({
    apiKey: UPSTREAM_KEY,
    vertexai: false,
    httpOptions: {
      baseUrl: a,
      headers: { "Gateway-Auth": `Bearer ${key}` },
      ...(apiVersion && { apiVersion }),
    },
  });
const HELLO = { model: MODEL, contents: QUESTION };

async function textOf(stream: AsyncIterable<GenerateContentResponse>): Promise<string> {
  let text = "";
  for await (const { text: more } of stream) text += more ?? "";
  return text;
}
/** Reads a stream from its call to its end. */
const readAll = async (client: GoogleGenAI) =>
  await textOf(await client.models.generateContentStream(HELLO));

/** An event as version 1 of the library finds it, which Gemini CLI 0.61 contains. */
const EVENT_OF_VERSION_1 = /^\s*data: (.*)(?:\n\n|\r\r|\r\n\r\n)/;

/** Reads a whole stream as version 1 does. @throws {Error} As it does, for a stream that is cut */
function readAsVersion1(stream: string): string {
  let [text, rest] = ["", stream];
  for (let found; (found = EVENT_OF_VERSION_1.exec(rest)) !== null;) {
    const event = JSON.parse(found[1] ?? "");
    text += event.candidates?.[0]?.content.parts[0].text ?? "";
    rest = rest.slice(found[0].length);
  }
  if (rest.trim() !== "") throw new Error("Incomplete JSON segment at the end");
  return text;
}

const callStream = ({ a, headers }: UnderTest) =>
  fetch(`${a}/v1beta/models/${MODEL}:streamGenerateContent?alt=sse`, {
    method: "POST",
    headers: { ...headers, "x-goog-api-key": UPSTREAM_KEY },
    body: JSON.stringify({ contents: [{ parts: [{ text: QUESTION }] }] }),
  });

describe("@google/genai", () => {
  afterEach(closeAll);

  for (const version of ["v1beta", "v1", "v1alpha"]) {
    it(`gets a plain answer and a stream at /${version}, and their usage is counted by class`, async () => {
      const { provider, under } = await startShaped("gemini", answerAsGoogle);
      const client = clientOf(under, version);
      assert.equal((await client.models.generateContent(HELLO)).text, "Hello!");
      assert.equal(await readAll(client), "Hello!");
      await under.settled(2);
      assert.deepEqual(
        under.records.map(({ operation, model, stream, outcome }) => [
          operation,
          model,
          stream,
          outcome,
        ]),
        [
          ["gemini.generate_content", MODEL, false, "ok"],
          ["gemini.stream_generate_content", MODEL, true, "ok"],
        ],
      );
      for (const { usage } of under.records) {
        assert.deepEqual(
          [usage?.total, usage?.input, usage?.cached, usage?.output, usage?.reasoning],
          [20, 12, unlessWorkers(4), 8, unlessWorkers(3)],
        );
      }
      assert.deepEqual(provider.calls.map(({ path }) => path), [
        `/${version}/models/${MODEL}:generateContent`,
        `/${version}/models/${MODEL}:streamGenerateContent?alt=sse`,
      ]);
      for (const { headers } of provider.calls) {
        assert.equal(headers["x-goog-api-key"], UPSTREAM_KEY);
        assert.match(headers["x-goog-api-client"] as string, /google-genai-sdk/);
        assert.equal(headers["gateway-auth"], undefined);
      }
    });
  }

  it("counts tokens, embeds and lists models", async () => {
    const { under } = await startShaped("gemini", answerAsGoogle);
    const client = clientOf(under);
    assert.equal((await client.models.countTokens(HELLO)).totalTokens, 12);
    const { embeddings } = await client.models.embedContent(HELLO);
    assert.deepEqual(embeddings?.[0]?.values, [0.1, 0.2]);
    const listed: unknown[] = [];
    for await (const { name } of await client.models.list()) listed.push(name);
    assert.deepEqual(listed, [`models/${MODEL}`, "models/gemini-3-flash"]);
    await under.settled(3);
    assert.deepEqual(under.records.map(({ outcome }) => outcome), ["ok", "ok", "ok"]);
    assert.equal(under.records[0]?.isMetered, unlessWorkers(false));
  });

  for (const how of ["break", "end"] as const) {
    for (
      const [where, beginning] of [
        ["between events", eventsOf(PARTS.slice(0, 2))],
        ["within an event", eventsOf(PARTS.slice(0, 2)).slice(0, -30)],
      ] as const
    ) {
      it(`throws on a stream that is cut ${where} by a ${how}`, async () => {
        const { under } = await startShaped("gemini", cutAfter(EVENT_STREAM, beginning, how));
        const error = await failureOf(readAll(clientOf(under)));
        if (where === "between events") {
          assert.ok(error instanceof ApiError, `${error}`);
          assert.match(error.message, /"reason":"UPSTREAM_(STREAM_TRUNCATED|DISCONNECTED)"/);
        }
        const { code, usage } = await under.settled();
        assert.equal(
          code,
          how === "end" ? "upstream_stream_truncated" : "upstream_disconnected",
        );
        assert.equal(usage?.input, 12); // stated before the cut
      });
    }
  }

  for (const how of ["break", "end"] as const) {
    it(`throws on a stream that is cut by a ${how} in its version 1 too`, async () => {
      const cut = cutAfter(EVENT_STREAM, eventsOf(PARTS.slice(0, 2)), how);
      const { under } = await startShaped("gemini", cut);
      const stream = await (await callStream(under)).text();
      assert.throws(() => readAsVersion1(stream), /Incomplete JSON/);
    });
  }

  for (const [lineEnd, cuts] of [["\r\n", [2, 3, 4]], ["\n", [1, 2]]] as const) {
    for (const cut of cuts) {
      it(`throws on a stream without the last ${cut} bytes of its lines with ${JSON.stringify(lineEnd)}`, async () => {
        const events = eventsOf(PARTS).replaceAll("\r\n", lineEnd).slice(0, -cut);
        const { under } = await startShaped("gemini", cutAfter(EVENT_STREAM, events, "end"));
        const error = await failureOf(readAll(clientOf(under)));
        assert.ok(error instanceof ApiError, `${error}`);
        assert.match(error.message, /"reason":"UPSTREAM_STREAM_TRUNCATED"/);
        const { code, usage } = await under.settled();
        assert.deepEqual([code, usage?.total], ["upstream_stream_truncated", 20]);
      });
    }
  }

  it("gets blank lines in a silent stream, because version 1 reads no event after a comment", async () => {
    const silent = Promise.withResolvers<void>();
    const { under } = await startShaped("gemini", async (response) => {
      response.writeHead(200, { "content-type": EVENT_STREAM });
      response.write(eventsOf(PARTS.slice(0, 1)));
      await silent.promise;
      response.end(eventsOf(PARTS.slice(1)));
    }, { provider: { keepAlive: "20ms" } });
    const { body } = await callStream(under);
    assert.ok(body !== null);
    let stream = "";
    for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
      stream += chunk;
      if (/\r\n\r\n\n+$/.test(stream)) silent.resolve();
    }
    assert.doesNotMatch(stream, /^:/m);
    assert.equal(readAsVersion1(stream), "Hello!");
  });

  it("throws on an error event of Google's, which passes unchanged", async () => {
    const error = {
      error: { code: 503, message: "The model is overloaded", status: "UNAVAILABLE" },
    };
    const events = eventsOf([PARTS[0], error]);
    const { under } = await startShaped("gemini", (response) => answerStream(response, events));
    assert.equal((await failureOf(readAll(clientOf(under)))).status, 503);
    assert.equal((await under.settled()).outcome, "upstream_error");
  });

  it("takes a refused prompt for a complete stream", async () => {
    const events = eventsOf([{ promptFeedback: { blockReason: "SAFETY" }, usageMetadata: USAGE }]);
    const { under } = await startShaped("gemini", (response) => answerStream(response, events));
    assert.equal(await readAll(clientOf(under)), "");
    assert.equal((await under.settled()).outcome, "ok");
  });

  it("gets refusals in Google's form", async () => {
    const { under } = await startShaped("gemini", answerAsGoogle, {
      config: { keys: [{ id: "flash", key: "k".repeat(30), models: ["gemini-3-flash"] }] },
    });
    const call = (key: string) => clientOf({ ...under, key }).models.generateContent(HELLO);
    const unknown = await failureOf(call("not-a-key-of-the-gateway"));
    assert.ok(unknown instanceof ApiError);
    assert.equal(unknown.status, 401);
    assert.equal(JSON.parse(unknown.message).error.status, "UNAUTHENTICATED");
    const refused = await failureOf(call("k".repeat(30)));
    assert.equal(refused.status, 403);
    const { status, details } = JSON.parse(refused.message).error;
    assert.deepEqual([status, details[0].reason], ["PERMISSION_DENIED", "MODEL_NOT_ALLOWED"]);
  });

  for (const name of ["key", "access_token", "%6bey"]) {
    it(`is refused with its key in the URL as ?${name}=, which reaches no log and no provider`, async () => {
      const { provider, under } = await startShaped("gemini", answerAsGoogle, {
        config: { log: "debug" },
      });
      const { "gateway-auth": gatewayAuth = "" } = under.headers;
      for (const path of [`/v1beta/models/${MODEL}:generateContent`, "/v1beta/models"]) {
        const answer = await fetch(`${under.a}${path}?${name}=${UPSTREAM_KEY}`, {
          method: path.endsWith("models") ? "GET" : "POST",
          headers: { "gateway-auth": gatewayAuth, "x-goog-api-key": UPSTREAM_KEY },
          ...(!path.endsWith("models") && { body: "{}" }),
        });
        assert.equal(answer.status, 401);
        const { error } = await answer.json();
        assert.match(error.message, /send x-goog-api-key: <key> in place of \?\w+=/);
      }
      await under.settled(2);
      assert.equal(provider.calls.length, 0);
      assert.ok(!(await under.told()).includes(UPSTREAM_KEY));
    });
  }

  it("is told when to retry after a limit", async () => {
    const { under } = await startShaped("gemini", answerAsGoogle, {
      config: { keys: [{ id: "one", key: "k".repeat(30), limits: { requests: "1/h" } }] },
    });
    const client = clientOf({ ...under, key: "k".repeat(30) });
    await client.models.generateContent(HELLO);
    const error = await failureOf(client.models.generateContent(HELLO));
    assert.equal(error.status, 429);
    const { details } = JSON.parse(error.message).error;
    assert.match(details[1].retryDelay, /^[\d.]+s$/);
  });
});
