/** The charge for calls whose answers do not begin before a deadline. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { callRaw } from "../support/tcp_peer.ts";

const KEY = "own-key-with-a-limit";
/** Tokens of the input: four bytes for each token. */
const INPUT = Math.ceil(GOOD_BODY.length / 4);
/** Tokens of output that are reserved. */
const OUTPUT = 500;

describe("a call that its provider does not begin to answer in time", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  afterEach(async () => {
    await under?.close();
    under = undefined;
    await provider.close();
  });

  /** Makes one call. @returns The code of its error, and the charged tokens */
  async function charged(
    settings: Record<string, unknown>,
    { headers = {}, mode = "enforce", begins = false }: {
      readonly headers?: Record<string, string>;
      readonly mode?: string;
      readonly begins?: boolean;
    } = {},
  ): Promise<readonly [code: string | undefined, tokens: number, isEstimated: boolean]> {
    provider = await startProvider((response) => {
      if (!begins) return;
      response.writeHead(200, { "content-type": "application/json" });
      response.write("{");
    });
    under = await startUnderTest({
      upstreams: { a: provider.url },
      config: { keys: [{ id: "one", key: KEY, limits: { budget: "1M/day", mode } }] },
      provider: {
        deadlines: { firstByte: "150ms", idle: "150ms" },
        maxOutput: OUTPUT,
        ...settings,
      },
    });
    await callRaw(under.a, {
      headers: { ...under.headers, "gateway-auth": `Bearer ${KEY}`, ...headers },
      body: GOOD_BODY,
    });
    const { code, usage, isEstimated = false } = await under.settled();
    return [code, usage?.total ?? 0, isEstimated];
  }
  const LATE = "upstream_first_byte_timeout";

  for (
    const [setting, tokens] of [
      [undefined, INPUT],
      ["nothing", 0],
      ["input", INPUT],
      ["reservation", INPUT + OUTPUT],
    ] as const
  ) {
    it(`is charged ${tokens} tokens if the setting is ${setting ?? "left out"}`, async () => {
      assert.deepEqual(await charged({ chargeTimeouts: setting }), [LATE, tokens, tokens > 0]);
    });
  }
  it("is charged its reservation under a strict limit, with any setting", async () => {
    const [code, tokens] = await charged({ chargeTimeouts: "nothing" }, { mode: "strict" });
    assert.equal(code, LATE);
    assert.ok(tokens > INPUT + OUTPUT, `${tokens}`);
  });
  it("is charged its reservation if the caller set the deadline", async () => {
    const headers = { "x-stainless-timeout": "0.05" };
    assert.deepEqual(await charged({ chargeTimeouts: "nothing", deadlines: {} }, { headers }), [
      "upstream_timeout",
      INPUT + OUTPUT,
      true,
    ]);
  });
  it("is charged its reservation if the answer had begun", async () => {
    const [code, tokens] = await charged(
      { chargeTimeouts: "nothing", deadlines: { idle: "150ms" } },
      { begins: true },
    );
    assert.deepEqual([code, tokens], ["upstream_idle_timeout", INPUT + OUTPUT]);
  });
});
