/**
 * Records of keys of several versions: records that the first version wrote, its rules for reading,
 * and records that a later version can write.
 */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { parseConfig } from "../../src/config/config.ts";
import { KeyAdministration } from "../../src/admin/key_administration.ts";
import { BrokenFile, readKeyFile, writeKeyFile } from "../../src/keys/key_file.ts";
import {
  InvalidRecord,
  readKeyRecord,
  toRecordJson,
  writeKeyRecord,
} from "../../src/keys/key_record.ts";
import type { GatewayKey } from "../../src/keys/key_store.ts";
import { createKey, revokeKey, rotateKey, suspendKey } from "../../src/keys/lifecycle.ts";
import { STORED_FORMS } from "../../src/storage/stored_forms.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { Member, PATIENT_TIMEOUT_MS } from "./key_store_redis_fleet.ts";
import { digest, HOUR_MS, SOME_DAY } from "./key_store_suite.ts";
import { assertFileReadable, assertReadable, FILE, RECORDS, REDIS } from "./version_1.ts";

const parts = { digest, now: SOME_DAY };
const PLAIN = { id: "one", digest: digest("one"), created: "2026-11-21T00:00:00.000Z" };
const [ROTATED, REVOKED, DISABLED] = ["HPo2nZnmE9Vv", "r5cscU3V4smJ", "gM3Tx6P9OB9K"] as const;

/**
 * Records of later versions, and the reason why their keys are refused. `undefined` if they are
 * not.
 */
const LATER: readonly [more: Record<string, unknown>, refusal: RegExp | undefined][] = [
  [{ color: "red" }, undefined],
  [{ version: 7 }, undefined],
  [{ version: 7, color: { of: ["any", "form"] }, "__proto__x": 1 }, undefined],
  [{ name: 5, metadata: { nested: {} }, created: "long ago" }, undefined],
  [{ requires: [] }, undefined],
  [{ durable: { keep: "1m", cipher: "later" } }, undefined],
  [{ durable: "on Sundays" }, undefined],
  [{ limits: { images: "5/day" } }, /^limits\.images: unknown setting$/],
  [{ limits: { images: "5/day", requests: "6/min" } }, /^limits\.images/],
  [{ limits: { requests: "6/fortnight", tokens: "1k/min" } }, /^limits\.requests: expected a rate/],
  [{ limits: { mode: "lenient" } }, /^limits\.mode/],
  [{ limits: "few" }, /^limits: /],
  [{ limits: ["few"] }, /^limits/],
  [{ version: 7, requires: ["addresses"], addresses: ["10.0.0.0/8"] }, /^requires: addresses$/],
  [{ requires: "addresses" }, /^requires: expected a list/],
  [{ version: "seven" }, /^version: /],
  [{ version: 1.5 }, /^version: /],
  [{ providers: { any: ["a"] } }, /^providers: /],
  [{ models: ["a", 5] }, /^models\[1\]: /],
  [{ operations: ["telepathy"] }, /^operations/],
  [{ expires: "when it rains" }, /^expires: /],
  [{ disabled: "on Sundays" }, /^disabled: /],
  [{ revoked: true }, /^revoked: /],
  [
    { previous: { digest: digest("x"), expires: "2027-01-31T00:00:00Z", only: "reads" } },
    /^previous\.only: /,
  ],
];

describe("records of a later version", () => {
  for (const [more, refusal] of LATER) {
    it(`${refusal === undefined ? "are used" : "refuse their key"}, and kept: ${JSON.stringify(more)}`, () => {
      const text = JSON.stringify({ ...PLAIN, ...more });
      const key = readKeyRecord(JSON.parse(text));
      if (refusal === undefined) assert.equal(key.later?.refusal, undefined);
      else assert.match(key.later?.refusal ?? "", refusal);
      assert.deepEqual(JSON.parse(writeKeyRecord(key)), JSON.parse(text), "nothing is lost");
      for (
        const change of [
          (key: GatewayKey) => revokeKey(key, SOME_DAY),
          (key: GatewayKey) => suspendKey(key, true),
        ]
      ) {
        const { revoked: _, disabled: __, ...rest } = JSON.parse(writeKeyRecord(change(key)));
        const { revoked: ___, disabled: ____, ...before } = JSON.parse(text);
        assert.deepEqual(rest, before);
      }
    });
  }

  it("stay whole in a rotation, which is refused if it would leave an unknown secret valid", () => {
    const key = readKeyRecord({ ...PLAIN, color: "red", limits: { images: "5/day" } });
    const { record } = rotateKey(key, HOUR_MS, parts);
    const { previous, digest: _, ...json } = toRecordJson(record);
    assert.deepEqual(json, {
      id: "one",
      created: PLAIN.created,
      color: "red",
      limits: { images: "5/day" },
    });
    assert.deepEqual(previous, { digest: digest("one"), expires: "2026-11-21T01:00:00.000Z" });
    const unseen = readKeyRecord({
      ...PLAIN,
      previous: [{ digest: digest("x") }, { digest: digest("y") }],
    });
    assert.throws(() => rotateKey(unseen, 0, parts), /Cannot rotate this key: a later version/);
  });

  it("are invalid without an id and a digest, or with the key itself", () => {
    const bad = [null, [], "x", {}, { id: "one" }, { ...PLAIN, digest: 5 }, { ...PLAIN, id: "" }];
    for (const value of [...bad, { id: "one", key: "a-key-of-my-own-0123" }]) {
      assert.throws(() => readKeyRecord(value), InvalidRecord, JSON.stringify(value));
    }
  });

  it("have a version only if they contain more than the first version knows", () => {
    const key = readKeyRecord(PLAIN);
    assert.equal(toRecordJson(key)["version"], undefined);
    assert.equal(
      JSON.parse(writeKeyRecord(readKeyRecord({ ...PLAIN, version: 2 })))["version"],
      undefined,
    );
    const team = { ...key, team: "search" };
    assert.equal(toRecordJson(team)["version"], 2);
    for (const budget of ["1M/week", "5 USD/week", ["1M/day", "5 USD/week"]]) {
      const weekly = readKeyRecord({ ...PLAIN, limits: { budget } });
      assert.equal(toRecordJson(weekly)["version"], 3);
    }
  });
});

