/** Usage in Redis: the sum of several gateways, and its counts while Redis is away. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { RedisClient, type RedisTarget } from "../../src/storage/redis_client.ts";
import { DEFAULT_RETENTION } from "../../src/config/usage.ts";
import { UsageMeter } from "../../src/usage/meter.ts";
import { RedisUsage } from "../../src/usage/redis/usage_store.ts";
import {
  expiryOf,
  GROUPS,
  HASHES,
  hashName,
  indexName,
  shardOf,
} from "../../src/usage/redis/shards.ts";
import {
  DAY_MS,
  HOUR_MS,
  MAX_MODELS,
  noCounts,
  OTHER_NAME,
  payerOf,
  UsageUnavailable,
} from "../../src/usage/counts.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { startCluster } from "../support/redis_fleets.ts";
import { exchange, rest, StillClock, tell } from "../support/usage.ts";
import { until } from "../support/until.ts";

const { hoursMs, daysMs } = DEFAULT_RETENTION;
const LISTED: ReadonlySet<string> = new Set(["gpt-4o"]);
const one = { requests: 1, input: 3, output: 4 };
/** An hour that Redis still keeps. Redis has its own clock. */
const HOUR = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
const DAY = HOUR - HOUR % DAY_MS;
const range = { from: HOUR, to: HOUR + HOUR_MS };

