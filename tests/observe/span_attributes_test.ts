/** The names of providers in spans, by the hosts of their upstreams. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { toCallStart } from "../../src/observe/traces/span_attributes.ts";

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
      const { attributes } = toCallStart(call, { facts, retries: 0 } as never, "/v1/chat/completions");
      assert.equal(attributes["gen_ai.provider.name"], name);
    });
  }
});
