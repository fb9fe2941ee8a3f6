/**
 * Tokens of output without stated usage: counted from the relayed content, for all ways in which a
 * provider writes and splits it.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { ANTHROPIC } from "../../src/dialects/anthropic.ts";
import { type Dialect, MAX_KEPT_BYTES } from "../../src/dialects/dialect.ts";
import { OPAQUE } from "../../src/dialects/opaque.ts";
import { OPENAI_CHAT } from "../../src/dialects/openai_chat.ts";
import { OPENAI_MEDIA } from "../../src/dialects/openai_media.ts";
import { OPENAI_RESPONSES } from "../../src/dialects/openai_responses.ts";
import { it } from "../support/cases.ts";
import {
  FINAL_MESSAGE,
  FINAL_RESPONSE,
  MESSAGE_EVENTS,
  responseEvents,
  SPEECH_EVENTS,
  toEvent,
  toStream,
  TRANSCRIPT_EVENTS,
  type TypedEvent,
} from "../support/event_streams.ts";
import { COMPLETION } from "../support/provider.ts";

/** Texts, each with its number of tokens in o200k_base (by js-tiktoken). */
const TEXTS: Readonly<Record<string, [text: string, tokens: number]>> = {
  English: [
    "The gateway relays the bytes of an answer as they come, and it says so when a stream breaks off.",
    23,
  ],
  code: [
    "for (const [name, value] of Object.entries(headers)) {\n  if (value !== null) copy(name, value);\n}\n",
    27,
  ],
  Chinese: ["我的任务是针对用户的问题和要求提供适当的答复和支持。", 17],
  emoji: ["😀🎉🚀🔥👍🙏 🦀🧬🪐🫠🧿🪬🫧🦩 🧭🪢🫥🪫 🛰️🗿🧊🪁", 56],
  German: ["Heute sprechen wir darüber, wie ein Gateway vor Modellanbietern arbeitet.", 14],
};

let sequence = 0;
const padding = (text: string) => "obfuscated-data".slice(text.length % 12);
const toChunk = (delta: object, more: object = {}, choice: object = {}) =>
  `data: ${
    JSON.stringify({
      id: "chatcmpl-CYXb4sRfhZ6fTkyzXbFG6DPq9Wk0Q",
      object: "chat.completion.chunk",
      created: 1_762_317_122,
      model: "test-1-2026-04-14",
      service_tier: "default",
      system_fingerprint: "fp_f0bc439dc3",
      choices: [{ index: 0, delta, logprobs: null, finish_reason: null, ...choice }],
      usage: null,
      ...more,
    })
  }\n\n`;
const toDelta = (delta: object, more = "") =>
  `event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":${
    JSON.stringify(delta)
  }${more}}\n\n`;

