/** Usage in the forms of single providers, through the gateway: its billing classes. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import type { ShapeName } from "../../src/config/shape.ts";
import type { ClassAmounts } from "../../src/exchange/billing.ts";
import { closeAll } from "../support/aimock.ts";
import { classesOf, toEventStream } from "../support/money_vectors.ts";
import { startShaped } from "../support/shapes.ts";
import { callRaw } from "../support/tcp_peer.ts";

/** An answer of a provider, and the classes of its usage. */
interface Answered {
  readonly shape?: ShapeName;
  readonly path: string;
  /** A form in place of JSON. */
  readonly form?: string;
  readonly answer?: unknown;
  readonly events?: readonly unknown[];
  readonly classes: ClassAmounts;
}

const RECORDING = '--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n' +
  '--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n';
const SUMS = { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 };
const chat = (usage: object) => ({ path: "/v1/chat/completions", answer: { choices: [], usage } });
const transcribed = { path: "/v1/audio/transcriptions", form: RECORDING };
const mistral = {
  prompt_audio_seconds: 8,
  prompt_tokens: 4,
  completion_tokens: 45,
  total_tokens: 152,
};
const interaction = {
  id: "i",
  status: "completed",
  usage: {
    total_input_tokens: 100,
    total_cached_tokens: 20,
    total_output_tokens: 30,
    total_thought_tokens: 40,
    total_tokens: 170,
    grounding_tool_count: [{ type: "google_search", count: 2 }],
  },
};
const interacted = {
  input: 80,
  cacheRead: 20,
  output: 30,
  reasoning: 40,
  webSearches: 2,
};

const grounded = (groundingMetadata: object) => ({
  shape: "gemini" as const,
  path: "/v1beta/models/gemini-3.5-flash:generateContent",
  answer: {
    candidates: [{ content: { parts: [{ text: "Hi" }] }, groundingMetadata }],
    usageMetadata: { promptTokenCount: 100, candidatesTokenCount: 50, totalTokenCount: 150 },
  },
});

