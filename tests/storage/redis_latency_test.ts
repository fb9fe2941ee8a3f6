/**
 * A Redis that is far away: it is used as long as it answers in time, and its health does not
 * oscillate.
 */
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
/** Pause between two measurements of the machine. Milliseconds. */
const TICK_MS = 2;
/** Number of tries on a machine that is too busy to prove anything. */
const MOST_TRIES = 6;

/** Results of calls. */
interface Found {
  readonly changes: number;
  readonly good: number;
  readonly failed: number;
}

withRedis.describe("a Redis that is far away", () => {
  let redis: RedisServer;
  let link: RedisLink;
  let client: RedisClient;
  let reports: string[];
  beforeEach(async () => {
    redis = await startRedis();
    link = await startLink(redis.port);
  });
  afterEach(async () => {
    client.close();
    await link.close();
    await redis.stop();
  });
  const connect = async (timeoutMs: number) => {
    reports = [];
    client = new RedisClient(
      { url: link.url, timeoutMs },
      systemClock,
      (text) => reports.push(text),
    );
    await client.ready();
  };
  /** Makes calls one after the other, several at a time, and counts the changes of the health. */
  const load = async (ms = LOAD_MS): Promise<Found> => {
    let [changes, good, failed] = [0, 0, 0];
    let wasUp = client.health.isUp;
    const end = performance.now() + ms;
    const callers = Array.from({ length: 4 }, async () => {
      while (performance.now() < end) {
        await client.run((redis) => redis.incr("a"), Number).then(() => good++, () => failed++);
        if (client.health.isUp !== wasUp) changes++;
        wasUp = client.health.isUp;
        await new Promise((resolve) => setTimeout(resolve, 2)); // a caller's other work
      }
    });
    await Promise.all(callers);
    return { changes, good, failed };
  };

  /** Returns the longest pause of this process, or of Redis without the link, during some work. */
  const awayDuring = async (work: () => Promise<void>): Promise<number> => {
    const direct = new Redis(redis.url);
    let [awayMs, isOver] = [0, false];
    const watching = (async () => {
      while (!isOver) {
        const start = performance.now();
        await direct.ping();
        await new Promise((resolve) => setTimeout(resolve, TICK_MS));
        awayMs = Math.max(awayMs, performance.now() - start - TICK_MS);
      }
    })();
    try {
      await work();
    } finally {
      isOver = true;
      await watching;
      direct.disconnect();
    }
    return awayMs;
  };

  /**
   * Connects and makes calls over a link with a round trip, and checks the results. It repeats this
   * if the machine paused for half of the time between the round trip and the timeout, because such
   * a run proves nothing.
   *
   * @returns How often it connected
   */
  const prove = async (
    rtt: number,
    timeoutMs: number,
    isRight: (found: Found) => boolean,
  ): Promise<number> => {
    link.rtt = rtt;
    for (let tries = 1;; tries++) {
      let found: Found = { changes: 0, good: 0, failed: 0 };
      const awayMs = await awayDuring(async () => {
        await connect(timeoutMs);
        found = await load();
      });
      if (isRight(found)) return tries;
      const isDisturbed = awayMs > Math.abs(timeoutMs - rtt) / 2;
      if (!isDisturbed || tries === MOST_TRIES) {
        assert.fail(JSON.stringify({ ...found, awayMs, reports }));
      }
      client.close();
    }
  };

  for (const [rtt, timeoutMs] of [[20, 50], [40, 100], [80, 200]] as const) {
    it(`a round trip of ${rtt} ms works with a timeout of ${timeoutMs} ms [Redis moves]`, async () => {
      await prove(
        rtt,
        timeoutMs,
        ({ changes, good, failed }) => good > 50 && failed <= good / 20 && changes <= 2,
      );
    });
  }

  it("a round trip of 250 ms with a timeout of 50 ms never counts as up, keeps its connection, and is reported with the fix [Redis moves]", async () => {
    // Far enough to be late also while this process stands still, which extends the timeout.
    const told =
      /^Redis fails \(slow: it answers after \d+ ms; redis\.timeout is 50 ms: raise it[^\n]*$/;
    const tries = await prove(
      250,
      50,
      ({ changes, good }) => changes === 0 && good === 0 && told.test(reports.join("\n")),
    );
    await load(2000); // longer than the silence after which connections are reopened
    assert.equal(link.connections, 2 * tries, "for calls and for messages");
    link.rtt = 5;
    await until(() => client.health.isUp, "it is near again");
    assert.deepEqual(reports.slice(1), ["Redis answers again"]);
  });

  it("a silent Redis is reported as silent, not as slow [Redis moves]", async () => {
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