/** Ways in which providers write a piece of content. */
const FORMS: Readonly<Record<string, [dialect: Dialect, write: (text: string) => string]>> = {
  "a chunk": [OPENAI_CHAT, (content) => toChunk({ content })],
  "a padded chunk": [
    OPENAI_CHAT,
    (content) => toChunk({ content }, { obfuscation: padding(content) }),
  ],
  "a chunk of reasoning": [
    OPENAI_CHAT,
    (text) => toChunk({ content: null, reasoning_content: text }),
  ],
  "a chunk that says it twice": [
    OPENAI_CHAT,
    (text) =>
      toChunk({
        content: "",
        reasoning: text,
        reasoning_details: [{ type: "reasoning.text", text }],
      }),
  ],
  "a chunk with a tool's arguments": [
    OPENAI_CHAT,
    (text) => toChunk({ tool_calls: [{ index: 0, function: { arguments: text } }] }),
  ],
  "a chunk with probabilities": [
    OPENAI_CHAT,
    (content) =>
      toChunk({ content }, {}, {
        logprobs: { content: [{ token: content, logprob: -0.1, bytes: [72] }] },
      }),
  ],
  "a chunk with a field that is not known": [
    OPENAI_CHAT,
    (text) => toChunk({ content: "", musings: text }),
  ],
  "a chunk with blanks": [
    OPENAI_CHAT,
    (content) => toChunk({ content }).replaceAll('":', '": ').replaceAll(',"', ', "'),
  ],
  "a chunk in several lines": [
    OPENAI_CHAT,
    (content) =>
      `data: ${
        JSON.stringify({ choices: [{ index: 0, delta: { content } }] }, null, 1).split("\n").join(
          "\ndata: ",
        )
      }\n\n`,
  ],
  "a chunk of parts": [OPENAI_CHAT, (text) => toChunk({ content: [{ type: "text", text }] })],
  "a legacy chunk": [
    OPENAI_CHAT,
    (text) => `data: ${JSON.stringify({ id: "cmpl-1", choices: [{ text }] })}\n\n`,
  ],
  "a delta of a response": [
    OPENAI_RESPONSES,
    (delta) =>
      toEvent({
        type: "response.output_text.delta",
        sequence_number: sequence++,
        item_id: "msg_68c97a6a00cc8190b1a5b0b8e3f3d5d00",
        output_index: 0,
        content_index: 0,
        delta,
        logprobs: [],
        obfuscation: padding(delta),
      } as TypedEvent),
  ],
  "a delta of a message": [
    ANTHROPIC,
    (text) => toDelta({ type: "text_delta", text }, " ".repeat(text.length % 7)),
  ],
  "a message's thought": [ANTHROPIC, (thinking) => toDelta({ type: "thinking_delta", thinking })],
  "an event of a response that is not known": [
    OPENAI_RESPONSES,
    (text) =>
      toEvent(
        { type: "response.musing.piece", sequence_number: sequence++, musing: text } as TypedEvent,
      ),
  ],
  "an event of a message that is not known": [
    ANTHROPIC,
    (text) => toEvent({ type: "musing", text } as TypedEvent),
  ],
  "a message's delta that is not known": [
    ANTHROPIC,
    (text) => toDelta({ type: "musing_delta", musing_text: text }),
  ],
  "a tool's input in a message": [
    ANTHROPIC,
    (text) => toDelta({ type: "input_json_delta", partial_json: text }),
  ],
  "a delta of a transcript": [
    OPENAI_MEDIA,
    (delta) => toEvent({ type: "transcript.text.delta", delta } as TypedEvent),
  ],
};

function count(dialect: Dialect, text: string, size = Infinity): number {
  const scanner = dialect.createScanner(1);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) scanner.push(bytes.subarray(at, at + size));
  scanner.end();
  return scanner.outputTokens;
}

/** Splits a text into pieces of one word, or of several. */
const toPieces = (text: string, words: number) =>
  Array.from(
    text.matchAll(
      new RegExp(`(?:\\s*\\S{1,6}){1,${words}}\\s*$|(?:\\s*\\S{1,6}){1,${words}}`, "g"),
    ),
    String,
  );

