/**
 * The `openai` client beyond chat completions: responses, images, audio, embeddings and legacy
 * completions.
 */
// runtimes: all, workers
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import OpenAI, { toFile } from "openai";
import { closeAll, startWith } from "../support/aimock.ts";
import {
  EDIT_EVENTS,
  FINAL_RESPONSE,
  IMAGE_EVENTS,
  responseEvents,
  SPEECH_EVENTS,
  toEvent,
  toStream,
  TRANSCRIPT_EVENTS,
  type TypedEvent,
} from "../support/event_streams.ts";
import { PROMPT, type UnderTest, UPSTREAM_KEY } from "../support/gateway.ts";
import { answerStream } from "../support/provider.ts";
import { cutsOf, verdictOf } from "../support/verdict.ts";

const MODEL = "test-1";

const clientAt = (baseURL: string, key: string) =>
  new OpenAI({
    baseURL,
    apiKey: UPSTREAM_KEY,
    maxRetries: 0,
    logLevel: "off",
    defaultHeaders: { "Gateway-Auth": `Bearer ${key}` },
  });
const clientOf = ({ a, key }: UnderTest) => clientAt(`${a}/v1`, key);

const file = () => toFile(new Uint8Array([1, 2, 3]), "input.wav");

/** The library returns a stream of events as bytes to its user; this parses the events. */
async function speak(client: OpenAI): Promise<AsyncIterable<unknown>> {
  const voice = { model: MODEL, input: PROMPT, voice: "alloy", stream_format: "sse" } as const;
  const response = await client.audio.speech.create(voice);
  const { Stream } = await import("openai/streaming");
  return Stream.fromSSEResponse(response, new AbortController(), client);
}

interface Streamed {
  readonly events: readonly TypedEvent[];
  readonly open: (client: OpenAI) => PromiseLike<AsyncIterable<unknown>>;
  readonly tokens: number | undefined;
}

const STREAMS: Readonly<Record<string, Streamed>> = {
  "a response": {
    events: responseEvents(),
    open: (client) => client.responses.create({ model: MODEL, input: PROMPT, stream: true }),
    tokens: 27,
  },
  "a response that is retrieved": {
    events: responseEvents().slice(4),
    open: (client) => client.responses.retrieve("resp_1", { stream: true, starting_after: 3 }),
    tokens: undefined, // they were counted when the response was made
  },
  "an image": {
    events: IMAGE_EVENTS,
    open: (client) => client.images.generate({ model: MODEL, prompt: PROMPT, stream: true }),
    tokens: 110,
  },
  "two edited images": {
    events: [...EDIT_EVENTS, ...EDIT_EVENTS],
    open: async (client) =>
      client.images.edit({ model: MODEL, prompt: PROMPT, image: await file(), n: 2, stream: true }),
    tokens: 220,
  },
  "a transcript": {
    events: TRANSCRIPT_EVENTS,
    open: async (client) =>
      client.audio.transcriptions.create({ model: MODEL, file: await file(), stream: true }),
    tokens: 16,
  },
  "speech": { events: SPEECH_EVENTS, open: speak, tokens: 115 },
};

const OWN_ERROR = { message: "no", type: "server_error", param: "p", code: "own" };