withRedis.describe("usage in Redis", () => {
  let redis: RedisServer;
  const clients: RedisClient[] = [];
  beforeEach(async () => {
    redis = await startRedis();
  });
  afterEach(async () => {
    for (const client of clients.splice(0)) client.close();
    await redis.stop();
  });

  async function open(target: string | RedisTarget = redis.url, timers = patientClock) {
    const client = new RedisClient(target, timers, () => {});
    clients.push(client);
    await client.ready();
    const clock = new StillClock();
    const store = new RedisUsage(client, LISTED);
    const meter = new UsageMeter({ store, clock, rest, listed: LISTED });
    const use = (more = {}) => meter.settled(exchange({ startedAt: HOUR, ...more }));
    return { client, clock, store, meter, use };
  }
  const isUp = (client: RedisClient) => until(() => client.health.isUp, "Redis is back");
  const isDown = (client: RedisClient) => until(() => !client.health.isUp, "Redis is away");

  it("has the payer of calls, which an older version does not read", async () => {
    const { use, meter, client } = await open();
    use();
    use({ usesHeldKey: true });
    use({ usesHeldKey: true });
    const payers: unknown[] = [];
    for await (const rows of meter.read({ step: "hour", ...range })) {
      for (const row of rows) payers.push([payerOf(row), row.counts.requests]);
    }
    assert.deepEqual(payers.toSorted(), [["caller", 1], ["gateway", 2]]);
    const fields = await client.ask(
      (redis) => redis.hkeys(hashName(shardOf("team"), "hour", HOUR)),
      (all) => (all as string[]).filter((field) => field.startsWith("[")).toSorted(),
    );
    assert.deepEqual(fields, [
      '["team","a","gpt-4o","chat.completions",null,null,null,null,"gateway"]',
      '["team","a","gpt-4o","chat.completions"]',
    ]);
  });

  it("is packed: one field per row, with counts that a later version can extend", async () => {
    const { use, meter, client } = await open();
    use();
    use({ usage: undefined as never });
    await tell(meter, range);
    const hash = hashName(shardOf("team"), "hour", HOUR);
    const field = '["team","a","gpt-4o","chat.completions"]';
    const content = () =>
      client.ask((redis) => redis.hgetall(hash), (all) => ({ ...all as Record<string, string> }));
    assert.deepEqual(await content(), { [field]: "2 0 1 0 3 0 4" });
    // The previous version had ten counts. A later one has a thirteenth, and fields of another
    // form.
    const odd = {
      "!version": "2",
      '["team"]': "1",
      [`["team","a","o3","responses"]`]: "none",
      [field]: "2 0 1 0 3 0 4 0 0 0 0 0 9",
      '["before","a","gpt-4o","chat.completions"]': "2 0 0 0 6 0 8 0 0 1",
    };
    await client.ask((redis) => redis.hset(hash, odd), Number);
    use({ isEstimated: true });
    assert.deepEqual(await tell(meter, range), {
      "before a gpt-4o": { requests: 2, estimated: 1, input: 6, output: 8 },
      "team a gpt-4o": {
        requests: 3,
        unmetered: 1,
        estimated: 1,
        estimatedInput: 3,
        estimatedOutput: 4,
        input: 6,
        output: 8,
      },
    });
    assert.deepEqual(await content(), { ...odd, [field]: "3 0 1 0 6 0 8 0 0 1 3 4 9" });
  });

  it("has billing classes and tariffs, which the previous version reads and keeps", async () => {
    const { use, meter, client } = await open();
    const hash = hashName(shardOf("team"), "hour", HOUR);
    const standard = '["team","a","gpt-4o","chat.completions"]';
    const fast = '["team","a","gpt-4o","chat.completions",null,null,"fast,us,272k"]';
    // This version wrote both fields, then the previous version added a call to the first.
    const stored = { [standard]: "3 0 0 0 109 0 12 0 0 0 0 0 100 40", [fast]: "1 0 0 0 3 0 4" };
    use();
    await tell(meter, range); // makes the index
    await client.ask((redis) => redis.hset(hash, stored), Number);
    const usage = (context: number, tier?: string) => ({
      total: 107,
      parts: [{
        classes: { input: 3, cacheWrite: 60, cacheWriteLong: 40, output: 4 },
        tariff: { context, tier, geo: tier && "us" },
      }],
    });
    use({ usage: usage(103) });
    use({ usage: usage(300_000, "fast") });
    const found: unknown[] = [];
    for await (const rows of meter.read({ step: "hour", ...range })) {
      for (const { tariff, counts, more } of rows) found.push([tariff, counts.requests, more]);
    }
    assert.deepEqual(found.sort(), [[undefined, 4, [200, 80]], ["fast,us,272k", 2, [100, 40]]]);
    assert.deepEqual(
      await client.ask((redis) => redis.hgetall(hash), (all) => ({ ...all as object })),
      {
        [standard]: "4 0 0 0 212 0 16 0 0 0 0 0 200 80",
        [fast]: "2 0 0 0 106 0 8 0 0 0 0 0 100 40",
      },
    );
  });

  it("distinguishes teams and plans of identity tokens, in fields that previous versions read too", async () => {
    const { use, meter, client, store } = await open();
    const ann = { keyId: "jwt:corp:ann" };
    use({ ...ann, team: "search", plan: "gold" });
    use({ ...ann, team: "search", plan: "gold" });
    use({ ...ann, plan: "gold" });
    for (let made = 0; made < MAX_MODELS + 5; made++) {
      use({ ...ann, team: "ads", model: `o${made}` });
    }
    await tell(meter, range);
    const field = '["jwt:corp:ann","a","gpt-4o","chat.completions"]';
    const hash = hashName(shardOf(ann.keyId), "hour", HOUR);
    const odd = '["jwt:corp:ann","a","gpt-4o","chat.completions",7]';
    await client.ask((redis) => redis.hset(hash, { [field]: "5", [odd]: "9" }), Number);
    const sums = new Map<string, number>();
    for await (const rows of store.read({ step: "hour", ...range })) {
      for (const { team, plan, model, counts } of rows) {
        const name = `${team} ${plan} ${model.replace(/^o\d+$/, "o")}`;
        sums.set(name, (sums.get(name) ?? 0) + counts.requests);
      }
    }
    assert.deepEqual(Object.fromEntries(sums), {
      "search gold gpt-4o": 2,
      "undefined gold gpt-4o": 1,
      "undefined undefined gpt-4o": 5,
      "ads undefined o": MAX_MODELS,
      [`ads undefined ${OTHER_NAME}`]: 5,
    });
    const all = await client.ask(
      (redis) => redis.hgetall(hash),
      (found) => Object.keys(found as object),
    );
    assert.ok(all.includes('["jwt:corp:ann","a","gpt-4o","chat.completions","search","gold"]'));
    assert.ok(all.includes('["jwt:corp:ann","a","gpt-4o","chat.completions",null,"gold"]'));
  });

  it("never adds up to more than is exact", async () => {
    const { use, meter, client } = await open();
    use();
    await tell(meter, range);
    const hash = hashName(shardOf("team"), "hour", HOUR);
    const field = '["team","a","gpt-4o","chat.completions"]';
    await client.ask(
      (redis) => redis.hset(hash, field, `${Number.MAX_SAFE_INTEGER - 1} 0 0 0 9007199254740990`),
      Number,
    );
    use();
    use();
    const { requests, input } = (await tell(meter, range))["team a gpt-4o"] ?? {};
    assert.deepEqual([requests, input], [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]);
  });

  it("is read for one key without reading the others", async () => {
    const { use, meter, client } = await open();
    for (let key = 0; key < 200; key++) use({ keyId: `key-${key}` });
    await tell(meter, range);
    await client.ask((connection) => connection.config("RESETSTAT"), String);
    const rows = [];
    for await (const some of meter.read({ step: "hour", ...range, key: "key-7" })) {
      rows.push(...some);
    }
    assert.equal(rows.find(({ key }) => key === "key-7")?.counts.requests, 1);
    const calls = await client.ask((connection) => connection.info("commandstats"), String);
    assert.match(calls, /cmdstat_hscan:calls=1,/, "the hash of the key");
  });

  it("works on a Cluster: no command uses two slots", async () => {
    const cluster = await startCluster();
    try {
      const { use, meter } = await open({ cluster: cluster.urls, timeoutMs: 1000 });
      for (let key = 0; key < 100; key++) use({ keyId: `key-${key}` });
      const told = await tell(meter, range);
      assert.equal(Object.keys(told).length, 100);
      const slots = new Set<number>();
      for (const { raw } of cluster.servers) {
        for (const name of await raw.keys("*")) {
          slots.add(Number(await raw.cluster("KEYSLOT", name)));
        }
      }
      assert.equal(slots.size, GROUPS, "spread over as many slots as there are groups");
    } finally {
      await cluster.stop();
    }
  });

  it("is the sum of all gateways, by hour and by day, and outlives them", async () => {
    const [here, there] = [await open(), await open()];
    for (let turn = 0; turn < 3; turn++) {
      here.use();
      there.use();
      there.use({ keyId: "two", provider: "b", model: "o3" });
      await Promise.all([tell(here.meter, range), tell(there.meter, range)]);
    }
    const sums = {
      "team a gpt-4o": { requests: 6, input: 18, output: 24 },
      "two b o3": { requests: 3, input: 9, output: 12 },
    };
    assert.deepEqual(await tell(here.meter, range), sums);
    await Promise.all([here.meter.close(), there.meter.close()]);
    const later = await open();
    assert.deepEqual(await tell(later.meter, range), sums);
    assert.deepEqual(await tell(later.meter, { step: "day", from: DAY, to: DAY + DAY_MS }), sums);
  });

  it("distinguishes operations", async () => {
    const { use, meter } = await open();
    use();
    use({ operation: "responses" });
    const requests: Record<string, number> = {};
    for await (const rows of meter.read({ step: "hour", ...range })) {
      for (const { operation, counts } of rows) {
        requests[operation] = (requests[operation] ?? 0) + counts.requests;
      }
    }
    assert.deepEqual(requests, { "chat.completions": 1, responses: 1 });
  });

  it("accepts any names", async () => {
    const { use, meter } = await open();
    const names = ['"],["', "\\", "é\u0000", "r#", "'); return 1 --", "\ud800"];
    for (const name of names) use({ keyId: name, model: name });
    const told = await tell(meter, range);
    assert.deepEqual(Object.keys(told).sort(), names.map((name) => `${name} a ${name}`).sort());
  });

  it("is deleted by Redis itself: hours after eight days, days after 13 months", async () => {
    const { use, meter, client } = await open();
    use();
    await meter.close();
    const lives = (key: string) => client.ask((connection) => connection.pttl(key), Number);
    const isAbout = (ms: number, wanted: number) =>
      assert.ok(ms > wanted && ms < wanted + 3 * DAY_MS, `${ms} ms`);
    const shard = shardOf("team");
    for (const [step, at, kept] of [["hour", HOUR, hoursMs], ["day", DAY, daysMs]] as const) {
      isAbout(await lives(hashName(shard, step, at)), kept);
      const index = await lives(indexName(shard.group, step, at));
      isAbout(index, kept);
      assert.ok(index > await lives(hashName(shard, step, at)), "its index outlives it");
    }
    const keys = await client.ask((connection) => connection.keys("*"), (all) => all as string[]);
    assert.equal(keys.length, 5);
    for (const key of keys) assert.ok(await lives(key) > 0, key);
  });

  it("has a bounded number of models per key, whichever gateway counts them; models with a price are named", async () => {
    const [here, there] = [await open(), await open()];
    for (const [index, { use, meter }] of [here, there].entries()) {
      for (let count = 0; count < 2 * MAX_MODELS; count++) {
        use({ model: `random-${index}-${count}` });
        if (count % 20 === 0) await tell(meter, range);
      }
    }
    here.use();
    there.use({ model: "random-0-0" });
    await Promise.all([tell(here.meter, range), tell(there.meter, range)]);
    const told = await tell(here.meter, range);
    assert.equal(Object.keys(told).length, MAX_MODELS + 2);
    assert.equal(told["team a random-0-0"]?.requests, 2);
    assert.equal(told[`team a ${OTHER_NAME}`]?.requests, 3 * MAX_MODELS);
    assert.equal(told["team a gpt-4o"]?.requests, 1);
  });

  it("is counted locally while Redis is away, and flushed once when it is back", async () => {
    const { use, meter, client, clock } = await open();
    use();
    await tell(meter, range);
    await redis.kill();
    use();
    clock.fire();
    await isDown(client);
    for (let turn = 0; turn < 3; turn++) {
      use();
      clock.fire();
    }
    await assert.rejects(tell(meter, range), UsageUnavailable);
    await redis.restart(); // it has lost the first call
    await isUp(client);
    assert.deepEqual(await tell(meter, range), {
      "team a gpt-4o": { requests: 4, input: 12, output: 16 },
    });
  });

  it("is not counted twice when Redis counts it late", async () => {
    const { use, meter, client, clock } = await open(redis.url, systemClock);
    use();
    redis.pause();
    clock.fire();
    await isDown(client); // sent, and not answered in time
    use();
    redis.resume();
    await isUp(client);
    assert.deepEqual(await tell(meter, range), {
      "team a gpt-4o": { requests: 2, input: 6, output: 8 },
    });
    await meter.close();
    assert.deepEqual(await tell((await open()).meter, range), {
      "team a gpt-4o": { requests: 2, input: 6, output: 8 },
    });
  });

  it("writes a thousand keys in scripts that are short", async () => {
    const { use, meter, client } = await open();
    for (let key = 0; key < 1000; key++) use({ keyId: `key-${key}` });
    const told = await tell(meter, range);
    assert.equal(Object.keys(told).length, 1000);
    assert.ok(
      Object.values(told).every((counts) => JSON.stringify(counts) === JSON.stringify(one)),
    );
    // Each script sets its number once. It has 50 rows at most, of one of 16 groups and of one of
    // two batches.
    const calls = await client.ask((connection) => connection.info("commandstats"), String);
    assert.ok(Number(/cmdstat_set:calls=(\d+),/.exec(calls)?.[1]) <= 2 * GROUPS, calls);
    assert.match(calls, /cmdstat_hset:calls=2000,/);
  });
});