describe("a file of keys with records of a later version", () => {
  const write = async (keys: readonly GatewayKey[]) => {
    const all: Uint8Array[] = [];
    for await (const part of writeKeyFile(keys)) all.push(part);
    return Buffer.concat(all);
  };

  it("keeps each record unchanged when another is changed, unreadable ones too", async () => {
    const later = LATER.map(([more], index) => ({
      ...PLAIN,
      id: `later-${index}`,
      digest: digest(`later ${index}`),
      ...more,
    }));
    const unreadable = {
      id: "unreadable",
      version: 9,
      digest: "sha512:x",
      limits: { requests: "6/min" },
    };
    const records = [PLAIN, ...later, unreadable, { id: "empty", version: 9 }];
    const keys = await readKeyFile(Buffer.from(JSON.stringify({ version: 1, keys: records })));
    assert.equal(keys.size, records.length);
    const one = keys.find(digest("one")) ?? assert.fail();
    const changed = await readKeyFile(await write(keys.with([{ ...one, disabled: true }])));
    const written = JSON.parse((await write(Array.from(changed.values()))).toString()).keys;
    assert.deepEqual(written, [{ ...PLAIN, disabled: true }, ...records.slice(1)]);
    assert.match(
      (await changed.get("unreadable"))?.later?.refusal ?? "",
      /digest: expected SHA-256/,
    );
    assert.equal((await changed.list({ limit: 100 })).length, records.length);
  });

  it("is refused if its own version is later", async () => {
    const bytes = Buffer.from(JSON.stringify({ version: STORED_FORMS + 1, keys: [PLAIN] }));
    await assert.rejects(readKeyFile(bytes), (error) => {
      return error instanceof BrokenFile &&
        error.message === "a later version wrote it: run that version";
    });
  });
});

/** Every change that an administrator can make. */
async function changeAll(keys: KeyAdministration): Promise<void> {
  const by = { who: "cli:ann" };
  const limits = { requests: { limit: 5, windowMs: 1000 } };
  const { view } = await keys.create({ name: "new", limits }, by);
  await keys.rotate(view.id, HOUR_MS, by);
  const patch = { name: "other", limits: { concurrency: 3 }, expiresAt: undefined };
  await keys.update(ROTATED, patch, by);
  await keys.enable(DISABLED, by);
  await keys.disable(view.id, by);
  await keys.revoke(DISABLED, by);
}

describe("keys that the first version wrote", () => {
  it("are read from its file, and it can read later changes", async () => {
    const keys = await readKeyFile(Buffer.from(FILE));
    assert.equal(keys.size, 3);
    assert.deepEqual(Array.from(keys.values(), (key) => JSON.parse(writeKeyRecord(key))), RECORDS);
    assertFileReadable(FILE);
    const { record } = createKey({ name: "new", models: ["m-*"] }, parts);
    const all: Uint8Array[] = [];
    for await (const part of writeKeyFile(keys.with([record]))) all.push(part);
    assertFileReadable(Buffer.concat(all).toString());
  });
});

withRedis.describe("keys that the first version wrote to Redis", () => {
  let server: RedisServer;
  let raw: Redis;
  let member: Member;
  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url);
    await raw.hset("sallyport:keys", REDIS.keys);
    await raw.hset("sallyport:digests", REDIS.digests);
    await raw.hset("sallyport:used", REDIS.used);
    for (const [score, id] of REDIS.created) await raw.zadd("sallyport:created", score, id);
    member = new Member({ url: server.url, timeoutMs: PATIENT_TIMEOUT_MS });
    await member.client.ready();
  });
  afterAll(async () => {
    await member.close();
    raw.disconnect();
    await server.stop();
  });

  it("are read, changed and extended, and it reads and finds them all", async () => {
    for (const [each, id] of Object.entries(REDIS.digests)) {
      assert.equal(await member.say({ digest: each }), id);
    }
    assert.equal(await member.say({ digest: digest("nobody") }), "unknown");
    assert.deepEqual((await member.store.list({ limit: 9 })).map(({ id }) => id), [
      DISABLED,
      REVOKED,
      ROTATED,
    ]);
    assert.equal(
      (await member.store.lastUsed([ROTATED])).get(ROTATED),
      Number(REDIS.used["HPo2nZnmE9Vv"]),
    );
    const config = parseConfig({ providers: { a: { upstream: "openai" } } });
    const changes = { add: () => Promise.resolve() };
    const parts = { keys: member.store, digest, changes, now: Date.now, config };
    await changeAll(new KeyAdministration(parts));
    member.store.used(REVOKED, SOME_DAY);
    await member.store.close();
    const [keys, digests] = [
      await raw.hgetall("sallyport:keys"),
      await raw.hgetall("sallyport:digests"),
    ];
    assert.equal(Object.keys(keys).length, 4);
    for (const [id, text] of Object.entries(keys)) {
      const record = JSON.parse(text);
      assertReadable(record);
      assert.equal(digests[record.digest], id);
      if (record.previous !== undefined) assert.equal(digests[record.previous.digest], id);
    }
    assert.equal(await raw.zcard("sallyport:created"), 4);
    assert.equal((await raw.hgetall("sallyport:used"))[REVOKED], String(SOME_DAY));
  });
});
