/** Keys in Redis: the suite of all stores, and properties of a healthy Redis alone. */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import type { RedisClient } from "../../src/storage/redis_client.ts";
import { type CommandOptions, toCommand } from "../../src/storage/redis_command.ts";
import { revokeKey } from "../../src/keys/lifecycle.ts";
import { type GatewayKey, KeyStoreUnavailable } from "../../src/keys/key_store.ts";
import { RedisKeyStore } from "../../src/keys/redis/key_store.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { toKeyJson } from "../../src/config/key.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { type RedisCluster, startCluster } from "../support/redis_fleets.ts";
import { until, untilSoon } from "../support/until.ts";
import { Fleet, Member, PATIENT_TIMEOUT_MS } from "./key_store_redis_fleet.ts";
import {
  CHANGE_HOLDS_MS,
  describeKeyRegistry,
  digest,
  record,
  SOME_DAY,
} from "./key_store_suite.ts";

/** More than twice as many digests as a gateway keeps. */
const FLOOD = 110_000;
const [ONE, TWO] = [record("one"), record("two", { createdAt: SOME_DAY + 1 })];

withRedis.describe("one Redis for all of these", () => {
  let server: RedisServer | undefined;
  beforeAll(async () => void (server = await startRedis()));
  afterAll(() => server?.stop());

  describeKeyRegistry("in Redis", async (keys) => {
    const url = server?.url ?? assert.fail("no Redis");
    const members: Member[] = [];
    const open = async () => {
      const member = new Member({ url, timeoutMs: PATIENT_TIMEOUT_MS });
      members.push(member);
      await member.client.ready();
      return member.store;
    };
    const raw = new Redis(url);
    await raw.flushdb();
    raw.disconnect();
    const writer = await open();
    for (const key of keys) await writer.change(key.id, () => key);
    return {
      open,
      flush: async () => {
        for (const { store } of members) await store.close();
      },
      close: async () => {
        for (const member of members) await member.close();
      },
    };
  });
});

withRedis.describe("a Cluster, which refuses a command over two slots", () => {
  let cluster: RedisCluster | undefined;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster?.stop());

  describeKeyRegistry("in a Cluster", async (keys) => {
    const { servers, urls } = cluster ?? assert.fail("no Cluster");
    for (const { raw } of servers) await raw.flushdb();
    const members: Member[] = [];
    const open = async () => {
      const member = new Member({ cluster: urls, timeoutMs: 1000 });
      members.push(member);
      await member.client.ready();
      return member.store;
    };
    const writer = await open();
    for (const key of keys) await writer.change(key.id, () => key);
    return {
      open,
      flush: async () => {
        for (const { store } of members) await store.close();
      },
      close: async () => {
        const used = await Promise.all(servers.map(({ raw }) => raw.keys("*")));
        assert.ok(used.filter((names) => names.length > 0).length <= 1, String(used));
        for (const member of members) await member.close();
      },
    };
  });
});

