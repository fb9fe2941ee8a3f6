/** Usage in Redis: that of several gateways as one, and what happens to it while Redis is away. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { UsageMeter } from "../../src/usage/meter.ts";
import { RedisUsage } from "../../src/usage/usage_redis.ts";
import {
  DAY_MS,
  DAYS_KEPT_MS,
  HOUR_MS,
  HOURS_KEPT_MS,
  MAX_MODELS,
  OTHER,
  UsageUnavailable,
} from "../../src/usage/counts.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { exchange, StillClock, tell } from "../support/usage.ts";
import { until } from "../support/until.ts";

const LISTED: ReadonlySet<string> = new Set(["gpt-4o"]);
const one = { requests: 1, input: 3, output: 4 };
/** Within what Redis keeps, for it has a clock of its own. */
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

  async function open() {
    const client = new RedisClient(redis.url, systemClock, () => {});
    clients.push(client);
    await client.ready();
    const clock = new StillClock();
    const store = new RedisUsage(client, LISTED);
    const meter = new UsageMeter({ store, clock, listed: LISTED });
    const use = (more = {}) => meter.settled(exchange({ startedAt: HOUR, ...more }));
    return { client, clock, store, meter, use };
  }
  const isUp = (client: RedisClient) => until(() => client.health.isUp, "Redis is back");
  const isDown = (client: RedisClient) => until(() => !client.health.isUp, "Redis is away");

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

  it("tells operations apart, and holds chat completions alone where an older gateway named none", async () => {
    const { client, use, meter } = await open();
    const old = JSON.stringify(["team", "a", "gpt-4o"]);
    await client.ask((redis) => redis.hincrby(`sallyport:usage:hour:${HOUR}`, `r${old}`, 3), Number);
    use();
    use({ operation: "responses" });
    const requests: Record<string, number> = {};
    for await (const rows of meter.read({ step: "hour", ...range })) {
      for (const { operation, counts } of rows) {
        requests[operation] = (requests[operation] ?? 0) + counts.requests;
      }
    }
    assert.deepEqual(requests, { "chat.completions": 4, responses: 1 });
  });

  it("takes names as they are", async () => {
    const { use, meter } = await open();
    const names = ['"],["', "\\", "é\u0000", "r#", "'); return 1 --", "\ud800"];
    for (const name of names) use({ keyId: name, model: name });
    const told = await tell(meter, range);
    assert.deepEqual(Object.keys(told).sort(), names.map((name) => `${name} a ${name}`).sort());
  });

  it("is forgotten by Redis itself: hours after eight days, days after 13 months", async () => {
    const { use, meter, client } = await open();
    use();
    await meter.close();
    const lives = (key: string) => client.ask((connection) => connection.pttl(key), Number);
    const isAbout = (ms: number, wanted: number) => assert.ok(ms > wanted && ms < wanted + 3 * DAY_MS, `${ms} ms`);
    isAbout(await lives(`sallyport:usage:hour:${HOUR}`), HOURS_KEPT_MS);
    isAbout(await lives(`sallyport:usage:day:${DAY}`), DAYS_KEPT_MS);
    const keys = await client.ask((connection) => connection.keys("sallyport:usage:*"), (all) => all as string[]);
    assert.equal(keys.length, 3);
    for (const key of keys) assert.ok(await lives(key) > 0, key);
  });

  it("has a bounded number of models a key, whichever gateway counts them; what has a price is named", async () => {
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
    assert.equal(told[`team a ${OTHER}`]?.requests, 3 * MAX_MODELS);
    assert.equal(told["team a gpt-4o"]?.requests, 1);
  });

  it("is counted here while Redis is away, and handed on once when it is back", async () => {
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
    await redis.restart(); // it has forgotten the first one
    await isUp(client);
    assert.deepEqual(await tell(meter, range), { "team a gpt-4o": { requests: 4, input: 12, output: 16 } });
  });

  it("is not counted twice when Redis counts it late", async () => {
    const { use, meter, client, clock } = await open();
    use();
    redis.pause();
    clock.fire();
    await isDown(client); // sent, and not answered in time
    use();
    redis.resume();
    await isUp(client);
    assert.deepEqual(await tell(meter, range), { "team a gpt-4o": { requests: 2, input: 6, output: 8 } });
    await meter.close();
    assert.deepEqual(await tell((await open()).meter, range), {
      "team a gpt-4o": { requests: 2, input: 6, output: 8 },
    });
  });

  it("takes a thousand keys in scripts that are short", async () => {
    const { use, meter, client } = await open();
    for (let key = 0; key < 1000; key++) use({ keyId: `key-${key}` });
    const told = await tell(meter, range);
    assert.equal(Object.keys(told).length, 1000);
    assert.ok(Object.values(told).every((counts) => JSON.stringify(counts) === JSON.stringify(one)));
    // Each script says its number once: 50 rows each.
    const calls = await client.ask((connection) => connection.info("commandstats"), String);
    assert.match(calls, /cmdstat_set:calls=20,/);
  });
});