const ANSWERS: Readonly<Record<string, Answered>> = {
  "cache writes of Alibaba": {
    ...chat({
      ...SUMS,
      prompt_tokens_details: {
        cached_tokens: 10,
        cache_creation: { ephemeral_5m_input_tokens: 60 },
        cache_creation_input_tokens: 60,
        cache_type: "ephemeral",
      },
    }),
    classes: { input: 30, cacheRead: 10, cacheWrite: 60, output: 50 },
  },
  "cache writes of LiteLLM": {
    ...chat({
      ...SUMS,
      prompt_tokens_details: { cached_tokens: 10 },
      cache_creation_input_tokens: 60,
      cache_read_input_tokens: 10,
    }),
    classes: { input: 30, cacheRead: 10, cacheWrite: 60, output: 50 },
  },
  "cache writes without details": {
    ...chat({ ...SUMS, cache_creation_input_tokens: 60 }),
    classes: { input: 40, cacheWrite: 60, output: 50 },
  },
  "tokens of the cache that only the total contains, as at Portkey": {
    ...chat({
      prompt_tokens: 30,
      completion_tokens: 50,
      total_tokens: 150,
      prompt_tokens_details: { cached_tokens: 10 },
      cache_creation_input_tokens: 60,
      cache_read_input_tokens: 10,
    }),
    classes: { input: 30, cacheRead: 10, cacheWrite: 60, output: 50 },
  },
  "searches of OpenRouter": {
    ...chat({ ...SUMS, server_tool_use: { web_search_requests: 2, tool_calls_requested: 2 } }),
    classes: { input: 100, output: 50, webSearches: 2 },
  },
  "sound in a chat of Mistral": {
    ...chat({ ...mistral }),
    classes: { input: 4, output: 45, audioMs: 8000 },
  },
  "a transcription of Mistral": {
    ...transcribed,
    answer: { model: "m", text: "Hi", usage: mistral },
    classes: { input: 4, output: 45, audioMs: 8000 },
  },
  "a transcription of Mistral in a stream": {
    ...transcribed,
    events: [
      { type: "transcription.text.delta", text: "Hi" },
      { type: "transcription.done", model: "m", text: "Hi", usage: mistral },
    ],
    classes: { input: 4, output: 45, audioMs: 8000 },
  },
  "a transcription of silence": {
    ...transcribed,
    answer: { text: "", usage: { prompt_audio_seconds: 2 } },
    classes: { audioMs: 2000 },
  },
  "a transcription that states its length only, as at Groq": {
    ...transcribed,
    answer: { task: "transcribe", duration: 8.47, text: "Hi", segments: [] },
    classes: { audioMs: 8470 },
  },
  "a transcription with its length as a text": {
    ...transcribed,
    answer: { task: "transcribe", duration: "8.470000267028809", text: "Hi" },
    classes: { audioMs: 8470 },
  },
  "tools of xAI": {
    path: "/v1/responses",
    answer: {
      status: "completed",
      output: [
        { type: "web_search_call", status: "completed", action: { type: "search" } },
        { type: "custom_tool_call", name: "x_keyword_search", status: "completed" },
      ],
      usage: {
        input_tokens: 100,
        output_tokens: 50,
        total_tokens: 150,
        server_side_tool_usage_details: {
          web_search_calls: 1,
          x_search_calls: 3,
          code_interpreter_calls: 2,
          file_search_calls: 0,
        },
      },
    },
    classes: { input: 100, output: 50, webSearches: 4, codeSessions: 2 },
  },
  "an interaction with Gemini": {
    shape: "gemini",
    path: "/v1beta/interactions",
    answer: interaction,
    classes: interacted,
  },
  "an interaction with Gemini in a stream": {
    shape: "gemini",
    path: "/v1beta/interactions",
    events: [
      { event_type: "interaction.start", interaction: { id: "i", status: "in_progress" } },
      { event_type: "content.delta", delta: { type: "text", text: "Hi" } },
      { event_type: "interaction.complete", interaction },
    ],
    classes: interacted,
  },
  "an interaction with Gemini that uses Google Maps": {
    shape: "gemini",
    path: "/v1beta/interactions",
    answer: {
      ...interaction,
      usage: { ...interaction.usage, grounding_tool_count: [{ type: "google_maps", count: 2 }] },
    },
    classes: interacted,
  },
  "searches for pictures": {
    ...grounded({ webSearchQueries: ["a", ""], imageSearchQueries: ["a", "b", "b"] }),
    classes: { input: 100, output: 50, webSearches: 3 },
  },
  "an answer with places of Google Maps": {
    ...grounded({ groundingChunks: [{ maps: { title: "a" } }, { maps: { title: "b" } }] }),
    classes: { input: 100, output: 50, webSearches: 1 },
  },
  "pictures of Google's Imagen": {
    shape: "gemini",
    path: "/v1beta/models/m:predict",
    answer: {
      predictions: Array(4).fill({
        bytesBase64Encoded: "A".repeat(50_000),
        mimeType: "image/png",
      }),
    },
    classes: { images: 4 },
  },
  "pictures of Bedrock": {
    shape: "bedrock",
    path: "/model/m/invoke",
    answer: { images: Array(3).fill("A".repeat(50_000)) },
    classes: { images: 3 },
  },
};

/** Sends a call through a gateway. @returns The record of the call */
async function settle({ shape = "v1", path, form, answer, events }: Answered) {
  const isStream = events !== undefined;
  const { under } = await startShaped(shape, (response) => {
    response.writeHead(200, {
      "content-type": isStream ? "text/event-stream" : "application/json",
    });
    response.end(isStream ? toEventStream(events) : JSON.stringify(answer));
  }, { provider: { operations: ["all"] } });
  const type = form === undefined ? "application/json" : "multipart/form-data; boundary=b";
  await callRaw(new URL(under.a).origin, {
    path,
    headers: { ...under.headers, "content-type": type },
    body: form ?? JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hi" }] }),
  });
  return await under.settled();
}

describe("an answer has its billing classes", () => {
  afterEach(closeAll);

  for (const [name, each] of Object.entries(ANSWERS)) {
    it(name, async () => {
      const { usage, outcome } = await settle(each);
      assert.equal(outcome, "ok");
      assert.ok(usage !== undefined, "usage is stated");
      assert.deepEqual(classesOf(usage), [each.classes]);
    });
  }
});
