/** The skeleton of a JSON text yields the same findings as the text itself, and stays small. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { JsonSkeleton } from "../../src/dialects/json_skeleton.ts";
import { readChatUsage } from "../../src/dialects/openai_chat.ts";

function skeletonOf(json: string, cuts: readonly number[] = []): string | undefined {
  const bytes = Buffer.from(json);
  const skeleton = new JsonSkeleton();
  const edges = [
    0,
    ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b),
    bytes.length,
  ];
  for (const [index, edge] of edges.slice(1).entries()) {
    skeleton.push(bytes, edges[index] ?? 0, edge);
  }
  return skeleton.text;
}

interface Choice {
  index?: unknown;
  finish_reason?: unknown;
  delta?: { audio?: { expires_at?: unknown } | null } | null;
}

/** The findings of the scanner. */
function findingsOf(json: string) {
  const { error, choices = [], ...rest } = JSON.parse(json);
  return {
    hasError: Boolean(error),
    usage: readChatUsage(rest),
    choices: choices.map(({ index, finish_reason, delta }: Choice) => ({
      index,
      finish_reason,
      expires: delta?.audio?.expires_at,
    })),
  };
}

const count = fc.nat(1_000_000);
const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 200 }),
  fc.constantFrom('"', "\\", '\\"', '"error":1', "\n{[", "x".repeat(300)),
  fc.constantFrom(`${"x".repeat(150)}"\\"${"x".repeat(150)}`, '"\\'.repeat(200)),
);
const extra = fc.oneof(
  fc.jsonValue({ maxDepth: 9 }),
  text,
  fc.array(text),
  fc.constant([[{ a: [{ b: "c" }] }]]),
);
const maybe = <Value>(value: fc.Arbitrary<Value>) =>
  fc.oneof(fc.constant(undefined), fc.constant(null), value);
const choice = fc.record({
  logprobs: extra,
  index: fc.oneof(fc.nat(3), fc.constant("0")),
  delta: maybe(
    fc.record({
      content: extra,
      audio: maybe(fc.record({ expires_at: count, data: maybe(text) })),
    }),
  ),
  finish_reason: fc.constantFrom(null, "", "stop", "error"),
});
const usage = fc.record({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: maybe(fc.record({ cached_tokens: count, other: extra })),
});
const chunk = fc.record({
  before: extra,
  error: maybe(extra),
  choices: fc.array(choice, { maxLength: 3 }),
  usage: maybe(usage),
  x_groq: maybe(fc.record({ usage })),
  after: extra,
}, { requiredKeys: [] });

describe("the skeleton of a JSON text", () => {
  it("yields the same as the text, for all ways to write and split it", () => {
    const indent = fc.constantFrom(0, 1, "\t");
    fc.assert(
      fc.property(chunk, indent, fc.array(fc.nat(), { maxLength: 5 }), (value, space, cuts) => {
        const json = JSON.stringify(value, null, space);
        const whole = skeletonOf(json);
        assert.ok(whole !== undefined);
        assert.deepEqual(findingsOf(whole), findingsOf(json));
        assert.equal(skeletonOf(json, cuts), whole);
        assert.equal(skeletonOf(json, Array.from(Buffer.from(json).keys())), whole);
      }),
      { numRuns: 1000 },
    );
  });

  it("is small, for all kinds of long parts", () => {
    const token = {
      token: "a",
      logprob: -1.5,
      top_logprobs: Array.from({ length: 20 }, () => ({ token: "b" })),
    };
    const long = {
      choices: [{
        index: 0,
        delta: {
          content: "x".repeat(1_000_000),
          tool_calls: Array.from({ length: 1000 }, () => ({ a: ["b"] })),
        },
        logprobs: { content: Array.from({ length: 2000 }, () => token) },
        finish_reason: "stop",
      }],
    };
    const skeleton = skeletonOf(JSON.stringify(long)) ?? assert.fail();
    assert.ok(skeleton.length < 500, `${skeleton.length}`);
    assert.equal(JSON.parse(skeleton).choices[0].finish_reason, "stop");
  });

  it("is given up if it would be too large", () => {
    const wide = Object.fromEntries(
      Array.from({ length: 10_000 }, (_, number) => [`key-${number}`, number]),
    );
    assert.equal(skeletonOf(JSON.stringify(wide)), undefined);
  });

  it("exists once the object is closed, and only for objects", () => {
    for (const text of ["", "[DONE]x", '{"a":1', '{"a":{}', '{"a":"}', "12", '"text"', "null"]) {
      assert.equal(skeletonOf(text)?.startsWith("{") ?? false, false, text);
    }
    assert.equal(skeletonOf(' {"a" : 1 }\n'), '{"a":1}');
  });
});
