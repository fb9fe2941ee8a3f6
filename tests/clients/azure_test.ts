/** Azure's client of the `openai` package, as published on npm, at its natural addresses. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import OpenAI, { APIError, AzureOpenAI } from "openai";
import { closeAll } from "../support/aimock.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import {
  type Answering,
  answerPlain,
  answerStream,
  chunk,
  COMPLETION,
} from "../support/provider.ts";
import { cutAfter, failureOf, QUESTION, startShaped } from "../support/shapes.ts";

const VERSION = "2024-10-21";
const DEPLOYMENT = "our-gpt";
const KEY = "a-gateway-key-of-our-own";
const HELLO = { model: DEPLOYMENT, messages: [{ role: "user" as const, content: QUESTION }] };

const BEGINNING = chunk("Hel") + chunk("lo");
const USAGE = { prompt_tokens: 12, completion_tokens: 5, total_tokens: 17 };
const END = chunk(null, "stop") +
  `data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`;

const clientOf = ({ a, key }: UnderTest) =>
  new AzureOpenAI({
    endpoint: a,
    apiKey: UPSTREAM_KEY,
    apiVersion: VERSION,
    maxRetries: 0,
    defaultHeaders: { "Gateway-Auth": `Bearer ${key}` },
  });

const answerAsAzure: Answering = (response, call) => {
  if (call.path.includes("/embeddings")) {
    response.writeHead(200, { "content-type": "application/json" });
    const data = [{ object: "embedding", index: 0, embedding: [0.5] }];
    return response.end(
      JSON.stringify({ object: "list", data, usage: { prompt_tokens: 3, total_tokens: 3 } }),
    );
  }
  if (call.body.includes('"stream":true')) return answerStream(response, BEGINNING + END);
  answerPlain(response);
};

/** Reads a stream to its end. */
async function readStream(client: AzureOpenAI): Promise<{ text: string; total: unknown }> {
  let [text, total]: [string, unknown] = ["", undefined];
  const chunks = await client.chat.completions.create({
    ...HELLO,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const { choices, usage } of chunks) {
    text += choices[0]?.delta.content ?? "";
    total = usage?.total_tokens ?? total;
  }
  return { text, total };
}

describe("AzureOpenAI", () => {
  afterEach(closeAll);

  it("calls a deployment, plain and streamed; the deployment is the model", async () => {
    const { provider, under } = await startShaped("azure", answerAsAzure);
    const client = clientOf(under);
    const { choices } = await client.chat.completions.create(HELLO);
    assert.equal(choices[0]?.message.content, "Hello");
    assert.deepEqual(await readStream(client), { text: "Hello", total: 17 });
    const { data } = await client.embeddings.create({
      model: DEPLOYMENT,
      input: QUESTION,
      encoding_format: "float",
    });
    assert.deepEqual(data[0]?.embedding, [0.5]);
    await under.settled(3);
    assert.deepEqual(
      under.records.map(({ operation, model, stream, usage, outcome }) => [
        operation,
        model,
        stream,
        usage?.total,
        outcome,
      ]),
      [
        ["chat.completions", DEPLOYMENT, false, 2, "ok"],
        ["chat.completions", DEPLOYMENT, true, 17, "ok"],
        ["embeddings", DEPLOYMENT, false, 3, "ok"],
      ],
    );
    const deployment = `/openai/deployments/${DEPLOYMENT}`;
    assert.deepEqual(provider.calls.map(({ path }) => path), [
      `${deployment}/chat/completions?api-version=${VERSION}`,
      `${deployment}/chat/completions?api-version=${VERSION}`,
      `${deployment}/embeddings?api-version=${VERSION}`,
    ]);
    for (const { headers } of provider.calls) {
      assert.equal(headers["api-key"], UPSTREAM_KEY);
      assert.equal(headers["gateway-auth"], undefined);
    }
  });

  it("calls paths without a deployment, such as responses", async () => {
    const { provider, under } = await startShaped("azure", (response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(
        '{"object":"response","output":[],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}}',
      );
    });
    await clientOf(under).responses.create({ model: DEPLOYMENT, input: QUESTION });
    const { operation, usage } = await under.settled();
    assert.deepEqual([operation, usage?.total], ["responses", 7]);
    assert.equal(provider.calls[0]?.path, `/openai/responses?api-version=${VERSION}`);
  });

  it("is also served below /openai/v1, where the plain client calls", async () => {
    const { provider, under } = await startShaped("azure", answerAsAzure);
    const client = new OpenAI({
      baseURL: `${under.a}/openai/v1`,
      apiKey: UPSTREAM_KEY,
      defaultHeaders: { "Gateway-Auth": `Bearer ${under.key}` },
    });
    await client.chat.completions.create(HELLO);
    assert.equal((await under.settled()).model, DEPLOYMENT);
    assert.equal(provider.calls[0]?.path, "/openai/v1/chat/completions");
  });

  for (const how of ["break", "end"] as const) {
    for (
      const [where, beginning] of [
        ["between events", BEGINNING],
        ["within an event", BEGINNING.slice(0, -20)],
      ] as const
    ) {
      it(`throws on a stream that is cut ${where} by a ${how}`, async () => {
        const cut = cutAfter("text/event-stream", beginning, how);
        const { under } = await startShaped("azure", cut);
        const error = await failureOf(readStream(clientOf(under)));
        const code = how === "end" ? "upstream_stream_truncated" : "upstream_disconnected";
        if (where === "between events") {
          assert.ok(error instanceof APIError, `${error}`);
          assert.equal(error.code, code);
        } else assert.match(error.message, /malformed/); // the bytes of the event have gone out
        const record = await under.settled();
        assert.deepEqual([record.code, record.isEstimated], [code, true]);
      });
    }
  }

  it("is limited to the deployments of its key, and needs no model in the body", async () => {
    const { provider, under } = await startShaped("azure", (response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(COMPLETION);
    }, { config: { keys: [{ id: "one", key: KEY, models: [DEPLOYMENT] }] } });
    const call = async (deployment: string, model?: string) => {
      const path = `/openai/deployments/${deployment}/chat/completions?api-version=${VERSION}`;
      const answer = await fetch(under.a + path, {
        method: "POST",
        headers: {
          "gateway-auth": `Bearer ${KEY}`,
          "api-key": UPSTREAM_KEY,
          "content-type": "application/json",
        },
        body: JSON.stringify({ model, messages: HELLO.messages }),
      });
      return [answer.status, (await answer.json()).error?.code];
    };
    assert.deepEqual(await call(DEPLOYMENT), [200, undefined]);
    assert.deepEqual(await call(DEPLOYMENT, DEPLOYMENT), [200, undefined]);
    assert.deepEqual(await call("another"), [403, "model_not_allowed"]);
    assert.deepEqual(await call(DEPLOYMENT, "another"), [403, "model_not_allowed"]);
    assert.deepEqual(await call(`${DEPLOYMENT}%2Fx`), [400, "ambiguous_path"]);
    assert.equal(provider.calls.length, 2);
  });
});
