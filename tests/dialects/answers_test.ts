/** Plain answers of each interface: their usage, and the gateway's errors in their place. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { ANTHROPIC } from "../../src/dialects/anthropic.ts";
import { type Dialect, MAX_KEPT_BYTES } from "../../src/dialects/dialect.ts";
import { OPAQUE, PLAIN_TEXT } from "../../src/dialects/opaque.ts";
import { OPENAI_CHAT } from "../../src/dialects/openai_chat.ts";
import { OPENAI_MEDIA } from "../../src/dialects/openai_media.ts";
import { OPENAI_RESPONSES } from "../../src/dialects/openai_responses.ts";
import { type ErrorCode, ERRORS } from "../../src/errors/codes.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import type { TokenUsage } from "../../src/exchange/billing.ts";
import { FINAL_MESSAGE, FINAL_RESPONSE } from "../support/event_streams.ts";
import { COMPLETION } from "../support/provider.ts";

const IMAGES = {
  created: 1_700_000_000,
  data: [{ b64_json: "iVBORw0KGgo=" }],
  usage: {
    input_tokens: 10,
    input_tokens_details: { text_tokens: 10, image_tokens: 0 },
    output_tokens: 100,
    total_tokens: 110,
  },
};
const EMBEDDINGS = {
  object: "list",
  data: [{ object: "embedding", index: 0, embedding: [0.1, -0.2] }],
  model: "test-1",
  usage: { prompt_tokens: 8, total_tokens: 8 },
};
const LEGACY = {
  id: "cmpl-1",
  object: "text_completion",
  choices: [{ text: "Hello", index: 0, logprobs: null, finish_reason: "stop" }],
  usage: { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 },
};
/** Usage with nested details, as in a message with several passes. */
const ITERATED = {
  ...FINAL_MESSAGE,
  usage: {
    ...FINAL_MESSAGE.usage,
    iterations: [{ input_tokens: 5, cache_creation: { ephemeral_5m_input_tokens: 7 } }],
  },
};

const MESSAGE_USAGE: TokenUsage = {
  ...{ total: 36, input: 23, output: 13, cached: 11, reasoning: 2 },
  parts: [{
    classes: { input: 5, cacheRead: 11, cacheWrite: 7, output: 11, reasoning: 2 },
    tariff: { context: 23 },
  }],
};
const ANSWERS: Readonly<
  Record<string, [dialect: Dialect, answer: unknown, usage: TokenUsage | undefined]>
> = {
  "a chat completion": [OPENAI_CHAT, JSON.parse(COMPLETION), { total: 2, input: 1, output: 1 }],
  "a legacy completion": [OPENAI_CHAT, LEGACY, { total: 12, input: 5, output: 7 }],
  "embeddings": [OPENAI_CHAT, EMBEDDINGS, { total: 8, input: 8 }],
  "a moderation": [
    OPENAI_CHAT,
    { id: "modr-1", model: "test-1", results: [{ flagged: false }] },
    undefined,
  ],
  "a response": [OPENAI_RESPONSES, FINAL_RESPONSE, {
    total: 27,
    input: 20,
    output: 7,
    cached: 8,
    reasoning: 3,
  }],
  "a response in the background": [OPENAI_RESPONSES, { ...FINAL_RESPONSE, usage: null }, undefined],
  "images": [OPENAI_MEDIA, IMAGES, {
    ...{ total: 110, input: 10, output: 100 },
    parts: [{ classes: { input: 10, outputImage: 100 }, tariff: { context: 10 } }],
  }],
  "images without usage": [OPENAI_MEDIA, { created: 1, data: [] }, undefined],
  "a transcription by the second": [
    OPENAI_MEDIA,
    { text: "Hello", usage: { type: "duration", seconds: 3 } },
    { total: 0, parts: [{ classes: { audioMs: 3000 }, tariff: { context: 0 } }] },
  ],
  "a transcription with its cost": [
    OPENAI_MEDIA,
    { text: "Hello", usage: { type: "duration", seconds: 3, cost: 0.0001 } },
    {
      ...{ total: 0, statedCost: "0.0001" },
      parts: [{ classes: { audioMs: 3000 }, tariff: { context: 0 } }],
    },
  ],
  "a message": [ANTHROPIC, FINAL_MESSAGE, MESSAGE_USAGE],
  "a message with iterations": [ANTHROPIC, ITERATED, MESSAGE_USAGE],
  "a message of the least usage": [
    ANTHROPIC,
    { usage: { input_tokens: 5, output_tokens: 13, cache_read_input_tokens: null } },
    { total: 18, input: 5, output: 13 },
  ],
  "a count of tokens": [ANTHROPIC, { input_tokens: 2095 }, undefined],
  "numbers that are no counts": [
    ANTHROPIC,
    { usage: { input_tokens: -1, output_tokens: "13" } },
    undefined,
  ],
  "anything": [
    OPAQUE,
    { usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } },
    { total: 2, input: 1, output: 1 },
  ],
  "plain text that looks like an answer": [
    PLAIN_TEXT,
    { usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } },
    undefined,
  ],
};

