/** The connection to Redis: deadlines, pauses after failures, and messages to the operator. */
// runtimes: once
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers/promises";
import { afterEach, beforeEach, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { REDIS_DEADLINE_MS, RedisClient, RedisFailed } from "../../src/storage/redis_client.ts";
import { OneServer } from "../../src/storage/redis_servers.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { startLink } from "../support/redis_link.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

/**
 * A clock that a test moves forward. Its deadlines are long enough for a busy machine, unless a
 * test fires them by hand.
 */
class TestClock implements Clock {
  ahead = 0;
  isManual = false;
  readonly timers: { ms: number; fire: () => void }[] = [];
  /** Durations of all timers that are fired by hand. */
  readonly durations: number[] = [];
  now(): number {
    return Date.now();
  }
  monotonic(): number {
    return performance.now() + this.ahead;
  }
  timer(ms: number, fire: () => void): () => void {
    if (!this.isManual) return systemClock.timer(4 * ms, fire);
    this.durations.push(ms);
    this.timers.push({ ms, fire });
    return () => {};
  }
}

withRedis.describe("a connection to Redis", () => {
  let server: RedisServer;
  let clock: TestClock;
  let client: RedisClient;
  let reports: string[];
  beforeEach(async () => {
    server = await startRedis();
    clock = new TestClock();
    reports = [];
    client = new RedisClient(server.url, clock, (text) => reports.push(text));
    await client.ready();
  });
  afterEach(async () => {
    client.close();
    await server.stop();
  });
  let sent = 0;
  const ping = () =>
    client.run((redis) => {
      sent++;
      return redis.ping();
    }, String);
  const failures = async (calls: Promise<unknown>[]): Promise<unknown[]> =>
    (await Promise.allSettled(calls)).flatMap((call) =>
      call.status === "rejected" ? [call.reason] : []
    );
  const many = () => failures(Array.from({ length: 50 }, ping));

  it("carries the calls of one turn in one packet, texts and bytes in their order", async () => {
    const link = await startLink(server.port);
    const far = new RedisClient(link.url, new TestClock(), () => {});
    try {
      await far.ready();
      const echo = far.script("echo", "return ARGV[1]", { isBinary: true });
      await far.run((redis) => echo(redis, [], ["loaded"]), String);
      const { packets } = link;
      const texts = ["one", "zwei — 2", "three"];
      const bytes = Buffer.from([0, 255, 13, 10]);
      const parts = await Promise.all(
        [...texts, bytes, "last"].map((part) =>
          far.run((redis) => echo(redis, [], [part]), (answer) => answer as Buffer)
        ),
      );
      assert.deepEqual(parts.map((part) => part.toString("hex")), [
        ...texts.map((text) => Buffer.from(text).toString("hex")),
        bytes.toString("hex"),
        Buffer.from("last").toString("hex"),
      ]);
      assert.equal(link.packets - packets, 1);
    } finally {
      far.close();
      await link.close();
    }
  });

  it("fails the calls of a turn in which it is closed", async () => {
    const calls = [ping(), ping()];
    client.close();
    assert.equal((await failures(calls)).length, 2);
  });

  // After a standstill, Bun and Deno fire all due timers before they read the arrived bytes.
  it("does not blame Redis for the time in which this process stood still", async () => {
    clock.isManual = true;
    const [quick, late] = [ping(), ping()];
    const deadlines = clock.timers.splice(0);
    assert.deepEqual(deadlines.map(({ ms }) => ms), [REDIS_DEADLINE_MS, REDIS_DEADLINE_MS]);
    clock.ahead += REDIS_DEADLINE_MS;
    deadlines[0]?.fire();
    clock.ahead += 30;
    deadlines[1]?.fire();
    const waits = clock.timers.map(({ ms }) => Math.floor(ms));
    assert.ok(
      (waits[0] ?? 0) >= 1 && (waits[1] ?? 0) >= 30 && (waits[1] ?? 0) <= REDIS_DEADLINE_MS,
      String(waits),
    );
    assert.deepEqual(await Promise.all([quick, late]), ["PONG", "PONG"]);
    for (const { fire } of clock.timers) fire();
    assert.equal(client.health.failures, 0);
  });

  it("stops using a failing Redis, and probes it less and less often", async () => {
    server.pause();
    clock.isManual = true;
    /** Fires due timers, and waits for their effects. */
    const fire = async (): Promise<number[]> => {
      const due = clock.timers.splice(0);
      for (const { fire } of due) fire();
      await setImmediate();
      await setImmediate();
      return due.map(({ ms }) => ms);
    };
    sent = 0;
    const first = many();
    assert.deepEqual(new Set(await fire()), new Set([REDIS_DEADLINE_MS]));
    await fire(); // arrived bytes are read first
    assert.equal((await first).length, 50);
    assert.equal(sent, 50, "those that could not know yet");
    assert.equal(client.health.isUp, false);
    const pauses: number[] = [];
    for (let number = 0; number < 6; number++) {
      assert.equal((await many()).length, 50);
      const [pause = 0, ...others] = await fire();
      assert.deepEqual(others, [], "one asks at a time");
      pauses.push(pause);
      assert.deepEqual(await fire(), [REDIS_DEADLINE_MS]);
      await fire();
    }
    for (const [index, most] of [20, 40, 80, 160, 250, 250].entries()) {
      const pause = pauses[index] ?? 0;
      assert.ok(
        pause >= most / 2 && pause <= most,
        `${pauses}: gateways do not ask at the same time`,
      );
    }
    assert.equal(sent, 50, "no caller waited twice");
    server.resume();
    clock.durations.length = 0;
    await until(async () => {
      await fire();
      return client.health.isUp;
    }, "it is up again");
    const probes = clock.durations.filter((ms) => ms === REDIS_DEADLINE_MS).length;
    assert.ok(probes >= 3, "one good answer is not enough");
    assert.equal((await many()).length, 0, "all are served again");
    assert.deepEqual(reports.map((line) => line.split(" (")[0]), [
      "Redis fails",
      "Redis answers again",
    ]);
  });

  it("reports late answers, and whether anything was sent at all", async () => {
    server.pause();
    const [reason] = await failures([ping()]);
    const [unsent] = await failures([ping()]);
    assert.ok(reason instanceof RedisFailed && unsent instanceof RedisFailed);
    assert.equal(unsent.late, undefined);
    server.resume();
    assert.equal(await reason.late, "PONG");
  });

  it("reports to the operator once a minute, however often calls fail", async () => {
    const nonsense = () =>
      client.run((redis) => redis.ping(), () => {
        throw new Error("no such word");
      });
    for (let number = 0; number < 50; number++) await failures([nonsense()]);
    assert.equal(client.health.isUp, true, "others need not suffer for it");
    assert.equal(reports.length, 1);
    assert.match(reports[0] ?? "", /^Redis fails \(no such word\): /);
    clock.ahead += 60_000;
    for (let number = 0; number < 50; number++) await failures([nonsense(), ping()]);
    assert.equal(reports.length, 2);
    clock.ahead += 60_000;
    await server.kill();
    const isDown = async () => (await many()).length === 50;
    await until(isDown, "it is down");
    for (let number = 0; number < 10; number++, clock.ahead += 300) await many();
    assert.equal(reports.length, 3);
    await server.restart();
    await until(async () => {
      clock.ahead += 300;
      return (await many()).length === 0;
    }, "it is up");
    assert.deepEqual(reports.slice(3), ["Redis answers again"]);
  });

  // ioredis abandons a connection if a Sentinel reports a failover at the moment when it looks for
  // the primary.
  it("restores connections that the library has given up, until it is closed", async () => {
    const servers = new OneServer(
      { url: server.url, timeoutMs: REDIS_DEADLINE_MS },
      systemClock,
      () => {},
    );
    const both = [servers.redis, servers.subscriber];
    const areReady = () => both.every(({ status }) => status === "ready");
    try {
      await until(areReady, "both are connected");
      let ends = 0;
      for (const connection of both) {
        connection.on("end", () => ends++);
        connection.disconnect();
      }
      await until(() => ends === 2, "both are given up");
      await until(() => areReady() && servers.isUp, "both are connected again");
    } finally {
      servers.close();
    }
    await until(
      () => both.every(({ status }) => status === "end"),
      "they are closed forever",
    );
  });

  it("switches to the new primary when its server has become a replica", async () => {
    const raw = new Redis(server.url);
    const idBefore = await client.run((redis) => redis.client("ID"), Number);
    await raw.replicaof("127.0.0.1", 1);
    assert.equal((await failures([client.run((redis) => redis.set("a", "b"), String)])).length, 1);
    await raw.replicaof("NO", "ONE");
    raw.disconnect();
    await until(async () => {
      clock.ahead += 300;
      return (await failures([client.run((redis) => redis.set("a", "b"), String)])).length === 0;
    }, "it may write again");
    assert.notEqual(
      await client.run((redis) => redis.client("ID"), Number),
      idBefore,
      "the connection is another one",
    );
  });
});
