/** Durable exchanges by the settings of a key, in requests to the gateway. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { GOOD_BODY, startUnderTest, type UnderTestOptions } from "../support/gateway.ts";
import { startProvider } from "../support/provider.ts";

const KEYS = ["a-key-of-its-own-0001", "a-key-of-its-own-0002", "a-key-of-its-own-0003"] as const;
const [PLAIN, OWN, NEVER] = KEYS;

describe("durable exchanges by key", () => {
  /** For each key: whether its answers are recorded, and when they expire. Minutes. */
  async function recordedFor(options: Omit<UnderTestOptions, "upstreams">) {
    const provider = await startProvider();
    const under = await startUnderTest({ upstreams: { a: provider.url }, ...options });
    try {
      return await Promise.all(KEYS.map(async (key) => {
        const before = Date.now();
        const answer = await fetch(`${under.a}/v1/chat/completions`, {
          method: "POST",
          headers: { ...under.headers, "gateway-auth": `Bearer ${key}`, "idempotency-key": "one" },
          body: GOOD_BODY,
        });
        await answer.text();
        assert.equal(answer.status, 200);
        const expires = answer.headers.get("exchange-expires");
        assert.equal(expires === null, answer.headers.get("location") === null);
        return expires === null ? "never" : Math.round((Date.parse(expires) - before) / 60_000);
      }));
    } finally {
      await under.close();
      await provider.close();
    }
  }

  it("follow the key's setting, or else the provider's", async () => {
    const keys = [
      { id: "plain", key: PLAIN },
      { id: "own", key: OWN, durable: { keep: "5m" } },
      { id: "never", key: NEVER, durable: false },
    ];
    assert.deepEqual(
      await recordedFor({ config: { keys }, provider: { durable: { keep: "1m" } } }),
      [1, 5, "never"],
    );
    assert.deepEqual(await recordedFor({ config: { keys } }), ["never", 5, "never"]);
  });

  it("follow the answer of a hook that resolves keys, without any durable setting in the configuration", async () => {
    const keys = (key: string) => ({ id: key, ...(key === OWN && { durable: { keep: "5m" } }) });
    assert.deepEqual(await recordedFor({ parts: { keys } }), ["never", 5, "never"]);
  });
});
