/** The `cohere-ai` client, as published on npm, at its natural addresses. */
// runtimes: bun, node, workers
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { CohereClientV2, CohereError } from "cohere-ai";
import { closeAll } from "../support/aimock.ts";
import { it } from "../support/cases.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { type Answering, answerStream } from "../support/provider.ts";
import {
  cutAfter,
  failureOf,
  QUESTION,
  startShaped,
  unlessWorkers,
  WORKERS_END_CLEANLY,
} from "../support/shapes.ts";

const MODEL = "command-a-03-2025";
const USAGE = {
  billed_units: { input_tokens: 5, output_tokens: 3 },
  tokens: { input_tokens: 71, output_tokens: 3 },
};
const event = (data: { readonly type: string }) =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
const delta = (text: string) =>
  event(
    { type: "content-delta", index: 0, delta: { message: { content: { text } } } } as {
      readonly type: string;
    },
  );
const BEGINNING = event({ type: "message-start", id: "1" } as { readonly type: string }) +
  delta("Hel") + delta("lo");
const END = event(
  { type: "message-end", delta: { finish_reason: "COMPLETE", usage: USAGE } } as {
    readonly type: string;
  },
);

const answerAsCohere: Answering = (response, { path, body }) => {
  const { stream } = JSON.parse(body.toString());
  if (stream === true) return answerStream(response, BEGINNING + END);
  response.writeHead(200, { "content-type": "application/json" });
  if (path === "/v2/rerank") {
    return response.end(
      '{"results":[{"index":0,"relevance_score":0.9}],"meta":{"billed_units":{"search_units":1}}}',
    );
  }
  if (path === "/v2/embed") {
    return response.end(
      '{"id":"1","embeddings":{"float":[[0.5]]},"meta":{"billed_units":{"input_tokens":2}}}',
    );
  }
  const message = { role: "assistant", content: [{ type: "text", text: "Hello" }] };
  response.end(JSON.stringify({ id: "1", finish_reason: "COMPLETE", message, usage: USAGE }));
};

const clientOf = ({ a, key }: UnderTest) =>
  new CohereClientV2({
    token: UPSTREAM_KEY,
    environment: a,
    headers: { "Gateway-Auth": `Bearer ${key}` },
    maxRetries: 0,
  });
const HELLO = { model: MODEL, messages: [{ role: "user" as const, content: QUESTION }] };

async function textOf(client: CohereClientV2): Promise<string> {
  let text = "";
  for await (const each of await client.chatStream(HELLO)) {
    if (each.type === "content-delta") text += each.delta?.message?.content?.text ?? "";
  }
  return text;
}

describe("cohere-ai", () => {
  afterEach(closeAll);

  it("gets a plain answer and a stream, and the billed tokens are counted", async () => {
    const { provider, under } = await startShaped("cohere", answerAsCohere);
    const client = clientOf(under);
    const { message } = await client.chat(HELLO);
    assert.equal(message.content?.[0]?.type === "text" && message.content[0].text, "Hello");
    assert.equal(await textOf(client), "Hello");
    await under.settled(2);
    for (const { operation, model, usage, outcome } of under.records) {
      assert.deepEqual([operation, model, outcome], ["cohere.chat", MODEL, "ok"]);
      assert.deepEqual([usage?.total, usage?.input, usage?.output], [8, 5, 3]);
    }
    assert.deepEqual(under.records.map(({ stream }) => stream), [false, true]);
    assert.deepEqual(provider.calls.map(({ path }) => path), ["/v2/chat", "/v2/chat"]);
    assert.equal(provider.calls[0]?.headers.authorization, `Bearer ${UPSTREAM_KEY}`);
    assert.equal(provider.calls[0]?.headers["gateway-auth"], undefined);
  });

  it("embeds and ranks", async () => {
    const { under } = await startShaped("cohere", answerAsCohere);
    const client = clientOf(under);
    const options = { inputType: "search_query" as const, embeddingTypes: ["float" as const] };
    await client.embed({ model: "embed-v4", texts: ["Hi"], ...options });
    await client.rerank({ model: "rerank-v4", query: "Hi", documents: ["Hello"] });
    await under.settled(2);
    assert.deepEqual(under.records.map(({ operation }) => operation), [
      "cohere.embed",
      "cohere.rerank",
    ]);
    assert.equal(under.records[0]?.usage?.input, 2);
    assert.equal(under.records[1]?.usage?.parts?.[0]?.classes.searchUnits, unlessWorkers(1));
  });

  it("ranks under a budget only with a price of search units, which the budget counts", async () => {
    const key = "k".repeat(30);
    const rank = async (price: object, budget: string) => {
      const { under, provider } = await startShaped("cohere", answerAsCohere, {
        config: {
          prices: { "rerank-*": price },
          keys: [{ id: "one", key, limits: { budget } }],
        },
      });
      const client = clientOf({ ...under, key });
      const call = () => client.rerank({ model: "rerank-v4", query: "Hi", documents: ["Hello"] });
      return { call, provider };
    };
    const unpriced = await rank({ input: 1 }, "1 USD/day");
    const refusal = await failureOf(unpriced.call());
    assert.ok(refusal instanceof CohereError);
    assert.match(refusal.message, /its price has no searchUnits/);
    assert.equal(unpriced.provider.calls.length, 0);
    // A thousand units cost 2 USD.
    const priced = await rank({ searchUnits: 2 }, "0.003 USD/day");
    await priced.call();
    const second = await priced.call().then(() => priced.call()).catch((error) => error);
    assert.ok(second instanceof CohereError);
    assert.equal(second.statusCode, 429);
    assert.ok(priced.provider.calls.length <= 2);
  });

  for (const how of ["break", "end"] as const) {
    for (
      const [where, beginning] of [
        ["between events", BEGINNING],
        ["within an event", BEGINNING.slice(0, -20)],
      ] as const
    ) {
      const title = `throws on a stream that is cut ${where} by a ${how}: the gateway breaks it`;
      it.notOn("workers", WORKERS_END_CLEANLY, title, async () => {
        const cut = cutAfter("text/event-stream", beginning, how);
        const { under } = await startShaped("cohere", cut);
        await failureOf(textOf(clientOf(under)));
        const { code, isEstimated } = await under.settled();
        assert.deepEqual([code, isEstimated], [
          how === "end" ? "upstream_stream_truncated" : "upstream_disconnected",
          true,
        ]);
      });
    }
  }

  it("gets refusals in Cohere's form", async () => {
    const { under } = await startShaped("cohere", answerAsCohere);
    const error: unknown = await failureOf(clientOf({ ...under, key: "wrong" }).chat(HELLO));
    assert.ok(error instanceof CohereError);
    assert.equal(error.statusCode, 401);
    assert.match(error.message, /gateway key/);
  });
});