describe("the hashes of usage in Redis", () => {
  it("are the same in all versions", () => {
    assert.deepEqual(["team", "k1", "(other)", "\u00e9"].map(shardOf), [
      { group: 12, hash: 16 },
      { group: 1, hash: 12 },
      { group: 14, hash: 47 },
      { group: 4, hash: 4 },
    ]);
    assert.equal(
      hashName({ group: 3, hash: 57 }, "hour", HOUR),
      `sallyport:{usage:3}:hour:${HOUR}:57`,
    );
    assert.equal(indexName(3, "hour", HOUR), `sallyport:{usage:3}:hour:${HOUR}`);
  });

  it("are filled evenly: no hash of a million keys is large", () => {
    const fields = new Map<string, number>();
    for (let key = 0; key < 1_000_000; key++) {
      const { group, hash } = shardOf(key.toString(36).padStart(12, "k"));
      fields.set(`${group} ${hash}`, (fields.get(`${group} ${hash}`) ?? 0) + 1);
    }
    assert.equal(fields.size, GROUPS * HASHES);
    assert.ok(Math.max(...fields.values()) < 1500, `${Math.max(...fields.values())}`);
  });

  it("are deleted one by one", () => {
    const times = new Set<number>();
    for (let group = 0; group < GROUPS; group++) {
      for (let hash = 0; hash < HASHES; hash++) {
        times.add(expiryOf("hour", HOUR, hoursMs, { group, hash }));
      }
    }
    const sorted = Array.from(times).sort((one, other) => one - other);
    assert.equal(sorted.length, GROUPS * HASHES);
    assert.ok(
      sorted.every((time, index) => index === 0 || time - (sorted[index - 1] ?? 0) >= 3000),
      "3 seconds apart",
    );
    assert.ok((sorted.at(-1) ?? 0) < expiryOf("hour", HOUR, hoursMs), "before their index");
  });
});

