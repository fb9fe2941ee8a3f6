/** The form of gateway keys, and how they are recognized. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import {
  gatewayKeyId,
  generateGatewayKey,
  holdsGatewayKey,
  isPlausibleKey,
} from "../../src/keys/key_format.ts";
import { createKey, revokeKey, rotateKey } from "../../src/keys/lifecycle.ts";
import { findGatewayKey } from "../../src/keys/key_resolver.ts";
import type { GatewayKey } from "../../src/keys/key_store.ts";
import { MemoryKeyStore } from "../../src/keys/key_store_memory.ts";
import { parseConfig } from "../../src/config/config.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { Exchange } from "../../src/exchange/exchange.ts";
import { createGateway } from "../../src/gateway.ts";
import { digest, HOUR_MS } from "./key_store_suite.ts";
import { it } from "../support/cases.ts";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/** Makes an exchange at a given time, milliseconds since 1970. */
const at = (now: number) => {
  const clock = { ...systemClock, now: () => now };
  return { clock, exchange: new Exchange(clock) };
};
const anyKey = fc.constant(undefined).map(() => generateGatewayKey());

// Made with another implementation of CRC-32 (Python's zlib), so that keys stay valid if this
// implementation changes.
const KNOWN = {
  "gk_Ab0Ab0Ab0Ab0_SallyportSallyportSallyportSallyportSallypo_2u9kA9": "Ab0Ab0Ab0Ab0",
  "gk_000000000000_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz_1vMJp2": "000000000000",
};

describe("a gateway key", () => {
  it("has a recognizable form, and an id", () => {
    const keys = Array.from({ length: 200 }, () => generateGatewayKey());
    for (const key of keys) {
      assert.match(key, /^gk_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/);
      assert.equal(gatewayKeyId(key), key.slice(3, 15));
      assert.ok(holdsGatewayKey(key) && isPlausibleKey(key));
    }
    assert.equal(new Set(keys).size, keys.length);
  });

  it("that was issued stays valid", () => {
    for (const [key, id] of Object.entries(KNOWN)) assert.equal(gatewayKeyId(key), id);
  });

  it("consists of evenly distributed characters", () => {
    const counts = new Map<string, number>();
    for (const key of Array.from({ length: 4000 }, () => generateGatewayKey())) {
      for (const character of key.slice(3, 15) + key.slice(16, 59)) {
        counts.set(character, (counts.get(character) ?? 0) + 1);
      }
    }
    const mean = 4000 * 55 / 62;
    assert.equal(counts.size, 62);
    // A byte modulo 62 would make eight characters 25 % more frequent. Chance stays below 10 %.
    for (const [character, count] of counts) {
      assert.ok(Math.abs(count / mean - 1) < 0.125, `${character}: ${count}`);
    }
  });

  it("keeps its id in a new secret, if it has one of the gateway's form", () => {
    const key = generateGatewayKey();
    assert.equal(gatewayKeyId(generateGatewayKey(key.slice(3, 15))), key.slice(3, 15));
    for (const other of ["", "tester", "x".repeat(13), "größe-größe-", "gk_000000000"]) {
      const id = gatewayKeyId(generateGatewayKey(other));
      assert.ok(id !== undefined && id !== other, other);
    }
  });

  it("is recognized by its form alone, so that a mistyped one does not pass as an upstream key", () => {
    const key = generateGatewayKey();
    const mistyped = key.slice(0, -1) + (key.endsWith("x") ? "y" : "x");
    assert.ok(holdsGatewayKey(mistyped));
    assert.equal(gatewayKeyId(mistyped), undefined);
    for (
      const other of ["", "gk_", "sk-proj-1", key.slice(1), key.slice(0, -1), key.toUpperCase()]
    ) {
      assert.equal(holdsGatewayKey(other), false, JSON.stringify(other));
      assert.equal(gatewayKeyId(other), undefined, JSON.stringify(other));
    }
  });

  it.large("is found anywhere in a text", () => {
    fc.assert(
      fc.property(
        anyKey,
        fc.string({ unit: "binary" }),
        fc.string({ unit: "binary" }),
        (key, before, after) => {
          assert.ok(holdsGatewayKey(before + key + after));
          if (before + after !== "") assert.equal(gatewayKeyId(before + key + after), undefined);
        },
      ),
    );
    for (
      const text of [
        `Bearer x${generateGatewayKey()}`,
        `/v1/models?key=${generateGatewayKey()}#x`,
        `gk_gk_gk_`,
      ]
    ) {
      assert.equal(holdsGatewayKey(text), text !== "gk_gk_gk_");
    }
  });

  it.large("is always distinguished from other text", () => {
    const text = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.stringMatching(/^gk_\w{12}_\w{43}_\w{6}$/),
    );
    fc.assert(fc.property(text, (other) => {
      assert.equal(gatewayKeyId(other), undefined);
      assert.equal(holdsGatewayKey(other), /gk_[^_\W]{12}_[^_\W]{43}_[^_\W]{6}/.test(other));
      assert.equal(
        isPlausibleKey(other),
        !other.startsWith("gk_") && /^[!-~]{16,512}$/.test(other),
      );
    }));
  });

  it("is refused if two neighbors are swapped, or a character is lost or doubled", () => {
    const key = generateGatewayKey();
    for (const at of Array.from(key.slice(1)).keys()) {
      const [before, one = "", two = "", after] = [
        key.slice(0, at),
        key[at],
        key[at + 1],
        key.slice(at + 2),
      ];
      const changes = [
        before + one + after,
        before + one + one + two + after,
        before + two + one + after,
      ];
      for (const changed of changes) {
        if (changed !== key) assert.equal(gatewayKeyId(changed), undefined, changed);
      }
    }
  });

  it.large("is refused if any one character is changed", () => {
    const key = generateGatewayKey();
    for (const [at, before] of Array.from(key).entries()) {
      for (const character of `${ALPHABET}_-. \n`) {
        if (character === before) continue;
        const changed = key.slice(0, at) + character + key.slice(at + 1);
        assert.equal(gatewayKeyId(changed), undefined, changed);
        assert.ok(at < 3 || !isPlausibleKey(changed), changed);
      }
    }
    fc.assert(
      fc.property(
        anyKey,
        fc.nat(key.length - 1),
        fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
        (...args) => {
          const [key, at, character] = args;
          const changed = key.slice(0, at) + character + key.slice(at + 1);
          assert.equal(gatewayKeyId(changed), changed === key ? key.slice(3, 15) : undefined);
        },
      ),
      { numRuns: 2000 },
    );
  });

  it("of the operator's own has 16 visible characters or more", () => {
    assert.ok(isPlausibleKey("0123456789abcdef") && isPlausibleKey("x".repeat(512)));
    for (
      const key of [
        "0123456789abcde",
        "0123456789abcde ",
        "",
        "x".repeat(513),
        "gk_0123456789abcdef",
      ]
    ) {
      assert.equal(isPlausibleKey(key), false, key);
    }
  });

  it("that is malformed is refused without hashing or a look-up", async () => {
    let work = 0;
    const parts = { digest: () => `${work++}`, ...at(0) };
    await findGatewayKey("gk_mistyped-key-of-some-length", { find: () => void work++ }, parts);
    assert.equal(work, 0);
  });

  it("is found only by its whole digest", async () => {
    const store = new MemoryKeyStore([{ id: "one", digest: "d-good" }]);
    const find = (shown: string, digest: string, from: Pick<MemoryKeyStore, "find"> = store) =>
      findGatewayKey(shown, from, { digest: () => digest, ...at(0) });
    assert.equal((await find("good-key-0123456789", "d-good"))?.id, "one");
    assert.equal(await find("other-key-0123456789", "d-goof"), undefined);
    const liar = { find: () => ({ id: "one", digest: "d-good" }) };
    assert.equal(await find("other-key-0123456789", "d-evil", liar), undefined);
    assert.equal(await find("other-key-0123456789", "d-goo", liar), undefined);
  });

  it("that was rotated is valid with both secrets, with the old one until its end", async () => {
    const first = createKey({}, { digest, now: 0 });
    const second = rotateKey(first.record, HOUR_MS, { digest, now: 0 });
    const store = new MemoryKeyStore([second.record]);
    const find = async (shown: string, now: number) =>
      (await findGatewayKey(shown, store, { digest, ...at(now) }))?.id;
    assert.equal(gatewayKeyId(second.key), first.record.id);
    for (const now of [0, HOUR_MS - 1, HOUR_MS, 9 * HOUR_MS]) {
      assert.equal(await find(second.key, now), first.record.id);
      assert.equal(await find(first.key, now), now < HOUR_MS ? first.record.id : undefined);
    }
  });
});