describe("the tokens of a stream without stated usage", () => {
  for (const [form, [dialect, write]] of Object.entries(FORMS)) {
    it(`are within a factor of two of the real ones in ${form}, for any size of events`, () => {
      for (const [name, [text, tokens]] of Object.entries(TEXTS)) {
        for (const words of [1, 4, 1000]) {
          const pieces = toPieces(text, words);
          assert.equal(pieces.join(""), text);
          const ratio = count(dialect, pieces.map(write).join("")) / tokens;
          assert.ok(ratio >= 0.5 && ratio <= 2, `${name}, ${words} words in an event: ${ratio}`);
        }
      }
    });

    it(`are the same in ${form}, for all ways to split the stream`, () => {
      const text = toPieces(Object.values(TEXTS).map(([each]) => each).join(" "), 2).map(write)
        .join("");
      const expected = count(dialect, text);
      for (const size of [1, 17, 1400]) {
        assert.equal(count(dialect, text, size), expected, `${size}`);
      }
    });
  }

  it.large("are in proportion to the content, and at least one for each event", () => {
    const [, write] = FORMS["a chunk"] ?? assert.fail();
    const content = fc.oneof(
      fc.string({ unit: "binary", maxLength: 40 }),
      fc.constantFrom('"', "\\", '\\"},"', "a"),
    );
    fc.assert(fc.property(fc.array(content), fc.constantFrom(1, 7, 1400), (contents, size) => {
      const said = contents.filter((each) => each !== "");
      const weigh = (text: string) =>
        Buffer.byteLength(text) + 4 * (text.match(/[\u{10000}-\u{10ffff}]/gu)?.length ?? 0);
      const bytes = said.reduce((sum, each) => sum + weigh(JSON.stringify(each)) - 2, 0);
      const expected = Math.max(said.length, Math.ceil(bytes / 4));
      assert.equal(count(OPENAI_CHAT, contents.map(write).join(""), size), expected);
    }));
  });

  it("are zero for events without content, or with content that was sent before", () => {
    const usage = { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 };
    const silent: readonly [Dialect, string][] = [
      [OPENAI_CHAT, toChunk({ role: "assistant", content: "", refusal: null })],
      [OPENAI_CHAT, toChunk({}, {}, { finish_reason: "stop" })],
      [OPENAI_CHAT, toChunk({}, { choices: [], usage })],
      [OPENAI_CHAT, ": OPENROUTER PROCESSING\n\ndata: [DONE]\n\n"],
      [ANTHROPIC, toStream(MESSAGE_EVENTS.filter(({ type }) => type !== "content_block_delta"))],
      [OPENAI_RESPONSES, toStream(responseEvents().filter(({ type }) => !type.endsWith(".delta")))],
      [OPENAI_MEDIA, toStream(TRANSCRIPT_EVENTS.slice(1))],
    ];
    for (const [dialect, text] of silent) {
      assert.equal(count(dialect, text), 0, text);
      for (const [form, [own, write]] of Object.entries(FORMS)) {
        if (own === dialect) {
          assert.equal(count(dialect, text + write("Hello") + text), 2, `${form}: ${text}`);
        }
      }
    }
  });

  it("depend only on the content, regardless of other fields", () => {
    const tricky = '"delta":"x","content":"y","b64_json":"z"';
    const [, write] = FORMS["a chunk"] ?? assert.fail();
    const escaped = Buffer.byteLength(JSON.stringify(tricky)) - 2;
    assert.equal(count(OPENAI_CHAT, write(tricky)), Math.ceil(escaped / 4));
  });

  it("are counted for an event that is too long for the buffer", () => {
    const text = "word ".repeat(MAX_KEPT_BYTES / 4);
    for (const [form, [dialect, write]] of Object.entries(FORMS)) {
      // No provider sends so much of these in one event.
      if (/twice|probabilities|arguments|parts/.test(form)) continue;
      for (const size of [1000, Infinity]) {
        const ratio = count(dialect, write("Hi") + write(text) + write("Hi"), size) /
          (text.length / 4);
        assert.ok(ratio > 0.99 && ratio < 1.02, `${form}: ${ratio}`);
      }
    }
  });

  it("are few for sound and pictures, which are long", () => {
    const media = "iVBO".repeat(50_000);
    const image = { type: "image_generation.partial_image", b64_json: media };
    const speech = { type: "speech.audio.delta", audio: media };
    for (const event of [image, speech]) assert.equal(count(OPENAI_MEDIA, toEvent(event)), 98);
    assert.equal(
      count(OPENAI_CHAT, toChunk({ audio: { id: "audio_1", data: "iVBO".repeat(2000) } })),
      4,
    );
    assert.equal(count(OPENAI_MEDIA, toStream(SPEECH_EVENTS)), 2);
  });

  it("are counted by bytes if the interface is unknown", () => {
    assert.equal(count(OPAQUE, `event: thread.run\ndata: ${"x".repeat(3170)}\n\n`), 100);
  });
});

