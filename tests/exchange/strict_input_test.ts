/**
 * Calls under a strict limit whose input is outside the request: they are refused, and others pass
 * as usual. The limit counts all answers that a call can have.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { MAX_ADDED_TOKENS } from "../../src/operations/request_size.ts";
import { closeAll, startWith } from "../support/aimock.ts";

const LIMIT = 100_000;
const OWN = "own-key-of-a-team";
const text = { model: "test-1", max_output_tokens: 9, input: "Hi" };
/** Models that read web pages unasked. */
const READING_WEB = [
  "openai/gpt-5.5:online",
  "test-1:free:online",
  "sonar",
  "perplexity/sonar-pro",
  "perplexity_sonar_pro",
  "sonar2",
  "llama-3.1-sonar-small-128k-online",
  "compound-beta",
  "groq/compound-mini",
  "gpt-4o-mini-search-preview-2025-03-11",
  "GPT-5-search-api",
  "o3-deep-research",
];
const file = [{ role: "user", content: [{ type: "input_file", file_id: "file-1" }] }];

describe("a strict limit of tokens", () => {
  afterEach(closeAll);

  it("admits calls that are bounded by their bytes, and refuses calls that refer to more", async () => {
    const cases: readonly [body: object, status: number][] = [
      [text, 200],
      [{ ...text, previous_response_id: "resp_1" }, 400],
      [{ ...text, input: file }, 400],
      [{ ...text, tools: [{ type: "web_search" }] }, 400],
      [{ ...text, model: "test-1:free" }, 200],
      [{ ...text, model: "research-offline" }, 200],
      ...READING_WEB.map((model): [object, number] => [{ ...text, model }, 400]),
    ];
    for (const mode of ["strict", "enforce"]) {
      const keys = [{ id: "team", key: OWN, limits: { tokens: "1M/h", mode } }];
      const { provider, under } = await startWith(undefined, {
        provider: { maxOutput: 4096 },
        config: { keys },
      });
      for (const [body, status] of cases) {
        const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN}` };
        const init = { method: "POST", headers, body: JSON.stringify(body) };
        const response = await fetch(`${under.a}/v1/responses`, init);
        const expected = mode === "strict" ? status : 200;
        assert.equal(response.status, expected, JSON.stringify(body));
        if (expected !== 200) {
          assert.equal((await response.json()).error.code, "request_exceeds_limit");
        } else await response.body?.cancel();
      }
      const admitted = cases.filter(([, status]) => mode !== "strict" || status === 200);
      assert.equal(provider.calls.length, admitted.length);
      await closeAll();
    }
  });

  /**
   * Starts a gateway whose key has a strict limit, with a provider that makes at most 50 tokens per
   * answer.
   */
  const startStrict = async (provider: Record<string, unknown> = { maxOutput: 50 }) => {
    const keys = [{ id: "team", key: OWN, limits: { tokens: `${LIMIT}/h`, mode: "strict" } }];
    const started = await startWith(undefined, { provider, config: { keys } });
    const { under } = started;
    const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN}` };
    const call = (path: string, body: string) =>
      fetch(`${under.a}/v1${path}`, { method: "POST", headers, body });
    return { ...started, call };
  };

  const prompts = (count: number, prompt: unknown = "Hi") =>
    Array.from({ length: count }, () => prompt);
  const LEGACY: readonly [fields: object, output: number][] = [
    [{ prompt: "Hi", max_tokens: 9 }, 9],
    [{ prompt: "Hi" }, 50],
    [{ prompt: [1, 2, 3], max_tokens: 9 }, 9],
    [{ prompt: [], max_tokens: 9 }, 9],
    [{ prompt: prompts(20), max_tokens: 9 }, 20 * 9],
    [{ prompt: prompts(20) }, 20 * 50],
    [{ prompt: prompts(20, [1, 2]), max_tokens: 9 }, 20 * 9],
    [{ prompt: prompts(20, ""), n: 3 }, 20 * 50 * 3],
    [{ prompt: [1, ...prompts(19)], n: 3 }, 20 * 50 * 3],
    [{ prompt: prompts(20), max_tokens: 9, n: 3, best_of: 5 }, 20 * 9 * 5],
    [{ prompt: prompts(20), max_tokens: 9, n: 5, best_of: null }, 20 * 9 * 5],
    [{ prompt: prompts(20), best_of: 5 }, 20 * 50 * 5],
  ];
  it("reserves for a legacy completion the cost of all its prompts and choices", async () => {
    for (const [fields, output] of LEGACY) {
      const { call } = await startStrict();
      const body = JSON.stringify({ model: "test-1", ...fields });
      const response = await call("/completions", body);
      assert.equal(response.status, 200, body);
      const reserved = LIMIT -
        Number(/"tokens";r=(\d+)/.exec(response.headers.get("ratelimit") ?? "")?.[1]);
      const input = body.length + MAX_ADDED_TOKENS;
      assert.equal(reserved, output + input, body);
      await response.body?.cancel();
      await closeAll();
    }
    const { call, provider } = await startStrict();
    for (const fields of [{ prompt: prompts(3000), max_tokens: 100 }, { prompt: prompts(3000) }]) {
      const refused = await call("/completions", JSON.stringify({ model: "test-1", ...fields }));
      assert.deepEqual([refused.status, (await refused.json()).error.code], [
        400,
        "request_exceeds_limit",
      ]);
    }
    assert.equal(provider.calls.length, 0);
  });

  const COUNTS: Readonly<Record<string, readonly string[]>> = {
    n: [
      '"100"',
      '" 100"',
      '"1_00"',
      "true",
      "1.5",
      "[1]",
      "{}",
      "1e999",
      "0",
      "-1",
      '"1"',
      "9007199254740993",
    ],
    best_of: ['"100"', "false", "1.5", "0"],
    max_tokens: ['"1"', "true", "1.5", "1e999", "[]"],
    max_completion_tokens: ['"1"', "1.5"],
    max_output_tokens: ['"1"', "1.5"],
  };
  it("refuses a number of tokens or answers that is not a whole number, and names the field", async () => {
    const rest =
      '"model":"test-1","prompt":"Hi","input":"Hi","messages":[{"role":"user","content":"Hi"}]';
    for (const maxOutput of [50, 1e9]) {
      const { call, provider } = await startStrict({ maxOutput });
      for (const [field, values] of Object.entries(COUNTS)) {
        for (const value of values) {
          for (const path of ["/completions", "/chat/completions", "/responses"]) {
            const refused = await call(path, `{${rest},"${field}":${value}}`);
            const { code, param } = (await refused.json()).error;
            assert.deepEqual(
              [refused.status, code, param],
              [400, "invalid_body", field],
              `${path} ${value}`,
            );
          }
        }
      }
      assert.equal(provider.calls.length, 0);
      await closeAll();
    }
  });

  it("accepts a whole number in every JSON notation, and null for none", async () => {
    const { call } = await startStrict();
    for (
      const [field, value] of [["n", "1e0"], ["n", "2.0"], ["n", "null"], ["max_tokens", "1e1"], [
        "best_of",
        "2",
      ]]
    ) {
      const answer = await call(
        "/completions",
        `{"model":"test-1","prompt":"Hi","${field}":${value}}`,
      );
      assert.equal(answer.status, 200, `${field} ${value}`);
      await answer.body?.cancel();
    }
  });
});
