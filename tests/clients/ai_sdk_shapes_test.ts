/** Vercel's `ai` with its clients of Google, Azure and Cohere, at their natural addresses. */
// runtimes: bun, node, workers
import assert from "node:assert/strict";
import { createAzure } from "@ai-sdk/azure";
import { createCohere } from "@ai-sdk/cohere";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { afterEach, describe } from "@std/testing/bdd";
import { generateText, type LanguageModel, streamText } from "ai";
import type { ShapeName } from "../../src/config/shape.ts";
import { closeAll } from "../support/aimock.ts";
import { it } from "../support/cases.ts";
import { type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { type Answering, answerStream, chunk, COMPLETION } from "../support/provider.ts";
import { isWorkers } from "../support/runtimes.ts";
import { cutAfter, QUESTION, startShaped, WORKERS_END_CLEANLY } from "../support/shapes.ts";

const MODEL = "a-model";
const EVENT_STREAM = "text/event-stream";
const eventOf = (data: unknown) => `data: ${JSON.stringify(data)}\r\n\r\n`;

const USAGE_OF_GOOGLE = { promptTokenCount: 12, candidatesTokenCount: 5, totalTokenCount: 17 };
const partOf = (text: string, more: object = {}) => ({
  candidates: [{ content: { role: "model", parts: [{ text }] }, ...more }],
  usageMetadata: USAGE_OF_GOOGLE,
});
const STOP = { finishReason: "STOP" };

const USAGE_OF_OPENAI = { prompt_tokens: 12, completion_tokens: 5, total_tokens: 17 };

const COHERE_COUNTS = { input_tokens: 12, output_tokens: 5 };
const USAGE_OF_COHERE = { billed_units: COHERE_COUNTS, tokens: COHERE_COUNTS };
const deltaOf = (text: string) =>
  eventOf({ type: "content-delta", index: 0, delta: { message: { content: { text } } } });

/** A client of a shape, and its provider's answers. */
interface Client {
  readonly shape: ShapeName;
  model(
    settings: { baseURL: string; apiKey: string; headers: Record<string, string> },
  ): LanguageModel;
  /** End of the base URL. */
  readonly base: string;
  readonly plain: string;
  readonly beginning: string;
  readonly end: string;
  /** Paths of the plain call and of the stream. */
  readonly paths: readonly [string, string];
}

const CLIENTS: readonly Client[] = [
  {
    shape: "gemini",
    model: (settings) => createGoogleGenerativeAI(settings)(MODEL),
    base: "/v1beta",
    plain: JSON.stringify(partOf("Hello", STOP)),
    beginning: eventOf(partOf("Hel")),
    end: eventOf(partOf("lo", STOP)),
    paths: [
      `/v1beta/models/${MODEL}:generateContent`,
      `/v1beta/models/${MODEL}:streamGenerateContent?alt=sse`,
    ],
  },
  {
    shape: "azure",
    model: (settings) =>
      createAzure({ ...settings, useDeploymentBasedUrls: true, apiVersion: "2024-10-21" })
        .chat(MODEL),
    base: "/openai",
    plain: JSON.stringify({ ...JSON.parse(COMPLETION), usage: USAGE_OF_OPENAI }),
    beginning: chunk("Hel"),
    end: chunk("lo") + chunk(null, "stop") + eventOf({ choices: [], usage: USAGE_OF_OPENAI }) +
      "data: [DONE]\n\n",
    paths: [
      `/openai/deployments/${MODEL}/chat/completions?api-version=2024-10-21`,
      `/openai/deployments/${MODEL}/chat/completions?api-version=2024-10-21`,
    ],
  },
  {
    shape: "cohere",
    model: (settings) => createCohere(settings)(MODEL),
    base: "/v2",
    plain: JSON.stringify({
      message: { role: "assistant", content: [{ type: "text", text: "Hello" }] },
      finish_reason: "COMPLETE",
      usage: USAGE_OF_COHERE,
    }),
    beginning: eventOf({ type: "message-start", id: "1" }) +
      eventOf({
        type: "content-start",
        index: 0,
        delta: { message: { content: { type: "text", text: "" } } },
      }) + deltaOf("Hel"),
    end: deltaOf("lo") + eventOf({ type: "content-end", index: 0 }) +
      eventOf({
        type: "message-end",
        delta: { finish_reason: "COMPLETE", usage: USAGE_OF_COHERE },
      }),
    paths: ["/v2/chat", "/v2/chat"],
  },
];

function modelOf(client: Client, { a, key }: UnderTest): LanguageModel {
  const headers = { "Gateway-Auth": `Bearer ${key}` };
  return client.model({ baseURL: a + client.base, apiKey: UPSTREAM_KEY, headers });
}

/** Reads a stream to its end, which can be an error. */
async function readStream(model: LanguageModel): Promise<{ text: string; errors: unknown[] }> {
  const errors: unknown[] = [];
  let text = "";
  const { fullStream } = streamText({
    model,
    prompt: QUESTION,
    maxRetries: 0,
    onError: ({ error }) => void errors.push(error),
  });
  try {
    for await (const part of fullStream) if (part.type === "text-delta") text += part.text;
  } catch (error) {
    errors.push(error); // of a connection that breaks
  }
  return { text, errors };
}

describe("the ai SDK at natural addresses", () => {
  afterEach(closeAll);

  for (const client of CLIENTS) {
    const { shape, plain, beginning, end, paths } = client;

    it(`of ${shape} gets a plain answer and a stream, and their usage is counted`, async () => {
      const answering: Answering = (response) => {
        if (provider.calls.length > 1) return answerStream(response, beginning + end);
        response.writeHead(200, { "content-type": "application/json" });
        response.end(plain);
      };
      const { provider, under } = await startShaped(shape, answering);
      const model = modelOf(client, under);
      const { text, usage } = await generateText({ model, prompt: QUESTION, maxRetries: 0 });
      assert.deepEqual([text, usage.inputTokens, usage.outputTokens], ["Hello", 12, 5]);
      assert.deepEqual(await readStream(model), { text: "Hello", errors: [] });
      assert.deepEqual(provider.calls.map(({ path }) => path), paths);
      await under.settled(2);
      for (const { outcome, model, usage } of under.records) {
        assert.deepEqual([outcome, model, usage?.input, usage?.output], ["ok", MODEL, 12, 5]);
      }
    });

    for (const how of ["break", "end"] as const) {
      const reason = isWorkers && shape === "cohere" ? WORKERS_END_CLEANLY : undefined;
      it.unless(
        reason,
        `of ${shape} reports an error for a stream that is cut by a ${how}`,
        async () => {
          const { under } = await startShaped(shape, cutAfter(EVENT_STREAM, beginning, how));
          const { text, errors } = await readStream(modelOf(client, under));
          // Cohere has no event for errors, so the gateway breaks the connection after both cuts, and the
          // client loses bytes that it has not read
          if (shape === "cohere") assert.ok("Hel".startsWith(text), text);
          else assert.equal(text, "Hel");
          assert.ok(errors.length > 0);
          const { code, usage, isEstimated } = await under.settled();
          assert.equal(
            code,
            how === "end" ? "upstream_stream_truncated" : "upstream_disconnected",
          );
          if (shape === "gemini") assert.equal(usage?.input, 12); // stated before the cut
          else if (!isWorkers) assert.equal(isEstimated, true);
        },
      );
    }
  }
});