describe("the openai client", () => {
  afterEach(closeAll);

  for (const [name, { events, open, tokens }] of Object.entries(STREAMS)) {
    it(`reads ${name} as it does directly at the provider`, async () => {
      const { provider, under } = await startWith((response) =>
        answerStream(response, toStream(events))
      );
      const verdict = await verdictOf(() => open(clientOf(under)));
      assert.deepEqual(verdict, { events: JSON.parse(JSON.stringify(events)), error: undefined });
      assert.deepEqual(verdict, await verdictOf(() => open(clientAt(provider.url, ""))));
      const { outcome, usage } = await under.settled();
      assert.deepEqual([outcome, usage?.total], ["ok", tokens]);
    });

    it(`throws for ${name} that ends after any of its events`, async () => {
      let length = 0;
      const { under } = await startWith((response) =>
        answerStream(response, toStream(events.slice(0, length)))
      );
      for (length of events.keys()) {
        const { events: heard, error } = await verdictOf(() => open(clientOf(under)));
        assert.deepEqual(heard, JSON.parse(JSON.stringify(events.slice(0, length))));
        assert.deepEqual([error?.class, error?.code, error?.type], [
          "APIError",
          "upstream_stream_truncated",
          "upstream_error",
        ]);
        assert.equal((await under.settled(length + 1)).outcome, "upstream_cut");
      }
    });

    it(`throws for ${name} that ends within an event`, async () => {
      const bytes = new TextEncoder().encode(toStream(events));
      let length = 0;
      const { under } = await startWith((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(bytes.subarray(0, length));
      });
      for (length of cutsOf(bytes.length)) {
        const { error } = await verdictOf(() => open(clientOf(under)));
        assert.notEqual(error, undefined, `cut at ${length} of ${bytes.length}`);
      }
      assert.deepEqual(
        new Set(under.records.map(({ outcome }) => outcome)),
        new Set(["upstream_cut"]),
      );
    });

    it(`reads the provider's own error as without the gateway in ${name}`, async () => {
      const own = [
        `event: error\ndata: ${JSON.stringify({ error: OWN_ERROR })}\n\n`,
        `data: ${JSON.stringify({ error: OWN_ERROR })}\n\n`,
        toEvent({ ...OWN_ERROR, type: "error" }),
      ];
      let text = "";
      const { provider, under } = await startWith((response) => answerStream(response, text));
      for (const error of own) {
        text = toStream(events.slice(0, 2)) + error;
        const verdict = await verdictOf(() => open(clientOf(under)));
        assert.deepEqual(verdict, await verdictOf(() => open(clientAt(provider.url, ""))));
        assert.equal((await under.settled()).outcome, "upstream_error");
      }
    });
  }

  it("collects a streamed response, and throws for a response that breaks off", async () => {
    let events: readonly TypedEvent[] = responseEvents();
    const { under } = await startWith((response) => answerStream(response, toStream(events)));
    const collect = () =>
      clientOf(under).responses.stream({ model: MODEL, input: PROMPT }).finalResponse();
    const { id, output_text, usage } = await collect();
    assert.deepEqual([id, output_text, usage?.total_tokens], ["resp_1", "Hello 👋", 27]);
    events = events.slice(0, 6);
    await assert.rejects(collect(), { code: "upstream_stream_truncated" });
  });

  it("reads plain answers of every interface, and their tokens are counted", async () => {
    const usage = { prompt_tokens: 8, total_tokens: 8 };
    const imageUsage = { input_tokens: 10, output_tokens: 100, total_tokens: 110 };
    const answers: Readonly<Record<string, unknown>> = {
      "/v1/responses": FINAL_RESPONSE,
      "/v1/responses/resp_1": FINAL_RESPONSE,
      "/v1/embeddings": {
        object: "list",
        data: [{ object: "embedding", index: 0, embedding: [0.5] }],
        model: MODEL,
        usage,
      },
      "/v1/completions": {
        id: "cmpl-1",
        choices: [{ text: "Hi", index: 0, finish_reason: "stop" }],
        usage,
      },
      "/v1/moderations": { id: "modr-1", model: MODEL, results: [{ flagged: false }] },
      "/v1/images/generations": { created: 1, data: [{ b64_json: "AA==" }], usage: imageUsage },
      "/v1/audio/transcriptions": { text: "Hello", usage: { type: "tokens", ...imageUsage } },
    };
    const { under } = await startWith((response, { path }) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(answers[path]));
    });
    const client = clientOf(under);
    const input = { model: MODEL, input: PROMPT };
    assert.equal((await client.responses.create(input)).output_text, "Hello 👋");
    assert.equal((await client.responses.retrieve("resp_1")).id, "resp_1");
    assert.deepEqual(
      (await client.embeddings.create({ ...input, encoding_format: "float" })).data[0]?.embedding,
      [
        0.5,
      ],
    );
    assert.equal(
      (await client.completions.create({ model: MODEL, prompt: PROMPT })).choices[0]?.text,
      "Hi",
    );
    assert.equal((await client.moderations.create(input)).results[0]?.flagged, false);
    assert.equal(
      (await client.images.generate({ model: MODEL, prompt: PROMPT })).data?.[0]?.b64_json,
      "AA==",
    );
    assert.equal(
      (await client.audio.transcriptions.create({ model: MODEL, file: await file() })).text,
      "Hello",
    );
    await under.settled(7);
    const tokens = under.records.map(({ operation, usage }) => [operation, usage?.total]);
    assert.deepEqual(tokens, [
      ["responses", 27],
      ["responses.get", undefined],
      ["embeddings", 8],
      ["completions", 8],
      ["moderations", undefined],
      ["images", 110],
      ["audio.transcriptions", 110],
    ]);
  });

  it("throws its own classes for the gateway's errors on every interface", async () => {
    const limits = { requests: "6/h" };
    const keys = [
      { id: "limited", key: "a-key-with-a-narrow-limit", limits },
      { id: "narrow", key: "a-key-with-a-narrow-policy", models: ["other-*"] },
    ];
    const { under } = await startWith((response) => answerStream(response, toStream([])), {
      config: { keys },
    });
    for (const { open } of Object.values(STREAMS)) {
      const classOf = async (key: string) => {
        const { error } = await verdictOf(() => open(clientAt(`${under.a}/v1`, key)));
        return [error?.class, error?.status, error?.code];
      };
      assert.deepEqual(await classOf("a-key-that-nobody-made"), [
        "AuthenticationError",
        401,
        "invalid_gateway_key",
      ]);
      assert.deepEqual(await classOf("a-key-with-a-narrow-policy"), [
        "PermissionDeniedError",
        403,
        "model_not_allowed",
      ]);
    }
    for (const { open } of Object.values(STREAMS)) {
      await verdictOf(() => open(clientAt(`${under.a}/v1`, keys[0]?.key ?? "")));
    }
    for (const { open } of Object.values(STREAMS)) {
      const { error } = await verdictOf(() => open(clientAt(`${under.a}/v1`, keys[0]?.key ?? "")));
      assert.deepEqual([error?.class, error?.status, error?.code], [
        "RateLimitError",
        429,
        "rate_limit_exceeded",
      ]);
    }
  });
});
