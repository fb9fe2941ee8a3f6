/** A strict limit refuses calls whose input stands elsewhere than in the request; others pass as ever. */
// runtimes: all, old node, workers
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { closeAll, startWith } from "../support/aimock.ts";

const OWN = "own-key-of-a-team";
const text = { model: "test-1", max_output_tokens: 9, input: "Hi" };
const file = [{ role: "user", content: [{ type: "input_file", file_id: "file-1" }] }];

describe("a strict limit of tokens", () => {
  afterEach(closeAll);

  it("admits what is bounded by its bytes, and refuses what refers to more", async () => {
    const cases: readonly [body: object, status: number][] = [
      [text, 200],
      [{ ...text, previous_response_id: "resp_1" }, 400],
      [{ ...text, input: file }, 400],
      [{ ...text, tools: [{ type: "web_search" }] }, 400],
    ];
    for (const mode of ["strict", "enforce"]) {
      const keys = [{ id: "team", key: OWN, limits: { tokens: "1M/h", mode } }];
      const { provider, under } = await startWith(undefined, { provider: { maxOutput: 4096 }, config: { keys } });
      for (const [body, status] of cases) {
        const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN}` };
        const init = { method: "POST", headers, body: JSON.stringify(body) };
        const response = await fetch(`${under.a}/v1/responses`, init);
        const expected = mode === "strict" ? status : 200;
        assert.equal(response.status, expected, JSON.stringify(body));
        if (expected !== 200) assert.equal((await response.json()).error.code, "request_exceeds_limit");
        else await response.body?.cancel();
      }
      assert.equal(provider.calls.length, mode === "strict" ? 1 : 4);
      await closeAll();
    }
  });
});