withRedis.describe("a change of keys in Redis", () => {
  it("is heard at once", () =>
    Fleet.with(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const [here, there] = [await fleet.join(), await fleet.join()];
      await fleet.listening(3);
      there.stopTime(); // its known keys do not age
      assert.equal(await there.say(ONE), "one");
      assert.equal(await there.say(record("new")), "unknown");
      await here.store.change("one", (key = assert.fail()) => revokeKey(key, SOME_DAY));
      await here.store.change("new", () => record("new"));
      const isHeard = async () =>
        (await there.store.find(ONE.digest))?.revokedAt === SOME_DAY &&
        await there.say(record("new")) === "new";
      await untilSoon(isHeard, "the change is heard", CHANGE_HOLDS_MS);
      // Gateways whose connection was lost hear it too.
      await fleet.raw.call("CLIENT", "KILL", "TYPE", "pubsub");
      await fleet.listening(3);
      await here.store.change("two", (key = assert.fail()) => revokeKey(key, SOME_DAY));
      await untilSoon(
        async () => (await there.store.find(TWO.digest))?.revokedAt === SOME_DAY,
        "heard",
        CHANGE_HOLDS_MS,
      );
    }));

  it("applies within a second although its message is lost", () =>
    Fleet.with(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const [here, there] = [await fleet.join(), await fleet.join()];
      for (const key of [ONE, TWO]) assert.equal(await there.say(key), key.id);
      await fleet.raw.call("CLIENT", "KILL", "TYPE", "pubsub");
      await here.store.change("one", (key = assert.fail()) => revokeKey(key, SOME_DAY));
      // This change is not announced.
      await fleet.raw.hset(
        "sallyport:keys",
        "two",
        JSON.stringify(toKeyJson({ ...TWO, disabled: true })),
      );
      const startedAt = performance.now();
      for (let isOver = false; !isOver;) {
        isOver = performance.now() - startedAt >= CHANGE_HOLDS_MS; // running look-ups count
        const [one, two] = [await there.store.find(ONE.digest), await there.store.find(TWO.digest)];
        if (isOver) assert.deepEqual([one?.revokedAt, two?.disabled], [SOME_DAY, true]);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }));

  it("that is announced while an older answer is on its way is not replaced by it", async () => {
    const answers: ((answer: unknown) => void)[] = [];
    let announce = (_: string): void => {};
    const connection = {
      script: () => () => Promise.resolve(),
      run: <T>(_: unknown, read: (answer: unknown) => T) =>
        new Promise<T>((resolve, reject) =>
          answers.push((answer) => answer instanceof Error ? reject(answer) : resolve(read(answer)))
        ),
      ask: () => Promise.reject(new Error("no administrator calls")),
    };
    const client = {
      ...connection,
      listen: (_: string, heard: (message: string) => void) => void (announce = heard),
      command: <Input, Call, Answer>(options: CommandOptions<Input, Call, Answer>) =>
        toCommand(connection, options),
    };
    const store = new RedisKeyStore(client as unknown as RedisClient, {
      ...systemClock,
      timer: () => () => {},
    });
    const toAnswer = (key: GatewayKey) => [key.id, JSON.stringify(toKeyJson(key))];
    const early = store.find(ONE.digest);
    assert.equal(store.find(ONE.digest), early, "one question for all who wait");
    announce(`${ONE.digest} ${ONE.digest}`);
    const late = store.find(ONE.digest);
    assert.equal(answers.length, 2);
    answers[1]?.(toAnswer(revokeKey(ONE, SOME_DAY)));
    assert.equal((await late)?.revokedAt, SOME_DAY);
    answers[0]?.(toAnswer(ONE));
    assert.equal((await early)?.revokedAt, undefined);
    assert.equal((await store.find(ONE.digest))?.revokedAt, SOME_DAY, "the older answer came back");
    announce(ONE.digest);
    const failing = store.find(ONE.digest);
    answers[2]?.(new Error("Redis fails"));
    await assert.rejects(async () => await failing, { code: "key_store_unavailable" });
  });
});

