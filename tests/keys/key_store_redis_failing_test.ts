/**
 * Keys in Redis while it is down, slow, empty, or answers nonsense: the answers that the policy
 * requires, and never two waits in a row.
 */
// runtimes: once
// alone: it measures how long a look-up and the event loop take
import assert from "node:assert/strict";
import { connect, createServer, type Socket } from "node:net";
import process from "node:process";
import { setImmediate } from "node:timers/promises";
import { it } from "@std/testing/bdd";
import { REDIS_DEADLINE_MS, RedisFailed } from "../../src/storage/redis_client.ts";
import { STALE_MS } from "../../src/keys/redis/key_cache.ts";
import { KeyStoreUnavailable } from "../../src/keys/key_store.ts";
import { freePort } from "../support/free_port.ts";
import { startRedis, withRedis } from "../support/redis.ts";
import { startLink } from "../support/redis_link.ts";
import { until } from "../support/until.ts";
import { Fleet, Member } from "./key_store_redis_fleet.ts";
import { digest, record, SOME_DAY } from "./key_store_suite.ts";

const [ONE, TWO, STRANGER] = [record("one"), record("two"), {
  digest: digest("no key has this one"),
}];
const MINUTE_MS = 60_000;
/** Longest look-up while Redis is silent. Milliseconds. */
const NO_LONGER_MS = 100;
const GONE = "key_store_unavailable";

/** True if a promise settles without waiting for a timer or a socket. */
async function isAtOnce(promise: Promise<unknown>): Promise<boolean> {
  let isSettled = false;
  promise.finally(() => isSettled = true);
  await setImmediate();
  return isSettled;
}

const says = (member: Member, key: { digest: string }, answer: string, ms?: number) =>
  until(async () => await member.say(key) === answer, `a look-up says ${answer}`, ms);

/** Runs `act`. `lagMs`: longest time during which this process had no turn. Milliseconds. */
async function measured<T>(
  act: () => Promise<T>,
): Promise<{ result: T; ms: number; lagMs: number }> {
  let [last, lagMs] = [performance.now(), 0];
  const timer = setInterval(() => {
    lagMs = Math.max(lagMs, performance.now() - last);
    last = performance.now();
  }, 1);
  const startedAt = performance.now();
  try {
    const result = await act();
    return {
      result,
      ms: performance.now() - startedAt,
      lagMs: Math.max(lagMs, performance.now() - last),
    };
  } finally {
    clearInterval(timer);
  }
}

/**
 * A connection to a server that can be cut silently: open connections stay open, and nothing
 * passes.
 */
