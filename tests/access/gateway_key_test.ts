/** The form of gateway keys, and how they are found. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { gatewayKeyId, generateGatewayKey, isGatewayKey, isPlausibleKey } from "../../src/access/gateway_key.ts";
import { findGatewayKey, MemoryKeyStore } from "../../src/access/key_store.ts";

// Made with another implementation of CRC-32 (Python's zlib), so that keys stay good whatever happens to ours.
const KNOWN = {
  "gk_Ab0Ab0Ab0Ab0_SallyportSallyportSallyportSallyportSallypo_2u9kA9": "Ab0Ab0Ab0Ab0",
  "gk_000000000000_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz_1vMJp2": "000000000000",
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

  it("that was given out stays good", () => {
    for (const [key, id] of Object.entries(KNOWN)) assert.equal(gatewayKeyId(key), id);
  });

  it("is made of evenly spread characters", () => {
    const counts = new Map<string, number>();
    for (const key of Array.from({ length: 4000 }, generateGatewayKey)) {
      for (const character of key.slice(3, 15) + key.slice(16, 59)) {
        counts.set(character, (counts.get(character) ?? 0) + 1);
      }
    }
    const mean = 4000 * 55 / 62;
    assert.equal(counts.size, 62);
    // A byte taken modulo 62 without care would favour eight characters by a quarter; chance stays below a tenth.
    for (const [character, count] of counts) assert.ok(Math.abs(count / mean - 1) < 0.125, `${character}: ${count}`);
  });

  it("is recognised by its form alone, so that a mistyped one is no upstream key", () => {
    const key = generateGatewayKey();
    const mistyped = key.slice(0, -1) + (key.endsWith("x") ? "y" : "x");
    assert.ok(isGatewayKey(mistyped));
    assert.equal(gatewayKeyId(mistyped), undefined);
    for (const other of ["", "gk_", "sk-proj-1", key.slice(1), `${key}x`, ` ${key}`, `${key}\n`, key.toUpperCase()]) {
      assert.equal(isGatewayKey(other), false, JSON.stringify(other));
      assert.equal(gatewayKeyId(other), undefined, JSON.stringify(other));
    }
  });

  it("is told from any other text without a failure", () => {
    const text = fc.oneof(fc.string({ unit: "binary" }), fc.stringMatching(/^gk_\w{12}_\w{43}_\w{6}$/));
    fc.assert(fc.property(text, (other) => {
      assert.equal(gatewayKeyId(other), undefined);
      assert.equal(isGatewayKey(other), /^gk_[^_\W]{12}_[^_\W]{43}_[^_\W]{6}$/.test(other));
      assert.equal(isPlausibleKey(other), !other.startsWith("gk_") && /^[!-~]{16,512}$/.test(other));
    }));
  });

  it("with two neighbours swapped or a character lost or doubled is caught", () => {
    const key = generateGatewayKey();
    for (const at of Array.from(key.slice(1)).keys()) {
      const [before, one = "", two = "", after] = [key.slice(0, at), key[at], key[at + 1], key.slice(at + 2)];
      const changes = [before + one + after, before + one + one + two + after, before + two + one + after];
      for (const changed of changes) if (changed !== key) assert.equal(gatewayKeyId(changed), undefined, changed);
    }
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
    assert.ok(isPlausibleKey("0123456789abcdef") && isPlausibleKey("x".repeat(512)));
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