withRedis.describe("keys in Redis", () => {
  it("are fetched once for all callers, and fetched again in the background before they expire", () =>
    Fleet.with(async (fleet) => {
      await fleet.fill(ONE);
      const member = await fleet.join();
      const before = await fleet.scripts();
      await Promise.all(Array.from({ length: 100 }, () => member.say(ONE)));
      assert.equal(await fleet.scripts(), before + 1);
      member.pass(600);
      const found = member.store.find(ONE.digest);
      assert.ok(!(found instanceof Promise), "a record that is still valid is not waited for");
      await until(async () => await fleet.scripts() === before + 2, "it is asked meanwhile");
      await until(() => !(member.store.find(ONE.digest) instanceof Promise), "and known again");
    }));

  it("are cached in a bounded number: a flood of unknown digests evicts nothing", () =>
    Fleet.with(async (fleet) => {
      await fleet.fill(ONE);
      const member = await fleet.join();
      member.stopTime();
      assert.equal(await member.say(ONE), "one");
      const random = (index: number) => ({ digest: digest(`flood ${index}`) });
      const isUnknown = async (index: number) =>
        assert.equal(await member.say(random(index)), "unknown");
      for (let start = 0; start < FLOOD; start += 100) {
        await Promise.all(Array.from({ length: 100 }, (_, index) => isUnknown(start + index)));
        assert.equal(
          (member.store.find(ONE.digest) as GatewayKey).id,
          "one",
          "a good key had to wait",
        );
        await setImmediate();
      }
      for (let index = FLOOD - 100; index < FLOOD; index++) await isUnknown(index);
      const before = await fleet.scripts();
      for (let index = FLOOD - 100; index < FLOOD; index++) await isUnknown(index);
      assert.equal(await fleet.scripts(), before, "the last ones are known");
      for (let index = 0; index < 1000; index++) await isUnknown(index);
      assert.ok(await fleet.scripts() >= before + 1000, "the first ones are still in memory");
      await fleet.server.kill();
      member.pass(60_000);
      assert.equal(await member.say(ONE), "one");
    }));

  it("are listed over many pages, also with missing keys among them", () =>
    Fleet.with(async (fleet) => {
      const member = await fleet.join();
      const keys = Array.from(
        { length: 2500 },
        (_, index) => record(`key-${index}`, { createdAt: SOME_DAY + index }),
      );
      for (const key of keys) {
        fleet.raw.hset("sallyport:keys", key.id, JSON.stringify(toKeyJson(key))).catch(() => {});
        fleet.raw.zadd("sallyport:created", SOME_DAY + Number(key.id.slice(4)), key.id).catch(
          () => {},
        );
      }
      await fleet.raw.ping();
      const ids = keys.map(({ id }) => id).reverse();
      const list = async (query: { limit: number; after?: string; search?: string }) =>
        (await member.store.list(query)).map(({ id }) => id);
      assert.deepEqual(await list({ limit: 9999 }), ids);
      assert.deepEqual(await list({ limit: 1500, after: "key-2000" }), ids.slice(500, 2000));
      assert.deepEqual(await list({ limit: 2, search: "KEY-12" }), ["key-1299", "key-1298"]);
      await fleet.raw.hdel("sallyport:keys", "key-2498", "key-2400", "key-3");
      const left = ids.filter((id) => id !== "key-2498" && id !== "key-2400" && id !== "key-3");
      assert.deepEqual(await list({ limit: 3 }), left.slice(0, 3));
      assert.deepEqual(await list({ limit: 1200 }), left.slice(0, 1200));
      assert.deepEqual(await list({ limit: 9999 }), left);
    }));

  it("are refused one by one if a record is broken, with the fix", () =>
    Fleet.with(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const member = await fleet.join();
      const broken = [
        "{",
        "null",
        "{}",
        JSON.stringify({ id: "two", key: "a-key-of-my-own-0123" }),
      ];
      for (const text of broken) {
        await fleet.raw.hset("sallyport:keys", "two", text);
        assert.equal(await member.say(TWO), "key_store_unavailable", text);
        member.pass(1000);
        assert.equal(await member.say(ONE), "one", "the others go on");
        assert.equal((await member.store.get("one"))?.id, "one");
        const listed = await member.store.list({ limit: 9 });
        assert.deepEqual(listed.map(({ id, later }) => [id, later?.refusal]), [
          ["two", "its record is broken"],
          ["one", undefined],
        ]);
        assert.deepEqual(
          (await member.store.list({ limit: 9, search: "two" })).map(({ id }) => id),
          ["two"],
        );
        const acts = [() => member.store.get("two"), () => member.store.change("two", () => TWO)];
        for (const act of acts) {
          await assert.rejects(act, (error) => {
            assert.ok(error instanceof KeyStoreUnavailable);
            assert.match(
              error.message,
              /^Cannot read the key two in Redis: .* HDEL sallyport:keys two$/,
            );
            return true;
          });
        }
        assert.equal(await fleet.raw.hget("sallyport:keys", "two"), text);
      }
      assert.deepEqual((await member.store.list({ limit: 9, search: "one" })).map(({ id }) => id), [
        "one",
      ]);
      assert.equal(member.client.health.isUp, true);
      assert.equal(member.reports.length, 1, member.reports.join("\n"));
      // After the recommended fix, no key has this digest until one is added.
      await fleet.raw.hdel("sallyport:keys", "two");
      assert.equal(await member.say(TWO), "unknown");
      await member.store.change("three", () => ({ ...TWO, id: "three" }));
      assert.equal(await member.say(TWO), "three");
    }));

  it("have their last uses written in parts, including uses that Redis missed", () =>
    Fleet.with(async (fleet) => {
      // Intervals of five seconds are fifty milliseconds here.
      const timer = (ms: number, fire: () => void) =>
        systemClock.timer(ms === 5000 ? 50 : ms, fire);
      const member = await fleet.join({ timer });
      const ids = Array.from({ length: 2500 }, (_, index) => `key-${index}`);
      await fleet.raw.hset("sallyport:used", "key-7", SOME_DAY + 99_999);
      const before = await fleet.scripts();
      for (const [index, id] of ids.entries()) member.store.used(id, SOME_DAY + index);
      await until(
        async () => await fleet.raw.hlen("sallyport:used") === ids.length,
        "all are written",
      );
      assert.equal(await fleet.scripts(), before + 3);
      const used = await member.store.lastUsed(ids);
      for (const [index, id] of ids.entries()) {
        assert.equal(used.get(id), SOME_DAY + (index === 7 ? 99_999 : index));
      }
      await fleet.server.kill();
      member.store.used("key-0", SOME_DAY + 5000);
      await until(
        () => !member.client.health.isUp || member.client.health.failures > 0,
        "a write failed",
      );
      await fleet.server.restart();
      const isThere = async () =>
        await fleet.raw.hget("sallyport:used", "key-0") === String(SOME_DAY + 5000);
      await until(isThere, "what was missed is written");
    }));
});