async function layWire(
  port: number,
): Promise<{ url: string; cut(): void; connections(): number; close(): void }> {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((near) => {
    connections++;
    const far = connect({ port, host: "127.0.0.1" });
    for (const [from, to] of [[near, far], [far, near]] as const) {
      sockets.add(from);
      from.on("data", (data) => void to.write(data));
      from.on("error", () => {});
      from.on("close", () => to.destroy());
    }
  });
  const own = await freePort();
  await new Promise<void>((resolve) => server.listen(own, "127.0.0.1", resolve));
  return {
    url: `redis://127.0.0.1:${own}`,
    connections: () => connections,
    cut() {
      for (const socket of sockets) {
        socket.removeAllListeners("data").removeAllListeners("close").on("data", () => {});
      }
    },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** Runs a function with a fleet that waits for Redis as long as gateways do by default. */
const withFleet = (act: (fleet: Fleet) => Promise<void>) => Fleet.with(act, REDIS_DEADLINE_MS);

withRedis.describe("keys in a Redis that is down", () => {
  it("can be looked up at the start for longer than the timeout: Redis does not fail", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE);
      const link = await startLink(fleet.server.port);
      try {
        const starting = await fleet.join({ url: link.url });
        link.rtt = 3 * REDIS_DEADLINE_MS;
        await starting.store.start();
        link.rtt = 0;
        assert.deepEqual(starting.client.health, { isUp: true, failures: 0 });
        assert.deepEqual(starting.reports, []);
        assert.equal(await starting.say(ONE), "one");
      } finally {
        await link.close();
      }
    }));

  it("stay valid for the stated time if they are known; other keys are not called unknown", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const member = await fleet.join();
      assert.equal(await member.say(ONE), "one");
      assert.equal(await member.say(STRANGER), "unknown");
      await fleet.server.kill();
      member.pass(MINUTE_MS);
      assert.equal(await member.say(ONE), "one");
      assert.equal(await member.say(TWO), GONE);
      assert.equal(
        await member.say(STRANGER),
        GONE,
        "a stranger a minute ago may have a key by now",
      );
      member.pass(STALE_MS - MINUTE_MS - 10_000);
      assert.equal(await member.say(ONE), "one");
      member.pass(10_000);
      assert.equal(await member.say(ONE), GONE);
      for (const act of [() => member.store.get("one"), () => member.store.list({ limit: 1 })]) {
        await assert.rejects(act, (error) => {
          assert.ok(error instanceof KeyStoreUnavailable);
          assert.match(error.message, /^Cannot use the keys in Redis: check that it runs/);
          return true;
        });
      }
    }));

  it("with an announced change are no longer valid", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const member = await fleet.join();
      for (const key of [ONE, TWO]) assert.equal(await member.say(key), key.id);
      member.stopTime();
      await fleet.listening(2);
      let isHeard = false; // the store has heard it too: it subscribed earlier
      member.client.listen("sallyport:changed", () => isHeard = true);
      await fleet.raw.publish("sallyport:changed", `${ONE.digest} ${digest("new")}`);
      await until(() => isHeard, "the change is announced");
      await fleet.server.kill();
      await says(member, ONE, GONE);
      member.pass(MINUTE_MS);
      assert.equal(await member.say(TWO), "two");
    }));

  it("return without a restart, and each event is logged once a minute at most", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE);
      const member = await fleet.join();
      for (let round = 0; round < 3; round++) {
        await fleet.server.kill();
        await says(member, STRANGER, GONE);
        await fleet.server.restart();
        await fleet.fill(ONE);
        await until(() => member.client.health.isUp, "Redis is back");
        member.pass(STALE_MS);
        await says(member, ONE, "one");
        const [failure = "", recovery] = member.reports.splice(0);
        assert.match(
          failure,
          /^Redis fails \(.+\): known keys stay valid for a while, limits are counted here alone$/,
        );
        assert.doesNotMatch(failure, /enableOfflineQueue/);
        assert.equal(recovery, "Redis answers again");
        member.pass(MINUTE_MS);
      }
      // Within a minute there is nothing new to report.
      for (let round = 0; round < 3; round++) {
        await fleet.server.kill();
        await says(member, STRANGER, GONE);
        await fleet.server.restart();
        await until(() => member.client.health.isUp, "Redis is back");
      }
      assert.ok(member.reports.length <= 2, member.reports.join("\n"));
    }));

  it("do not prevent a gateway from starting", async () => {
    const port = await freePort();
    await withFleet(async (fleet) => {
      const { result: member, ms } = await measured(() =>
        fleet.join({ url: `redis://127.0.0.1:${port}` })
      );
      assert.ok(ms < 4000, `${ms} ms`);
      assert.match(member.reports[0] ?? "", /ECONNREFUSED/);
      assert.equal(await member.say(ONE), GONE);
      const server = await startRedis({ port });
      const writer = new Member(server.url);
      try {
        await writer.client.ready();
        await writer.store.change(ONE.id, () => ONE);
        await says(member, ONE, "one");
        assert.deepEqual(member.reports.slice(1), ["Redis answers again"]);
      } finally {
        await writer.close();
        await member.close();
        await server.stop();
      }
    });
  });
});

