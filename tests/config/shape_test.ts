/** Facts that the addresses of a provider show. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { isAtAzure, type ShapeName } from "../../src/config/shape.ts";

const PROVIDERS: readonly [shape: ShapeName, upstreams: readonly string[], isAzure: boolean][] = [
  ["azure", ["http://127.0.0.1:8000"], true],
  ["v1", ["https://one.openai.azure.com/openai/v1"], true],
  ["v1", ["https://one.services.ai.azure.com/openai/v1", "https://b.openai.azure.us"], true],
  ["v1", ["https://one.openai.azure.com/openai/v1", "https://api.openai.com/v1"], false],
  ["v1", ["https://api.openai.com/v1"], false],
  ["v1", ["https://azure.com.a.example/v1", "https://a.example/.azure.com"], false],
];

describe("a provider", () => {
  for (const [shape, upstreams, isAzure] of PROVIDERS) {
    it(`${isAzure ? "is" : "is not"} Azure: ${shape}, ${upstreams.join(", ")}`, () => {
      assert.equal(isAtAzure({ shape, upstreams }), isAzure);
    });
  }
});