describe("adding usage to Redis", () => {
  it("repeats only scripts that may not have run, each with its number", async () => {
    const scripts: { readonly mark: string; readonly number: number }[] = [];
    const failing = new Set<string>();
    const script = () => (_: unknown, [mark = ""]: string[], [number]: readonly unknown[]) => {
      scripts.push({ mark, number: Number(number) });
      return failing.has(mark) ? Promise.reject(new Error("lost")) : Promise.resolve(1);
    };
    const never = () => Promise.reject(new Error("not asked"));
    const store = new RedisUsage({
      script,
      run: async (call, read) => read(await call(undefined as never)),
      ask: never,
    }, LISTED);
    const { provider, model, operation } = {
      provider: "a",
      model: "gpt-4o",
      operation: "chat.completions",
    };
    const counts = { ...noCounts(), requests: 1 };
    const rows = Array.from(
      { length: 400 },
      (_, n) => ({ at: HOUR, key: `key-${n}`, provider, model, operation, counts }),
    );
    await store.add({ number: 1, rows });
    assert.equal(scripts.length, GROUPS);
    assert.ok(scripts.every(({ number }) => number === 1));
    const marks = scripts.splice(0).map(({ mark }) => mark);
    const lost = marks[3] ?? "";
    failing.add(lost);
    await assert.rejects(store.add({ number: 2, rows }));
    const ran = scripts.splice(0);
    assert.ok(ran.every(({ number }) => number === 2));
    failing.clear();
    await store.add({ number: 2, rows });
    const again = scripts.splice(0);
    const notRun = marks.filter((mark) => mark === lost || !ran.some((each) => each.mark === mark));
    assert.deepEqual(again.map(({ mark }) => mark).sort(), notRun.sort());
    assert.ok(again.every(({ number }) => number === 2));
    await store.add({ number: 3, rows });
    assert.equal(
      scripts.filter(({ number }) => number === 3).length,
      GROUPS,
      "each group counts on by itself",
    );
  });
});
