/** Keys in the configuration. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { KeyStoreError } from "../../src/keys/key_store.ts";
import { createInlineKeyStore, MemoryKeyStore } from "../../src/keys/key_store_memory.ts";
import { ConfigError } from "../../src/config/config.ts";
import { describeKeyStore, digest, record, SOME_DAY } from "./key_store_suite.ts";

describeKeyStore("in the configuration", (keys) =>
  Promise.resolve({
    open: () => Promise.resolve(new MemoryKeyStore(keys)),
    flush: () => Promise.resolve(),
    close: () => Promise.resolve(),
  }));

describe("keys in the configuration", () => {
  it("are stored as digests: the key itself is forgotten", async () => {
    const store = createInlineKeyStore([{ id: "own", key: "a-key-of-my-own-0123" }], digest);
    assert.deepEqual(await store.list({ limit: 2 }), [{
      id: "own",
      digest: digest("a-key-of-my-own-0123"),
    }]);
  });

  it("cannot be changed, and the refusal states the fix", async () => {
    const store = new MemoryKeyStore([record("one")]);
    await assert.rejects(() => store.change(), (error) => {
      assert.ok(error instanceof KeyStoreError);
      assert.match(error.message, /^Cannot change keys .* set keys to .* or "redis"$/);
      return true;
    });
  });

  it("are refused if two have one secret, also one from before a rotation", () => {
    const previous = { digest: digest("one"), expiresAt: SOME_DAY };
    const twins = [
      [{ id: "one", digest: digest("one") }, { id: "two", digest: digest("one") }],
      [{ id: "one", digest: digest("one") }, { id: "two", digest: digest("two"), previous }],
      [{ id: "one", digest: digest("x"), previous }, { id: "two", digest: digest("one") }],
      [{ id: "one", key: "a-key-of-my-own-0123" }, {
        id: "two",
        digest: digest("a-key-of-my-own-0123"),
      }],
    ];
    for (const keys of twins) {
      assert.throws(() => createInlineKeyStore(keys, digest), (error) => {
        assert.ok(error instanceof ConfigError);
        assert.match(error.message, /keys\[1\]/);
        assert.match(error.message, /one has the same one/);
        return true;
      });
    }
  });

  it("are refused if one is mistyped, without quoting it", () => {
    const mistyped = "gk_000000000000_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz_1vMJp3";
    assert.throws(() => createInlineKeyStore([{ id: "one", key: mistyped }], digest), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, /keys\[0\]/);
      assert.doesNotMatch(error.message, /zzzz/);
      return true;
    });
  });
});
