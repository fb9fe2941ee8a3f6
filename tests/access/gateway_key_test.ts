/** The form of gateway keys, and what a key may do. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { gatewayKeyId, generateGatewayKey, isGatewayKey, isPlausibleKey } from "../../src/access/gateway_key.ts";
import { findGatewayKey, MemoryKeyStore } from "../../src/access/key_store.ts";
import { admitKey, admitModel } from "../../src/access/policy.ts";
import { GatewayError } from "../../src/errors.ts";

const codeOf = (run: () => unknown): string => {
  try {
    run();
    return "ok";
  } catch (error) {
    return GatewayError.is(error) ? error.code : assert.fail(String(error));
  }
};

describe("a gateway key", () => {
  it("has a form that is recognised, and an id", () => {
    const keys = Array.from({ length: 200 }, generateGatewayKey);
    for (const key of keys) {
      assert.match(key, /^gk_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/);
      assert.equal(gatewayKeyId(key), key.slice(3, 15));
      assert.ok(isGatewayKey(key) && isPlausibleKey(key));
    }
    assert.equal(new Set(keys).size, keys.length);
  });

  it("with any one character changed is caught", () => {
    const key = generateGatewayKey();
    fc.assert(
      fc.property(fc.nat(key.length - 1), fc.stringMatching(/^[\x21-\x7e]$/), (at, character) => {
        const changed = key.slice(0, at) + character + key.slice(at + 1);
        if (changed === key) return;
        assert.equal(gatewayKeyId(changed), undefined);
        assert.ok(!changed.startsWith("gk_") || !isPlausibleKey(changed));
      }),
      { numRuns: 2000 },
    );
  });

  it("of the operator's own has 16 visible characters or more", () => {
    assert.ok(isPlausibleKey("0123456789abcdef"));
    for (const key of ["0123456789abcde", "0123456789abcde ", "", "x".repeat(513), "gk_0123456789abcdef"]) {
      assert.equal(isPlausibleKey(key), false, key);
    }
  });

  it("that is malformed is refused without hashing or a look-up", async () => {
    let work = 0;
    const digest = () => `${work++}`;
    await findGatewayKey("gk_mistyped-key-of-some-length", { find: () => void work++ }, digest);
    assert.equal(work, 0);
  });

  it("is found by its whole digest only", async () => {
    const store = new MemoryKeyStore([{ id: "one", digest: "d-good" }]);
    assert.equal((await findGatewayKey("good-key-0123456789", store, () => "d-good"))?.id, "one");
    assert.equal(await findGatewayKey("other-key-0123456789", store, () => "d-goof"), undefined);
    const liar = { find: () => ({ id: "one", digest: "d-good" }) };
    assert.equal(await findGatewayKey("other-key-0123456789", liar, () => "d-evil"), undefined);
  });
});

describe("a policy", () => {
  const key = { id: "k", digest: "d" };

  it("refuses unknown and expired keys alike, and foreign providers", () => {
    assert.equal(codeOf(() => admitKey(undefined, "a", 0)), "invalid_gateway_key");
    assert.equal(codeOf(() => admitKey({ ...key, expiresAt: 10 }, "a", 10)), "invalid_gateway_key");
    assert.equal(codeOf(() => admitKey({ ...key, expiresAt: 10 }, "a", 9)), "ok");
    assert.equal(codeOf(() => admitKey({ ...key, providers: ["b"] }, "a", 0)), "provider_not_allowed");
    assert.equal(codeOf(() => admitKey({ ...key, providers: [] }, "a", 0)), "provider_not_allowed");
  });

  it("matches models as a regular expression would, whatever the pattern", () => {
    const piece = fc.constantFrom("a", "b", "ab", "*", "**", "-", ".", "(");
    const text = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(""));
    fc.assert(
      fc.property(text, text, (model, pattern) => {
        const source = pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replaceAll("\\*", "[^]*");
        const expected = new RegExp(`^${source}$`).test(model) ? "ok" : "model_not_allowed";
        assert.equal(codeOf(() => admitModel({ ...key, models: [pattern] }, model)), expected);
      }),
      { numRuns: 3000 },
    );
    assert.equal(codeOf(() => admitModel(key, "anything")), "ok");
  });
});