describe("a plain answer", () => {
  for (const [name, [dialect, answer, usage]] of Object.entries(ANSWERS)) {
    it(`yields the tokens of ${name}, whole, in pieces and larger than the buffer`, () => {
      for (const space of [0, 2]) {
        const bytes = Buffer.from(JSON.stringify(answer, null, space));
        assert.deepEqual(dialect.readUsage(bytes), usage);
        const padding = { padding: "x".repeat(2 * MAX_KEPT_BYTES) };
        const toLong = (long: object) => Buffer.from(JSON.stringify(long, null, space));
        for (
          const [content, size] of [
            [bytes, 1],
            [bytes, 1000],
            [toLong({ ...padding, ...(answer as object) }), 1000],
            [toLong({ ...(answer as object), ...padding }), 1000],
          ] as const
        ) {
          const meter = dialect.createMeter();
          for (let at = 0; at < content.length; at += size) {
            meter.push(content.subarray(at, at + size));
          }
          assert.deepEqual(meter.usage, usage);
        }
      }
    });
  }

  it("yields its own tokens, for any order of fields and with other fields named usage", () => {
    const stated = fc.record({ input_tokens: fc.nat(99), output_tokens: fc.nat(99) });
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 3 },
        fc.constantFrom(
          null,
          1,
          -1e-7,
          true,
          "",
          "usage",
          '"usage":{"input_tokens":0}}',
          "\\",
          "}",
          "{[,",
          "é",
        ),
        stated,
        fc.array(tie("value"), { maxLength: 2 }),
        fc.dictionary(fc.constantFrom("usage", "input", "a", '"usage"', "\\"), tie("value"), {
          maxKeys: 3,
        }),
      ),
    }));
    const fields = fc.dictionary(fc.constantFrom("content", "usage", "model", 'quoted "'), value, {
      maxKeys: 3,
    });
    const answer = fc.tuple(fields, fc.option(stated), fields).map(([before, usage, after]) => ({
      ...before,
      ...(usage !== null && { usage }),
      ...after,
    }));
    let cut = 0;
    fc.assert(
      fc.property(answer, fc.constantFrom(0, 1), (answer, space) => {
        const { input_tokens: input, output_tokens: output } = (answer.usage ?? {}) as Record<
          string,
          number | undefined
        >;
        const isStated = Number.isInteger(input) && Number.isInteger(output);
        const expected = isStated
          ? { total: Number(input) + Number(output), input, output }
          : undefined;
        assert.deepEqual(
          ANTHROPIC.readUsage(Buffer.from(JSON.stringify(answer, null, space))),
          expected,
        );
        if (isStated) cut++;
      }),
      { numRuns: 3000, seed: 19 },
    );
    assert.ok(cut > 500, `${cut} state tokens`);
  });

  it("yields no tokens from text that is not JSON", () => {
    for (const [dialect] of Object.values(ANSWERS)) {
      // A transcript can be plain text, with any content that the speaker chose.
      const said =
        '{"text": as I said, "usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0}}';
      for (
        const text of ["", "ID3\u0000", "<html>", '{"usage":{"input_tokens":1,', "null", "7", said]
      ) {
        assert.equal(dialect.readUsage(Buffer.from(text)), undefined);
      }
    }
  });
});