const LEGACY = { object: "text_completion", choices: [{ text: "Hello there", index: 0 }] };
const CALLS = {
  type: "message",
  content: [{ type: "tool_use", id: "toolu_1", name: "f", input: { city: "Zürich" } }],
};
const VECTORS = {
  object: "list",
  data: [{ object: "embedding", index: 0, embedding: [0.1, -0.2] }],
};
const ANSWERS: Readonly<Record<string, [dialect: Dialect, answer: object, tokens: number]>> = {
  "a chat completion": [OPENAI_CHAT, JSON.parse(COMPLETION), 2],
  "a legacy completion": [OPENAI_CHAT, LEGACY, 3],
  "embeddings": [OPENAI_CHAT, VECTORS, 0],
  "a moderation": [OPENAI_CHAT, { results: [{ flagged: false }] }, 0],
  "a response": [OPENAI_RESPONSES, FINAL_RESPONSE, 4],
  "a message": [ANTHROPIC, FINAL_MESSAGE, 4],
  "a message that calls a tool": [ANTHROPIC, CALLS, 5],
  "an answer in fields that are not known": [
    OPENAI_CHAT,
    {
      id: "x",
      model: "test-1",
      choices: [{ message: { role: "assistant", content: null, musings: "Hello there" } }],
    },
    3,
  ],
  "emoji": [OPENAI_CHAT, { choices: [{ message: { content: "🦀🧬🪐🫠" } }] }, 8],
  "a response that repeats its request": [
    OPENAI_RESPONSES,
    {
      ...FINAL_RESPONSE,
      instructions: "Be brief, and say nothing else",
      metadata: { team: "search and rescue" },
    },
    4,
  ],
  "an image": [OPENAI_MEDIA, { data: [{ b64_json: "iVBO".repeat(1024) }] }, 2],
};

describe("the tokens of a plain answer without stated usage", () => {
  const inPieces = (dialect: Dialect, bytes: Uint8Array) => {
    const meter = dialect.createMeter();
    for (let at = 0; at < bytes.length; at += 1000) meter.push(bytes.subarray(at, at + 1000));
    return meter.outputTokens;
  };

  for (const [name, [dialect, answer, tokens]] of Object.entries(ANSWERS)) {
    it(`are counted from its content in ${name}, whole and in pieces`, () => {
      for (const space of [0, 2]) {
        const bytes = Buffer.from(JSON.stringify(answer, null, space));
        assert.deepEqual([dialect.countOutput(bytes), inPieces(dialect, bytes)], [tokens, tokens]);
      }
    });
  }

  it("are counted by its length if it is not JSON, or if the interface is unknown", () => {
    const text = Buffer.from("Hello, this is a transcript.");
    for (const dialect of [OPENAI_MEDIA, OPAQUE]) {
      assert.deepEqual([dialect.countOutput(text), inPieces(dialect, text)], [7, 7]);
      assert.equal(dialect.countOutput(new Uint8Array()), 0);
    }
    assert.equal(OPENAI_CHAT.countOutput(Buffer.from('{"a":'.repeat(20_000))), 25_000);
  });

  it("are read from the end of an event that is longer than the buffer", () => {
    const { length } = "word ".repeat(40_000);
    const long = (content: object) =>
      inPieces(OPENAI_CHAT, Buffer.from(JSON.stringify(content))) ?? NaN;
    const tokens = long({ choices: [{ message: { content: "word ".repeat(40_000) } }] });
    assert.ok(Math.abs(tokens / (length / 4) - 1) < 0.01, `${tokens}`);
    const [vector] = VECTORS.data;
    assert.equal(
      long({ data: Array(50).fill({ ...vector, embedding: Array(1000).fill(0.012345) }) }),
      0,
    );
    const image = long({ data: [{ b64_json: "iVBO".repeat(500_000) }] });
    assert.ok(image > 900 && image < 1000, `${image}`);
  });
});