withRedis.describe("keys in a Redis that is silent", () => {
  it("cost the first look-up a short wait, and the others none", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const member = await fleet.join();
      assert.equal(await member.say(ONE), "one");
      member.pass(2000);
      fleet.server.pause();
      const firsts = await measured(() =>
        Promise.all([ONE, TWO, STRANGER].map((key) => member.say(key)))
      );
      assert.deepEqual(firsts.result, ["one", GONE, GONE]);
      assert.ok(
        firsts.ms <= NO_LONGER_MS + firsts.lagMs,
        `${firsts.ms} ms, ${firsts.lagMs} of them not its own`,
      );
      // For as long as Redis is silent, also during its probes.
      const endsAt = performance.now() + 1500;
      while (performance.now() < endsAt) {
        for (const [key, answer] of [[ONE, "one"], [TWO, GONE], [STRANGER, GONE]] as const) {
          const said = member.say(key);
          assert.ok(await isAtOnce(said), `somebody had to wait for ${answer}`);
          assert.equal(await said, answer);
        }
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
      fleet.server.resume();
      await says(member, TWO, "two");
      assert.deepEqual(member.reports.slice(1), ["Redis answers again"]);
    }));

  it("are requested on a new connection when the old one is dead", () =>
    withFleet(async (fleet) => {
      const wire = await layWire(fleet.server.port);
      try {
        await fleet.fill(ONE);
        const member = await fleet.join({ url: wire.url });
        assert.equal(await member.say(ONE), "one");
        assert.equal(wire.connections(), 2);
        wire.cut();
        assert.equal(await member.say(STRANGER), GONE);
        member.pass(10_000);
        await says(member, STRANGER, "unknown", 10_000);
        // Announcements are received again.
        await fleet.listening(3);
      } finally {
        wire.close();
      }
    }));

  it("are not silent only because this process was busy", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE);
      const member = await fleet.join();
      for (let round = 0; round < 5; round++) {
        const said = member.say(ONE);
        await setImmediate(); // it is sent
        for (const endsAt = performance.now() + 3 * REDIS_DEADLINE_MS; performance.now() < endsAt;);
        assert.equal(await said, "one");
        member.pass(2000);
      }
      assert.deepEqual(member.client.health, { isUp: true, failures: 0 });
    }));
});

