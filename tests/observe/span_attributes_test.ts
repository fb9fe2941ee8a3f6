/** The names of providers in spans, by the hosts of their upstreams. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { toCallAttributes, toCallStart } from "../../src/observe/traces/span_attributes.ts";
import { exchange } from "../support/usage.ts";

const NAMES: Readonly<Record<string, string>> = {
  "https://api.openai.com/v1": "openai",
  "https://api.anthropic.com/v1": "anthropic",
  "https://generativelanguage.googleapis.com/v1beta/openai": "gcp.gemini",
  "https://api.mistral.ai/v1": "mistral_ai",
  "https://mine.openai.azure.com/openai/v1": "azure.ai.openai",
  "https://mine.services.ai.azure.com/openai/v1": "azure.ai.openai",
  "https://models.corp.example/v1": "mine",
};

describe("the span of a call", () => {
  for (const [upstream, name] of Object.entries(NAMES)) {
    it(`names ${upstream} ${name}`, () => {
      const facts = { operation: "chat.completions", genAi: "chat", provider: "mine", model: "m" };
      const call = { method: "POST", base: new URL(upstream), headers: {} };
      const { attributes } = toCallStart(
        call,
        { facts, retries: 0 } as never,
        "/v1/chat/completions",
      );
      assert.equal(attributes["gen_ai.provider.name"], name);
    });
  }

  it("has estimated tokens separate from tokens that the provider stated", () => {
    const stated = exchange({ usage: { total: 7, input: 3, output: 4 } });
    const [said, estimated] = [
      toCallAttributes(stated, 0),
      toCallAttributes({ ...stated, isEstimated: true }, 0),
    ];
    assert.deepEqual(said, { "gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": 4 });
    assert.deepEqual(estimated, { "sallyport.estimated_tokens": 7 });
  });
});