describe("a streamed legacy completion", () => {
  const event = (text: string, reason: string | null, more = {}) =>
    `data: ${
      JSON.stringify({
        ...LEGACY,
        choices: [{ text, index: 0, logprobs: null, finish_reason: reason }],
        usage: null,
        ...more,
      })
    }\n\n`;

  it("ends like a chat completion", () => {
    const scanner = OPENAI_CHAT.createScanner(1);
    scanner.push(Buffer.from(event("Hel", null) + event('"finish_reason":"stop"', null)));
    assert.equal(scanner.isComplete, false);
    scanner.push(Buffer.from(event("lo", "length")));
    assert.deepEqual([scanner.isComplete, scanner.hasLastEvent], [true, false]);
    scanner.push(
      Buffer.from(`${event("", null, { choices: [], usage: LEGACY.usage })}data: [DONE]\n\n`),
    );
    assert.deepEqual([scanner.hasLastEvent, scanner.usage], [true, {
      total: 12,
      input: 5,
      output: 7,
    }]);
  });
});

describe("a stream of an unknown interface", () => {
  it("is complete when it ends, and not before", () => {
    const scanner = OPAQUE.createScanner(1);
    scanner.push(Buffer.from('event: x\ndata: {"usage":{"total_tokens":2}}\n\ndata: [DONE]\n\n'));
    const { isComplete, hasLastEvent, hasError, payloadCount, usage, isAtBoundary } = scanner;
    assert.deepEqual([isComplete, hasLastEvent, hasError, payloadCount, usage, isAtBoundary], [
      false,
      false,
      false,
      2,
      { total: 2, input: 2 },
      true,
    ]);
    scanner.push(Buffer.from("half"));
    assert.deepEqual([scanner.isAtBoundary, scanner.boundary], [false, "\n\n"]);
    scanner.end();
    assert.deepEqual([scanner.isComplete, scanner.hasLastEvent], [true, false], "no event says so");
  });

  it("has an error if an event is named `error`", () => {
    const scanner = OPAQUE.createScanner(1);
    scanner.push(Buffer.from("event: error\ndata: {}\n\n"));
    assert.equal(scanner.hasError, true);
    const data = scanner.toErrorEvent(new GatewayError("upstream_idle_timeout")).replace(
      "event: error\ndata: ",
      "",
    );
    assert.equal(JSON.parse(data).error.code, "upstream_idle_timeout");
  });
});

/** Anthropic's error type for each status of the gateway. */
const TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  405: "invalid_request_error",
  408: "invalid_request_error",
  409: "invalid_request_error",
  410: "invalid_request_error",
  413: "request_too_large",
  415: "invalid_request_error",
  421: "invalid_request_error",
  422: "invalid_request_error",
  426: "invalid_request_error",
  429: "rate_limit_error",
  431: "invalid_request_error",
  500: "api_error",
  502: "api_error",
  503: "overloaded_error",
  504: "timeout_error",
  508: "api_error",
};

describe("the body of an error", () => {
  it("is Anthropic's for messages, with the gateway's code in addition to its type", () => {
    for (const [code, { status }] of Object.entries(ERRORS) as [ErrorCode, { status: number }][]) {
      const error = new GatewayError(code, { param: "Gateway-Auth", detail: "more" });
      assert.deepEqual(JSON.parse(ANTHROPIC.toErrorBody(error)), {
        type: "error",
        error: {
          type: TYPES[status] ?? assert.fail(`no type for ${status}`),
          message: error.message,
          param: "Gateway-Auth",
          code,
          details: { error_code: code },
        },
      });
    }
  });

  it("is OpenAI's for all others", () => {
    const error = new GatewayError("model_not_allowed");
    for (const dialect of [OPENAI_CHAT, OPENAI_RESPONSES, OPENAI_MEDIA, OPAQUE]) {
      assert.deepEqual(JSON.parse(dialect.toErrorBody(error)), {
        error: {
          message: error.message,
          type: "permission_error",
          param: error.param,
          code: "model_not_allowed",
        },
      });
    }
  });
});
