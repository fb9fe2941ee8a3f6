/**
 * Permissions of a gateway key: expiry, providers, and models compared with regular expressions.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { assertModelAllowed, requireUsableKey } from "../../src/keys/policy.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";

const codeOf = (run: () => unknown): string => {
  try {
    run();
    return "ok";
  } catch (error) {
    return GatewayError.is(error) ? error.code : assert.fail(String(error));
  }
};
const key = { id: "k", digest: "d" };
const modelCode = (models: readonly string[] | undefined, model: string) =>
  codeOf(() => assertModelAllowed({ ...key, models }, model));

/** The pattern as a regular expression. */
function isMatch(pattern: string, model: string): boolean {
  const source = pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replaceAll("\\*", "[^]*");
  return new RegExp(`^${source}$`).test(model);
}

const MODELS: Readonly<Record<string, [pattern: string, model: string, isAllowed: boolean]>> = {
  "itself": ["gpt-5", "gpt-5", true],
  "no prefix of itself": ["gpt-5", "gpt-5-mini", false],
  "no suffix of itself": ["gpt-5", "xgpt-5", false],
  "no other case": ["gpt-5", "GPT-5", false],
  "a beginning": ["gpt-*", "gpt-5-mini", true],
  "a beginning and nothing more": ["gpt-*", "gpt-", true],
  "an end": ["*-mini", "gpt-5-mini", true],
  "a middle": ["*/llama-*-8b", "meta/llama-3.1-8b", true],
  "a slash": ["openai/*", "openai/gpt/x", true],
  "anything": ["*", "anything\nat all", true],
  "two stars in a row": ["a**b", "ab", true],
  "no overlap of both ends": ["ab*ba", "aba", false],
  "no overlap of the middle and the end": ["a*b*b", "ab", false],
  "the last of several places": ["*ab*b", "abab", true],
  "a dot as a dot": ["gpt.5", "gptx5", false],
  "a bracket as a bracket": ["[ab]", "a", false],
  "a question mark as itself": ["gpt-?", "gpt-5", false],
  "nothing but the empty name": ["", "a", false],
};

describe("a policy", () => {
  it("refuses unknown and expired keys alike", () => {
    assert.equal(codeOf(() => requireUsableKey(undefined, "a", 0)), "invalid_gateway_key");
    const outcomes = { 9: "ok", 10: "invalid_gateway_key", 11: "invalid_gateway_key" };
    for (const [now, expected] of Object.entries(outcomes)) {
      assert.equal(
        codeOf(() => requireUsableKey({ ...key, expiresAt: 10 }, "a", Number(now))),
        expected,
        `at ${now}`,
      );
    }
    assert.equal(
      codeOf(() => requireUsableKey({ ...key, expiresAt: undefined }, "a", Number.MAX_VALUE)),
      "ok",
    );
  });

  it("refuses other providers, by the whole name", () => {
    assert.equal(requireUsableKey(key, "anything", 0), key);
    const outcomes = {
      a: "ok",
      b: "ok",
      A: "provider_not_allowed",
      ab: "provider_not_allowed",
      "": "provider_not_allowed",
    };
    for (const [provider, expected] of Object.entries(outcomes)) {
      assert.equal(
        codeOf(() => requireUsableKey({ ...key, providers: ["a", "b"] }, provider, 0)),
        expected,
        provider,
      );
    }
    for (const providers of [[], ["*"]]) {
      assert.equal(
        codeOf(() => requireUsableKey({ ...key, providers }, "a", 0)),
        "provider_not_allowed",
      );
    }
    // A refused key does not learn which providers it could call.
    assert.equal(
      codeOf(() => requireUsableKey({ ...key, expiresAt: 1, providers: [] }, "a", 2)),
      "invalid_gateway_key",
    );
  });

  for (const [name, [pattern, model, isAllowed]] of Object.entries(MODELS)) {
    it(`applies "${pattern}" to ${name}`, () => {
      assert.equal(isMatch(pattern, model), isAllowed, "the reference says otherwise");
      assert.equal(modelCode([pattern], model), isAllowed ? "ok" : "model_not_allowed");
    });
  }

  it("allows every model without a list, none with an empty list, and models that match any pattern", () => {
    assert.equal(modelCode(undefined, "anything"), "ok");
    assert.equal(modelCode([], "anything"), "model_not_allowed");
    assert.equal(modelCode(["x", "any*", "y"], "anything"), "ok");
    assert.equal(modelCode(["x", "y"], "anything"), "model_not_allowed");
  });

  it("matches models as a regular expression would, for any pattern", () => {
    const odd = fc.constantFrom("a", "b", "ab", "*", "**", "-", ".", "(", "$", "\\", "\n");
    const dense = fc.constantFrom("a", "b", "*");
    const text = fc.oneof(fc.array(odd, { maxLength: 8 }), fc.array(dense, { maxLength: 7 }))
      .map((pieces) => pieces.join(""));
    // A name made from the pattern, or a similar one. Otherwise most pairs would not match.
    const pair = fc.oneof(
      fc.tuple(text, text),
      fc.tuple(text, fc.constantFrom("", "a", "b", "ab", "ba"), fc.nat(20)).map(
        ([pattern, filling, at]) => {
          const model = pattern.replaceAll("*", filling);
          return [
            pattern,
            at < model.length ? model.slice(0, at) + model.slice(at + 1) : model,
          ] as const;
        },
      ),
    );
    fc.assert(
      fc.property(pair, ([pattern, model]) => {
        assert.equal(
          modelCode([pattern], model),
          isMatch(pattern, model) ? "ok" : "model_not_allowed",
        );
      }),
      { numRuns: 5000 },
    );
  });

  it("stays fast for any pattern", () => {
    const started = performance.now();
    assert.equal(modelCode([`${"a*".repeat(120)}b`], "a".repeat(256)), "model_not_allowed");
    assert.ok(performance.now() - started < 500, "a pattern of many stars took too long");
  });
});