withRedis.describe("keys in a Redis that has changed", () => {
  it("are not all called unknown when it returns empty", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const member = await fleet.join();
      assert.equal(await member.say(ONE), "one");
      await fleet.server.restart();
      await until(
        () => member.client.health.failures > 0 || member.client.health.isUp,
        "it is noticed",
      );
      await until(() => member.client.health.isUp, "Redis is back");
      member.pass(MINUTE_MS);
      assert.equal(await member.say(ONE), "one");
      assert.equal(await member.say(TWO), GONE);
      assert.equal(await member.say(STRANGER), GONE);
      await fleet.fill(ONE, TWO);
      member.pass(STALE_MS);
      for (const key of [ONE, TWO]) await says(member, key, key.id);
      // These may not be all of its keys. The operator must confirm that.
      assert.equal(await member.say(STRANGER), GONE);
      assert.equal(
        await (await fleet.join()).say(STRANGER),
        GONE,
        "a gateway that is new hears of it too",
      );
      assert.equal(member.told.length, 1, member.told.join("\n"));
      assert.match(
        member.told[0] ?? "",
        /^Redis has lost keys: .* sallyport keys import FILE, .* sallyport keys confirm/,
      );
      assert.equal(await member.store.confirm(), true);
      await says(member, STRANGER, "unknown");
      assert.equal(await member.store.confirm(), false);
      // Redis has lost a part of its data, for example by a memory limit. Then not even a gateway
      // that is new here can detect it.
      for (const lost of ["sallyport:digests", "sallyport:keys"]) {
        await fleet.fill(ONE, TWO);
        await says(member, ONE, "one");
        await fleet.raw.del(lost);
        assert.equal(await (await fleet.join()).say(STRANGER), GONE, lost);
        member.pass(2000);
        assert.equal(await member.say(ONE), "one");
        await fleet.raw.flushall();
        await fleet.fill(ONE, TWO);
        assert.equal(await member.say(STRANGER), GONE);
        await member.store.confirm();
        await says(member, STRANGER, "unknown");
      }
      await fleet.raw.flushall();
      const fresh = await fleet.join();
      assert.equal(
        await fresh.say(STRANGER),
        GONE,
        "where nothing is, no gateway can know what was",
      );
      assert.match(fresh.told.join("\n"), /^Redis has no keys: until the first is made, .*$/);
      await fleet.fill(ONE);
      assert.equal(await fresh.say(STRANGER), "unknown");
    }));

  it("fail one by one if it answers errors, and the others work at once", () =>
    withFleet(async (fleet) => {
      await fleet.fill(ONE, TWO);
      const member = await fleet.join();
      assert.equal(await member.say(ONE), "one");
      member.pass(2000);
      await fleet.raw.rename("sallyport:keys", "elsewhere");
      await fleet.raw.set("sallyport:keys", "not a hash");
      const { result, ms, lagMs } = await measured(() =>
        Promise.all([member.say(ONE), member.say(TWO)])
      );
      assert.deepEqual(result, ["one", GONE]);
      assert.ok(ms <= REDIS_DEADLINE_MS + lagMs, "an error is no silence");
      assert.equal(await member.client.run((redis) => redis.ping(), String), "PONG");
      await assert.rejects(() => member.store.get("one"), KeyStoreUnavailable);
      await assert.rejects(
        () => member.store.change("new", () => record("new")),
        KeyStoreUnavailable,
      );
      await fleet.raw.del("sallyport:keys");
      await fleet.raw.rename("elsewhere", "sallyport:keys");
      assert.equal(await member.say(TWO), "two", "it is not left alone for an error");
      assert.equal(member.client.health.isUp, true);
    }));

  it("are not looked up in another kind of server that listens there", async () => {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket.on("error", () => {}));
      socket.on(
        "data",
        () => void socket.write("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"),
      );
    });
    const port = await freePort();
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    try {
      await withFleet(async (fleet) => {
        const member = await fleet.join({ url: `redis://127.0.0.1:${port}` });
        assert.equal(await member.say(ONE), GONE);
        assert.equal(member.reports.length, 1);
        await assert.rejects(() => member.client.ask((redis) => redis.ping(), String), RedisFailed);
      });
    } finally {
      server.close();
      for (const socket of sockets) socket.destroy();
    }
  });

  // Regression: an unhandled rejection ends the process.
  it("leave no rejection unhandled, also for simultaneous failures", async () => {
    const unheard: unknown[] = [];
    const hear = (reason: unknown) => void unheard.push(reason);
    process.on("unhandledRejection", hear);
    try {
      await withFleet(async (fleet) => {
        await fleet.fill(ONE, TWO);
        const member = await fleet.join();
        await fleet.listening(2);
        // From now on Redis refuses subscriptions.
        await fleet.raw.call("ACL", "SETUSER", "default", "resetchannels");
        await fleet.raw.call("CLIENT", "KILL", "TYPE", "pubsub");
        await until(
          async () => String(await fleet.raw.call("ACL", "LOG")) !== "",
          "it is refused to somebody",
        );
        for (let round = 0; round < 4; round++) {
          const said = Array.from(
            { length: 50 },
            (_, index) => member.say(record(`${index}`, { createdAt: SOME_DAY })),
          );
          member.store.used("one", SOME_DAY + round);
          if (round % 2 === 0) await fleet.server.restart();
          else fleet.server.pause();
          for (const answer of await Promise.all(said)) {
            assert.match(answer, /^(?:unknown|key_store_unavailable)$/);
          }
          fleet.server.resume();
          member.pass(600);
        }
      });
      await setImmediate();
      assert.deepEqual(unheard, []);
    } finally {
      process.removeListener("unhandledRejection", hear);
    }
  });
});
