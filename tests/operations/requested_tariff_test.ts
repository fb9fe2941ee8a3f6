/** The facts of a request that decide its price, whatever its caller writes. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import {
  readRequestedTariff as read,
  STANDARD_TARIFF,
} from "../../src/operations/requested_tariff.ts";

describe("the fields that decide the price of a request", () => {
  it("name each kind of output once, and nothing but texts", () => {
    const odd = [{ toString: 1, valueOf: 1 }, ["audio"], 1, null, "text"];
    for (const modalities of [odd, odd[0], "audio", ["Audio", "audio", ...odd, "AUDIO"]]) {
      const isAudio = JSON.stringify(modalities).toLowerCase().includes(',"audio"') ||
        modalities === "audio";
      for (
        const fields of [
          { modalities },
          { generationConfig: { responseModalities: modalities } },
          { generation_config: { response_modalities: modalities } },
        ]
      ) {
        assert.deepEqual(read(fields).outputKinds, isAudio ? ["Audio"] : []);
      }
    }
  });

  it("name tools in objects only, whose keys are read", () => {
    const tools = [{ googleSearch: {} }, "googleSearch", ["googleSearch"], null, 1];
    assert.deepEqual(read({ tools }).tools, [{ unit: "webSearches", most: undefined }]);
    const started = performance.now();
    assert.deepEqual(read({ tools: ["t".repeat(4_000_000)] }), STANDARD_TARIFF);
    const ms = performance.now() - started;
    assert.ok(ms < 1500, `a long text took ${ms} ms`); // a list of its characters took seconds
  });

  it("state the characters to speak, of which some have two units", () => {
    const count = (input: string) => read({ input }, { group: "audio" }).characters;
    for (const text of ["", "Hi", "a\u{1f600}b\u{1f600}", "\ud800", "\ude00\ud83d", "e\u0301"]) {
      assert.equal(count(text), Array.from(text).length, JSON.stringify(text));
    }
  });
});
