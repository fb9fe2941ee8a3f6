/** A Redis that is far away: it is used as long as it answers in time, and it does not count as up and down in turn. */
// runtimes: once
// alone: it measures deadlines of tens of milliseconds
// long: Redis is called over a slow link for seconds
import assert from "node:assert/strict";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { systemClock } from "../../src/exchange/clock.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { type RedisLink, startLink } from "../support/redis_link.ts";
import { until } from "../support/until.ts";

/** Time for which calls are made. Milliseconds. */
const LOAD_MS = 4000;
/** Pause between two looks at the machine. Milliseconds. */
const TICK_MS = 2;
/** How often calls are made again on a machine that is too busy for a proof. */
const MOST_AGAIN = 5;

/** What calls have found. */
interface Found {
  readonly changes: number;
  readonly good: number;
  readonly failed: number;
}

withRedis.describe("row 67: a Redis that is far away", () => {
  let redis: RedisServer;
  let link: RedisLink;
  let client: RedisClient;
  let reports: string[];
  beforeEach(async () => {
    redis = await startRedis();
    link = await startLink(redis.port);
    reports = [];
  });
  afterEach(async () => {
    client.close();
    await link.close();
    await redis.stop();
  });
  const connect = async (timeoutMs: number) => {
    client = new RedisClient({ url: link.url, timeoutMs }, systemClock, (text) => reports.push(text));
    await client.ready();
  };
  /** Makes calls one after the other, several at a time, and counts how often the health changes. */
  const load = async (ms = LOAD_MS): Promise<Found> => {
    let [changes, good, failed] = [0, 0, 0];
    let wasUp = client.health.isUp;
    const end = performance.now() + ms;
    const callers = Array.from({ length: 4 }, async () => {
      while (performance.now() < end) {
        await client.run((redis) => redis.incr("a"), Number).then(() => good++, () => failed++);
        if (client.health.isUp !== wasUp) changes++;
        wasUp = client.health.isUp;
        await new Promise((resolve) => setTimeout(resolve, 2)); // what a caller does beside
      }
    });
    await Promise.all(callers);
    return { changes, good, failed };
  };

  /** The same, with the longest pause in which Redis, asked without the link in between, and this process were not there. */
  const loadBeside = async () => {
    const direct = new Redis(redis.url);
    let [longestMs, isOver] = [0, false];
    const watching = (async () => {
      while (!isOver) {
        const start = performance.now();
        await direct.ping();
        await new Promise((resolve) => setTimeout(resolve, TICK_MS));
        longestMs = Math.max(longestMs, performance.now() - start - TICK_MS);
      }
    })();
    const found = await load();
    isOver = true;
    await watching;
    direct.disconnect();
    return { ...found, longestMs };
  };

  for (const [rtt, timeoutMs] of [[20, 50], [40, 100], [80, 200]] as const) {
    it(`row 67: a round trip of ${rtt} ms is good with a timeout of ${timeoutMs} ms`, async () => {
      link.rtt = rtt;
      await connect(timeoutMs);
      const isGood = ({ changes, good, failed }: Found) => good > 50 && failed <= good / 20 && changes <= 2;
      let found = await loadBeside();
      // A machine that takes away so much of the time between the round trip and the timeout has proven nothing.
      for (let again = 0; again < MOST_AGAIN && !isGood(found) && found.longestMs > (timeoutMs - rtt) / 2; again++) {
        await until(() => client.health.isUp, "Redis is up again");
        found = await loadBeside();
      }
      assert.ok(isGood(found), JSON.stringify(found));
    });
  }

  it("row 67: a round trip of 250 ms with a timeout of 50 ms: never up, on the same connection, and told what to do", async () => {
    link.rtt = 250; // so far that it is late also where this process stands still meanwhile, which extends the timeout
    await connect(50);
    const { changes, good } = await load();
    assert.deepEqual({ changes, good }, { changes: 0, good: 0 });
    assert.equal(reports.length, 1, reports.join("\n"));
    assert.match(reports[0] ?? "", /^Redis fails \(slow: it answers after \d+ ms; redis\.timeout is 50 ms: raise it/);
    await load(2000); // longer than a silence lasts until connections are made anew
    assert.equal(link.connections, 2, "for calls and for messages");
    link.rtt = 5;
    await until(() => client.health.isUp, "it is near again");
    assert.deepEqual(reports.slice(1), ["Redis answers again"]);
  });

  it("row 67: a Redis that is silent is told as such, and is not called slow", async () => {
    await connect(50);
    redis.pause();
    await until(async () => {
      await client.run((redis) => redis.incr("a"), Number).catch(() => {});
      return reports.length > 0;
    }, "it is told");
    assert.match(reports[0] ?? "", /^Redis fails \(silent for \d+ ms\): /);
    redis.resume();
  });
});