describe("refusals of gateway keys", () => {
  it("need the same steps for wrong, revoked, disabled, expired and outdated keys, and give the same answer", async () => {
    const [created, now] = [{ digest, now: 1000 }, 2000];
    const make = (change: (key: GatewayKey) => GatewayKey) => {
      const { key, record } = createKey({}, created);
      return { key, record: change(record) };
    };
    const refused = {
      revoked: make((key) => revokeKey(key, 1500)),
      disabled: make((key) => ({ ...key, disabled: true })),
      expired: make((key) => ({ ...key, expiresAt: now })),
      // Rotated: this secret was valid until now.
      outdated: make((key) => rotateKey(key, 1000, created).record),
      unknown: { key: generateGatewayKey(), record: undefined },
      "unknown, of the operator's own": { key: "own-key-of-nobody-0123", record: undefined },
    };
    const records = Object.values(refused).map(({ record }) => record).filter((record) =>
      record !== undefined
    );
    const store = new MemoryKeyStore(records);
    const steps: string[] = [];
    const config = parseConfig({
      providers: { a: { hosts: ["a.test"], upstream: "https://a.example/v1" } },
    });
    const gateway = createGateway(config, {
      digest: (text) => (steps.push("digest"), digest(text)),
      keys: { find: (wanted) => (steps.push("find"), store.find(wanted)) },
      transport: { send: () => assert.fail("a refused key reached a provider") },
      clock: { now: () => now, monotonic: () => 0, timer: () => () => {} },
    });
    const answers = new Map<string, string>();
    for (const [name, { key }] of Object.entries(refused)) {
      const headers = {
        host: "a.test",
        authorization: "Bearer sk-1",
        "gateway-auth": `Bearer ${key}`,
      };
      steps.length = 0;
      const response = await gateway.fetch(new Request("http://a.test/v1/models", { headers }));
      const { "x-request-id": _, ...kept } = Object.fromEntries(response.headers);
      answers.set(name, JSON.stringify([steps, response.status, kept, await response.text()]));
    }
    const [[, expected = ""] = []] = answers;
    assert.match(expected, /^\[\["digest","find"\],401,/);
    for (const [name, answer] of answers) assert.equal(answer, expected, name);
  });
});
