/** Mistakes that other gateways made with usage, and usage that is wrong or very long. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import { ANTHROPIC } from "../../src/dialects/anthropic.ts";
import { BEDROCK } from "../../src/dialects/bedrock.ts";
import { type Dialect, MAX_KEPT_BYTES } from "../../src/dialects/dialect.ts";
import { GEMINI } from "../../src/dialects/gemini.ts";
import { OPAQUE } from "../../src/dialects/opaque.ts";
import { OPENAI_CHAT } from "../../src/dialects/openai_chat.ts";
import { OPENAI_MEDIA } from "../../src/dialects/openai_media.ts";
import { OPENAI_RESPONSES } from "../../src/dialects/openai_responses.ts";
import { toDecimal } from "../../src/dialects/stated_cost.ts";
import { type ClassAmounts, partsOf, type TokenUsage } from "../../src/exchange/billing.ts";
import { frame } from "../support/aws_frames.ts";

const read = (dialect: Dialect, answer: unknown): TokenUsage =>
  dialect.readUsage(Buffer.from(JSON.stringify(answer))) ?? assert.fail("no usage");

function meter(dialect: Dialect, answer: unknown): TokenUsage {
  const bytes = Buffer.from(JSON.stringify(answer));
  const meter = dialect.createMeter();
  for (let at = 0; at < bytes.length; at += 4999) meter.push(bytes.subarray(at, at + 4999));
  return meter.usage ?? assert.fail("no usage");
}

const classesOf = (usage: TokenUsage): ClassAmounts[] =>
  partsOf(usage).map(({ classes }) =>
    Object.fromEntries(Object.entries(classes).filter(([, amount]) => amount > 0))
  );

const chat = (usage: unknown, more = {}) => ({ choices: [], usage, ...more });
const LONG_TEXT = "x".repeat(2 * MAX_KEPT_BYTES);

describe("usage that is wrong", () => {
  it("never has more tokens in its classes than in its totals", () => {
    const usage = read(
      OPENAI_CHAT,
      chat({
        prompt_tokens: 10,
        completion_tokens: 5,
        prompt_tokens_details: { cached_tokens: 900, cache_write_tokens: 900, audio_tokens: 900 },
        completion_tokens_details: { reasoning_tokens: 900, audio_tokens: 900 },
      }),
    );
    assert.deepEqual(classesOf(usage), [{ cacheReadAudio: 10, reasoning: 5 }]);
    assert.deepEqual([usage.total, usage.cached, usage.reasoning], [15, 10, 5]);
  });

  it("is not charged twice as input and as written or cached tokens", () => {
    const usage = read(
      OPENAI_CHAT,
      chat({
        prompt_tokens: 100,
        completion_tokens: 1,
        prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 30, text_tokens: 100 },
      }),
    );
    assert.deepEqual(classesOf(usage), [{
      input: 10,
      cacheRead: 60,
      cacheWrite: 30,
      output: 1,
    }]);
  });

  it("takes cached tokens from text, then images, then sound", () => {
    const details = { cached_tokens: 60, audio_tokens: 40, image_tokens: 30, text_tokens: 30 };
    const usage = chat({
      prompt_tokens: 100,
      completion_tokens: 1,
      prompt_tokens_details: details,
    });
    assert.deepEqual(classesOf(read(OPENAI_CHAT, usage)), [{
      inputAudio: 40,
      cacheRead: 30,
      cacheReadImage: 30,
      output: 1,
    }]);
  });
});

describe("the cost that a provider states", () => {
  it("has the digits of its number", () => {
    const usage = { prompt_tokens: 1, completion_tokens: 1 };
    const text = JSON.stringify(chat({ ...usage, cost: 0 }));
    const cases = [["0.1000000000000000055", "0.1000000000000000055"], ["1.4e-4", "0.00014"]];
    for (const [number = "", expected] of cases) {
      const answer = Buffer.from(text.replace('"cost":0', `"cost":${number}`));
      assert.equal(OPENAI_CHAT.readUsage(answer)?.statedCost, expected);
    }
    const total = chat({ ...usage, cost: { input_cost: 1, total_cost: 0.0061 } });
    assert.equal(read(OPENAI_CHAT, total).statedCost, "0.0061");
  });

  it("is a plain decimal, and never negative or absurd", () => {
    assert.deepEqual(["12", "1E3", "12.50e1", "0.5e-3"].map(toDecimal), [
      "12",
      "1000",
      "125",
      "0.0005",
    ]);
    assert.deepEqual(["-1", "1e999", "x"].map(toDecimal), [undefined, undefined, undefined]);
  });

  it("includes another provider's, which a key of the caller's own paid", () => {
    const usage = {
      ...{ prompt_tokens: 1, completion_tokens: 1, cost: 0.001, is_byok: true },
      cost_details: { upstream_inference_cost: 0.02 },
    };
    assert.equal(read(OPENAI_CHAT, chat(usage)).statedCost, "0.021");
  });
});

describe("a message", () => {
  const counts = { input_tokens: 10, cache_read_input_tokens: 0, output_tokens: 5 };

  it("whose cache writes a credit pays has them as reads", () => {
    const usage = {
      ...counts,
      cache_creation_input_tokens: 40,
      fallback_credit: { status: "redeemed" },
    };
    assert.deepEqual(classesOf(read(ANTHROPIC, { usage })), [{
      input: 10,
      cacheRead: 40,
      output: 5,
    }]);
  });

  it("counts compaction next to its own tokens, and the model that replaced another", () => {
    const run = { input_tokens: 10, output_tokens: 5 };
    const iterations = [
      { type: "message", ...run },
      { type: "compaction", input_tokens: 100, output_tokens: 20 },
      { type: "fallback_message", model: "other-1", input_tokens: 7, output_tokens: 3 },
    ];
    const usage = read(ANTHROPIC, { usage: { ...counts, iterations } });
    assert.equal(usage.total, 145);
    assert.deepEqual(partsOf(usage).map(({ model, tariff }) => [model, tariff.context]), [
      [undefined, 10],
      ["other-1", 7],
      [undefined, 100],
    ]);
  });
});

describe("a plain answer of more than 64 kB", () => {
  const usage = { input_tokens: 10, output_tokens: 5, total_tokens: 15 };
  const search = { type: "file_search_call", status: "completed", queries: ["a"] };
  const code = { type: "code_interpreter_call", container_id: "c-1", code: LONG_TEXT };

  it("has its tier and the items of its output", () => {
    const output = [search, code, search, { type: "message", content: [{ text: LONG_TEXT }] }];
    const response = { output, service_tier: "flex", metadata: { service_tier: "x" }, usage };
    const [part] = partsOf(meter(OPENAI_RESPONSES, response));
    assert.equal(part?.tariff.tier, "flex");
    assert.deepEqual(part?.classes, { input: 10, output: 5, fileSearches: 2, codeSessions: 1 });
  });

  it("has its usage after thousands of items", () => {
    const output = Array.from({ length: 5000 }, () => search);
    const found = meter(OPENAI_RESPONSES, { output, service_tier: "flex", usage });
    assert.equal(found.total, 15);
    assert.equal(found.parts?.[0]?.tariff.tier, "flex");
    assert.ok((found.parts?.[0]?.classes.fileSearches ?? 0) > 300);
  });

  it("has the tier of a chat and the pictures of an answer without usage", () => {
    const tokens = { prompt_tokens: 10, completion_tokens: 5 };
    const choices = [{ message: { content: LONG_TEXT } }];
    const long = meter(OPENAI_CHAT, { choices, usage: tokens, service_tier: "priority" });
    assert.equal(long.parts?.[0]?.tariff.tier, "priority");
    const data = [{ b64_json: LONG_TEXT }, { b64_json: LONG_TEXT }];
    assert.deepEqual(classesOf(meter(OPENAI_MEDIA, { created: 1, data })), [{ images: 2 }]);
  });

  it("has no cheap tier if only its end is kept, and names several", () => {
    const fields = Array.from({ length: 10_000 }, (_, index) => [`field_${index}`, index]);
    const answer = {
      ...Object.fromEntries(fields),
      choices: [{ message: { content: LONG_TEXT } }],
      usage: { prompt_tokens: 10, completion_tokens: 5 },
      service_tier: "priority",
      metadata: { service_tier: "flex" },
    };
    assert.equal(meter(OPENAI_CHAT, answer).parts?.[0]?.tariff.tier, "several");
  });
});

describe("usage of Bedrock", () => {
  it("has the written tokens that only details state", () => {
    const details = [{ ttl: "5m", inputTokens: 300 }, { ttl: "1h", inputTokens: 700 }];
    const usage = { inputTokens: 10, outputTokens: 5, cacheDetails: details };
    assert.deepEqual(classesOf(read(BEDROCK, { usage })), [
      { input: 10, cacheWrite: 300, cacheWriteLong: 700, output: 5 },
    ]);
  });

  it("divides the cache writes in a stream of Claude as its first event does", () => {
    const metrics = {
      inputTokenCount: 10,
      outputTokenCount: 50,
      cacheReadInputTokenCount: 20,
      cacheWriteInputTokenCount: 3000,
    };
    const written = { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 3000 };
    const events = [
      {
        type: "message_start",
        message: {
          usage: {
            input_tokens: 10,
            cache_read_input_tokens: 20,
            cache_creation_input_tokens: 3000,
            cache_creation: written,
            output_tokens: 1,
          },
        },
      },
      { type: "content_block_delta", delta: { text: "message_start" } },
      { type: "message_delta", usage: { output_tokens: 50 } },
      { type: "message_stop", "amazon-bedrock-invocationMetrics": metrics },
    ];
    const classesAfter = (sent: readonly unknown[]) => {
      const scanner = BEDROCK.createScanner(1);
      for (const event of sent) {
        scanner.push(frame("chunk", { bytes: btoa(JSON.stringify(event)) }));
      }
      return classesOf(scanner.usage ?? assert.fail("no usage"));
    };
    const common = { input: 10, cacheRead: 20, output: 50 };
    assert.deepEqual(classesAfter(events), [{ ...common, cacheWriteLong: 3000 }]);
    assert.deepEqual(classesAfter(events.slice(-1)), [{ ...common, cacheWrite: 3000 }]);
  });
});

describe("usage of a message in a stream", () => {
  it("keeps its input if a later event states 0", () => {
    const scanner = ANTHROPIC.createScanner(1);
    const send = (event: unknown) =>
      scanner.push(Buffer.from(`data: ${JSON.stringify(event)}\n\n`));
    send({ type: "message_start", message: { usage: { input_tokens: 100, output_tokens: 1 } } });
    send({ type: "message_delta", usage: { input_tokens: 0, output_tokens: 7 } });
    assert.deepEqual(classesOf(scanner.usage ?? assert.fail("no usage")), [
      { input: 100, output: 7 },
    ]);
  });

  it("keeps the time for which its input was written to the cache if a later event states 0", () => {
    const scanner = ANTHROPIC.createScanner(1);
    const send = (type: string, written: number, output_tokens: number) => {
      const cache_creation = { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: written };
      const input = { input_tokens: 0, cache_creation_input_tokens: written, cache_creation };
      const usage = { ...input, output_tokens };
      scanner.push(Buffer.from(`data: ${JSON.stringify({ type, message: { usage }, usage })}\n\n`));
    };
    send("message_start", 3000, 1);
    send("message_delta", 0, 7);
    assert.deepEqual(classesOf(scanner.usage ?? assert.fail("no usage")), [
      { cacheWriteLong: 3000, output: 7 },
    ]);
  });
});

describe("searches of Gemini", () => {
  const searching = {
    candidates: [{ groundingMetadata: { webSearchQueries: ["a", "b", "a"] } }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
  };
  /** Model of the call, model that the answer names, and the searches that count. */
  const MODELS = [
    ["gemini-3-pro", undefined, 2],
    ["gemini-3-pro", "", 2],
    ["gemini-2.5-flash", undefined, 1],
    ["gemini-2.5-flash", "gemini-3-pro", 2],
    ["gemini-3-pro", "gemini-2.5-flash", 1],
    [undefined, undefined, 1],
  ] as const;
  for (const [name, dialect] of Object.entries({ GEMINI, OPAQUE })) {
    it(`count by the model of the call, if the answer names none: ${name}`, () => {
      for (const [model, modelVersion, expected] of MODELS) {
        const json = JSON.stringify({
          ...searching,
          ...(modelVersion !== undefined && { modelVersion }),
        });
        const meter = dialect.createMeter(model);
        meter.push(Buffer.from(json));
        const scanner = dialect.createScanner(1, model);
        scanner.push(Buffer.from(`data: ${json}\n\n`));
        const usages = [dialect.readUsage(Buffer.from(json), model), meter.usage, scanner.usage];
        const searches = usages.map((usage) => usage?.parts?.[0]?.classes.webSearches);
        assert.deepEqual(searches, [expected, expected, expected], `${model} ${modelVersion}`);
      }
    });
  }
});

describe("an answer of an unknown interface", () => {
  it("names its model, and states kinds of traffic as tiers", () => {
    const usage = read(OPAQUE, {
      modelVersion: "gemini-3",
      usageMetadata: {
        ...{ promptTokenCount: 5, candidatesTokenCount: 9, totalTokenCount: 14 },
        candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 9 }],
        trafficType: "ON_DEMAND_PRIORITY",
      },
    });
    assert.deepEqual(usage.parts, [{
      model: "gemini-3",
      classes: { input: 5, outputImage: 9 },
      tariff: { tier: "priority", context: 5 },
    }]);
  });

  it("is read from any piece of its stream", () => {
    const line = 'data: {"padding":"é","usage":{"inputTokens":5,"outputTokens":2}}\n\n';
    for (let padding = 0; padding < 12; padding++) {
      const scanner = OPAQUE.createScanner(1);
      scanner.push(Buffer.from(line.replace("é", "x".repeat(padding))));
      assert.equal(scanner.usage?.total, 7, `${padding}`);
    }
  });
});
