/** Recordings in Redis: the suite of all stores, and cases that only Redis has. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { afterAll, afterEach, beforeAll, beforeEach, describe, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import {
  ENTRY_KIND,
  type HeldRecording,
  RecordingLost,
  RecordingsFull,
} from "../../src/durable/recording_store.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import {
  claimOf,
  describeRecordings,
  endOf,
  entryOf,
  freshName,
  headOf,
  NotedHolder,
  readAll,
  write,
} from "./recording_store_suite.ts";
import {
  CountedClient,
  LEASE_MS,
  type RecordingGateway,
  RedisRecordingsFleet,
} from "./recordings_redis.ts";

const KEEP_MS = 60_000;

let server: RedisServer;
let raw: Redis;

/** Starts a recording. */
async function begin(
  { store }: RecordingGateway,
  holder = new NotedHolder(),
  name = freshName("key"),
): Promise<HeldRecording> {
  const claimed = await store.claim(claimOf(name, KEEP_MS), holder);
  return "held" in claimed ? claimed.held : assert.fail("a new recording");
}

/** Closes the connections over which gateways receive messages. */
async function deafen(): Promise<void> {
  await raw.call("CLIENT", "KILL", "TYPE", "pubsub");
}

withRedis.describe("recordings in Redis", () => {
  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url, { retryStrategy: () => 20 });
    raw.on("error", () => {});
  });
  afterAll(async () => {
    raw.disconnect();
    await server.stop();
  });

  describeRecordings(
    "in Redis",
    () => Promise.resolve(new RedisRecordingsFleet(server.url, [raw])),
    {
      hasGateways: true,
    },
  );
  describe("recordings and failures of Redis", () => {
    let fleet: RedisRecordingsFleet;
    let near: RecordingGateway;
    let far: RecordingGateway;
    beforeEach(async () => {
      fleet = new RedisRecordingsFleet(server.url, [raw]);
      near = await fleet.join();
      far = await fleet.join();
    });
    afterEach(async () => {
      server.resume();
      await fleet.close();
    });
    const get = () => ({ fleet, near, far });
    describeLoss(get);
    describeMessages(get);
    describeRoom(get);
    describeShares(get);
  });
});

type Get = () => { fleet: RedisRecordingsFleet; near: RecordingGateway; far: RecordingGateway };

function describeLoss(get: Get): void {
  it("refuses an entry that follows entries lost in a failover", async () => {
    const { near, far } = get();
    const holder = new NotedHolder();
    const held = await begin(near, holder);
    await write(held, "one");
    const keys = await raw.keys("sallyport:{*");
    const before = await Promise.all(
      keys.map(async (key) => [key, await raw.dumpBuffer(key)] as const),
    );
    await held.append(entryOf(ENTRY_KIND.bytes, 3, "two"));
    for (const [key, dump] of before) {
      await raw.restore(key, 60_000, dump ?? assert.fail(), "REPLACE");
    }
    await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, 6, "three")), RecordingLost);
    await assert.rejects(held.end(endOf(6), "complete"), RecordingLost);
    assert.equal(holder.losses, 1);
    assert.deepEqual(await readAll(far.store, held.id), { text: "one", isWhole: false });
  });

  it("refuses an entry if the recording or its entries are lost, and reads none after a gap", async () => {
    const { fleet, near, far } = get();
    const [first, second, third] = [await begin(near), await begin(near), await begin(near)];
    for (const held of [first, second, third]) await write(held, "one");
    const logOf = ({ id }: HeldRecording) => `sallyport:{${id.slice(0, 6)}}:log:${id.slice(7)}`;
    await raw.del(logOf(first));
    assert.equal(await far.store.read(first.id, { offset: 0, waitMs: 60_000 }), undefined);
    await assert.rejects(first.append(entryOf(ENTRY_KIND.bytes, 3, "two")), RecordingLost);
    await raw.del(logOf(second));
    await assert.rejects(second.end(endOf(3), "complete"), RecordingLost);
    await third.end(endOf(3), "complete");
    await raw.del(logOf(third));
    for (const offset of [0, 1, 3, 4]) {
      assert.equal(
        await far.store.read(third.id, { offset, waitMs: 0 }),
        undefined,
        "it does not look complete",
      );
    }
    const fourth = await begin(near);
    await assert.rejects(fourth.append(entryOf(ENTRY_KIND.bytes, 0, "no head")), RecordingLost);
    await server.restart();
    await until(() => near.client.health.isUp && far.client.health.isUp, "Redis is back");
    await fleet.pass(1000);
    const fifth = await begin(near);
    await fifth.append(headOf());
    await raw.flushall();
    await assert.rejects(fifth.append(entryOf(ENTRY_KIND.bytes, 0, "one")), RecordingLost);
  });

  it("rewrites recordings that a server has lost: running ones, recently ended ones, and their names", async () => {
    const { fleet, near, far } = get();
    const names = [freshName("key"), freshName("key"), freshName("key")];
    const [runs, isComplete, isDeleted] = await Promise.all(
      names.map((name) => begin(near, new NotedHolder(), name)),
    );
    if (runs === undefined || isComplete === undefined || isDeleted === undefined) assert.fail();
    for (const held of [runs, isComplete, isDeleted]) await write(held, "one", "two");
    for (const held of [isComplete, isDeleted]) await held.end(endOf(6), "complete");
    await far.store.delete(isDeleted.id);
    await server.restart();
    await until(() => near.client.health.isUp && far.client.health.isUp, "Redis is back");
    const claims = Promise.all(
      names.map((name) => far.store.claim(claimOf(name, KEEP_MS), new NotedHolder())),
    );
    const gone = far.store.find(isDeleted.id);
    await until(async () => await raw.dbsize() >= 6, "both are there again");
    await fleet.pass(1000);
    const found = (await claims).map((claimed) => "found" in claimed ? claimed.found.id : "new");
    assert.deepEqual(found, [runs.id, isComplete.id, "new"]);
    assert.equal(await gone, undefined);
    await runs.append(entryOf(ENTRY_KIND.bytes, 6, "three"));
    await runs.end(endOf(11), "complete");
    assert.deepEqual(await readAll(far.store, runs.id), { text: "onetwothree", isWhole: true });
    assert.deepEqual(await readAll(far.store, isComplete.id), { text: "onetwo", isWhole: true });
  });

  it("renews leases after a failover while hundreds of removals are repeated, some at once", async () => {
    const { fleet } = get();
    let [renewals, open, most, done, changes] = [0, 0, 0, 0, 0];
    let answer = (): void => {};
    const answered = new Promise<void>((resolve) => answer = resolve);
    /**
     * A connection to a server that is being promoted, and that answers no removal until the test
     * allows it.
     */
    class Changing extends CountedClient {
      override get generation(): number {
        return super.generation + changes;
      }
      override script(
        ...args: Parameters<CountedClient["script"]>
      ): ReturnType<CountedClient["script"]> {
        const run = super.script(...args);
        return async (...call) => {
          if (args[0] === "sallyportRecordingRenew") renewals++;
          if (args[0] !== "sallyportRecordingDiscard" || changes === 0) return await run(...call);
          most = Math.max(most, ++open);
          await answered;
          open--;
          done++;
          return await run(...call);
        };
      }
    }
    const member = await fleet.join(Changing);
    const removed = await Promise.all(Array.from({ length: 250 }, () => begin(member)));
    await Promise.all(removed.map((held) => held.discard()));
    await begin(member);
    changes++;
    member.clock.pass(LEASE_MS / 4);
    await until(() => renewals > 0 && open > 0, "the lease is renewed, and removals wait");
    const before = renewals;
    member.clock.pass(LEASE_MS / 4);
    await until(() => renewals > before, "it is renewed again");
    answer();
    await until(() => done >= 250, "all are repeated");
    assert.equal(most, 100);
  });

  it("gives up a recording if a server has lost more of it than its gateway has kept", async () => {
    const { fleet, near, far } = get();
    const holder = new NotedHolder();
    const held = await begin(near, holder);
    await write(held, "one");
    await fleet.pass(12_000);
    await held.append(entryOf(ENTRY_KIND.bytes, 3, "two"));
    await server.restart();
    await until(() => near.client.health.isUp && far.client.health.isUp, "Redis is back");
    await until(() => holder.losses === 1, "the gateway knows");
    await fleet.pass(1000);
    assert.equal(await far.store.find(held.id), undefined);
  });

  it("continues after Redis was frozen: entries that were sent again are stored once", async () => {
    const { fleet, near, far } = get();
    const held = await begin(near);
    await write(held, "one");
    const waiting = far.store.read(held.id, { offset: 3, waitMs: 60_000 });
    await far.store.find(held.id);
    server.pause();
    const two = entryOf(ENTRY_KIND.bytes, 3, "two");
    await assert.rejects(held.append(two), (error) => !(error instanceof RecordingLost));
    await assert.rejects(far.store.read(held.id, { offset: 3, waitMs: 0 }));
    server.resume();
    await until(() => near.client.health.isUp && far.client.health.isUp, "Redis is back");
    await held.append(two);
    await fleet.pass(2000);
    assert.deepEqual((await waiting)?.entries, [two]);
    await held.end(endOf(6), "complete");
    assert.deepEqual(await readAll(far.store, held.id), { text: "onetwo", isWhole: true });
  });

  it("lets a read wait for Redis, and lets its signal end it", async () => {
    const { fleet, near, far } = get();
    const held = await begin(near);
    await write(held, "one");
    server.pause();
    const leaving = new AbortController();
    const [left, waiting] = [leaving.signal, undefined].map((signal) =>
      far.store.read(held.id, { offset: 0, waitMs: 1_000_000, signal })
    );
    await until(() => !far.client.health.isUp, "Redis is silent", 60_000);
    leaving.abort();
    await assert.rejects(left ?? assert.fail());
    server.resume();
    await until(() => far.client.health.isUp, "Redis is back");
    await fleet.pass(2000);
    assert.equal((await waiting)?.entries.length, 1);
  });

  it("frees a name whose claim was not answered in time", async () => {
    const { fleet, near, far } = get();
    const name = freshName("key");
    server.pause();
    await assert.rejects(near.store.claim(claimOf(name, KEEP_MS), new NotedHolder()));
    server.resume();
    await until(() => near.client.health.isUp && far.client.health.isUp, "Redis is back");
    await fleet.pass(fleet.leaseMs / 2);
    const claimed = await far.store.claim(claimOf(name, KEEP_MS), new NotedHolder());
    assert.ok("held" in claimed && !claimed.isRestarted, "before its lease is over");
  });
}

function describeMessages(get: Get): void {
  it("wakes a reader soon even if its message was lost", async () => {
    const { fleet, near, far } = get();
    const held = await begin(near);
    await write(held, "one");
    const read = far.store.read(held.id, { offset: 3, waitMs: 60_000 });
    await far.store.find(held.id);
    await deafen();
    const two = entryOf(ENTRY_KIND.bytes, 3, "two");
    await held.append(two);
    await fleet.pass(2000);
    assert.deepEqual((await read)?.entries, [two]);
  });

  it("stops a holder that receives no messages at its next entry, or at its next renewal", async () => {
    const { fleet, near, far } = get();
    const holders = [new NotedHolder(), new NotedHolder()];
    const [first, second] = [await begin(near, holders[0]), await begin(near, holders[1])];
    await deafen();
    for (const { id } of [first, second]) assert.equal(await far.store.stop(id), true);
    await first.append(headOf());
    assert.deepEqual(holders.map(({ stops }) => stops), [1, 0]);
    await fleet.pass(fleet.leaseMs / 4);
    assert.deepEqual(holders.map(({ stops }) => stops), [1, 1]);
    await fleet.pass(fleet.leaseMs / 4);
    assert.deepEqual(holders.map(({ stops }) => stops), [1, 1], "each is told once");
  });

  it("needs no connection for each reader: a thousand wait over the gateway's connections", async () => {
    const { near, far } = get();
    const recordings = await Promise.all(Array.from({ length: 100 }, () => begin(near)));
    await Promise.all(recordings.map((held) => write(held, "one")));
    const connections = async () => String(await raw.client("LIST")).trim().split("\n").length;
    const before = await connections();
    const reads = recordings.flatMap(({ id }) =>
      Array.from({ length: 10 }, () => far.store.read(id, { offset: 3, waitMs: 60_000 }))
    );
    await far.store.find(recordings[0]?.id ?? "");
    assert.equal(await connections(), before);
    await Promise.all(recordings.map((held) => held.append(entryOf(ENTRY_KIND.bytes, 3, held.id))));
    const parts = await Promise.all(reads);
    for (const [index, part] of parts.entries()) {
      assert.deepEqual(part?.entries, [
        entryOf(ENTRY_KIND.bytes, 3, recordings[Math.floor(index / 10)]?.id),
      ]);
    }
  });

  it("sends no message for a recording without a reader elsewhere", async () => {
    const { near } = get();
    const messages: string[] = [];
    const listener = raw.duplicate();
    await listener.psubscribe("sallyport:recordings:*");
    listener.on("pmessage", (...[, , message]) => messages.push(message));
    const held = await begin(near);
    const length = await write(held, "one", "two");
    await near.store.read(held.id, { offset: 0, waitMs: 0 });
    await held.end(endOf(length), "complete");
    await raw.publish("sallyport:recordings:last", "last");
    await until(() => messages.includes("last"), "the last one is heard");
    assert.deepEqual(messages, ["last"]);
    listener.disconnect();
  });
}

function describeRoom(get: Get): void {
  it("distinguishes a full Redis from a failing Redis", async () => {
    const { near } = get();
    const held = await begin(near);
    await held.append(headOf());
    await raw.config("SET", "maxmemory", "1mb");
    try {
      await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, 0, "x")), RecordingsFull);
      await assert.rejects(begin(near), RecordingsFull);
    } finally {
      await raw.config("SET", "maxmemory", "0");
    }
    await held.append(entryOf(ENTRY_KIND.bytes, 0, "x"));
  });

  it("bounds the entries of one recording, and drops none", async () => {
    const { near } = get();
    const held = await begin(near);
    await held.append(headOf());
    const log = (await raw.keys("*:log:*"))[0] ?? assert.fail();
    const fill = "for i = 1, 131071 do redis.call('XADD', KEYS[1], '1-' .. (i + 3), '1', 'x') end";
    await raw.eval(fill, 1, log);
    await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, 0, "x")), RecordingsFull);
    assert.equal(await raw.xlen(log), 131_072);
  });

  it("leaves nothing behind, for all ends of recordings", async () => {
    const { fleet, near, far } = get();
    const before = await raw.dbsize();
    for (let number = 0; number < 20; number++) {
      const held = await begin(number % 2 === 0 ? near : far);
      const length = await write(held, "one", "two");
      if (number % 4 === 0) await held.end(endOf(length), "complete");
      if (number % 4 === 1) await held.end(endOf(length), "broken");
      if (number % 4 === 2) await held.discard();
    }
    for (const { store } of [near, far]) fleet.freeze(store);
    for (const key of await raw.keys("*")) assert.ok(await raw.pttl(key) > 0, `${key} has an end`);
    await fleet.pass(KEEP_MS + fleet.tombstoneMs + 2 * fleet.leaseMs);
    assert.equal(await raw.dbsize(), before);
  });

  it("removes expired recordings from its list", async () => {
    const { fleet, near, far } = get();
    const short = await near.store.claim(claimOf(undefined, 1000, 1), new NotedHolder());
    assert.ok("held" in short);
    await short.held.end(endOf(await write(short.held, "x")), "complete");
    const long = await begin(near);
    await fleet.pass(2000);
    assert.deepEqual((await far.store.list(10)).map(({ id }) => id), [long.id]);
    assert.equal(await raw.zcard("sallyport:recordings"), 1);
  });

  it("works with a user of the server's ACL that has few permissions", async () => {
    const rights = [
      "+@read",
      "+@write",
      "+@pubsub",
      "+@connection",
      "+eval",
      "+evalsha",
      "+time",
      "+info",
      "+role",
    ];
    await raw.acl("SETUSER", "gateway", "on", ">secret", "~sallyport:*", "&sallyport:*", ...rights);
    const { far } = get();
    const poor = new RedisRecordingsFleet({
      url: server.url,
      username: "gateway",
      password: "secret",
      timeoutMs: 50,
    }, [
      raw,
    ]);
    const gateway = await poor.join();
    const held = await begin(gateway);
    const read = far.store.read(held.id, { offset: 0, waitMs: 60_000 });
    await far.store.find(held.id);
    const length = await write(held, "one");
    assert.equal((await read)?.entries.length, 1);
    await held.end(endOf(length), "complete");
    assert.deepEqual((await gateway.store.list(10)).map(({ id }) => id), [held.id]);
    await gateway.store.close();
    gateway.client.close();
  });
}

/** Reads the sums of the budget, once all gateways have reported. */
async function readBudget(fleet: RedisRecordingsFleet) {
  await fleet.pass(1000);
  const [sizes, shares, running] = await Promise.all(
    ["sizes", "shares", "running"].map((part) =>
      raw.hgetall(`sallyport:{sallyport:recordings}:${part}`)
    ),
  );
  const { total = "0", running: runs = "0", ...each } = sizes ?? {};
  const sum = Object.values(each).reduce((all, text) => all + Number(text.split(" ")[0]), 0);
  assert.equal(sum, Number(total), "the total is that of all");
  const live = Object.values(each).filter((text) => !text.endsWith(" "));
  const held = live.reduce((all, text) => all + Number(text.split(" ")[0]), 0);
  assert.equal(sumOf(shares), held, "shares are those of all that are kept");
  assert.equal(sumOf(running), Number(runs));
  return { total: Number(total), shares: shares ?? {}, running: Number(runs) };
}

function sumOf(hash: Readonly<Record<string, string>> = {}): number {
  return Object.values(hash).reduce((all, text) => all + Number(text), 0);
}

async function beginOf({ store }: RecordingGateway, keyId: string): Promise<HeldRecording> {
  const claim = claimOf(freshName("key"), KEEP_MS);
  const claimed = await store.claim(
    { ...claim, facts: { ...claim.facts, keyId } },
    new NotedHolder(),
  );
  return "held" in claimed ? claimed.held : assert.fail("a new recording");
}

async function record(gateway: RecordingGateway, keyId: string, text: string): Promise<string> {
  const held = await beginOf(gateway, keyId);
  await held.end(endOf(await write(held, text)), "complete");
  return held.id;
}

function describeShares(get: Get): void {
  it("ends a recording that has no room, of the key with the largest share, and no other", async () => {
    const { fleet, near, far } = get();
    fleet.maxBytes = 200_000;
    const kept = await record(near, "other", "x".repeat(10_000));
    const held = await beginOf(far, "greedy");
    let length = await write(held, "x".repeat(100_000));
    await fleet.pass(1000);
    await held.append(entryOf(ENTRY_KIND.bytes, length, "x".repeat(100_000)));
    length += 100_000;
    await fleet.pass(1000);
    await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, length, "x")), RecordingsFull);
    await assert.rejects(held.end(endOf(length), "complete"), RecordingsFull);
    await held.discard();
    assert.equal((await near.store.find(kept))?.state, "complete");
    assert.equal((await readBudget(fleet)).running, 0);
    await write(await beginOf(far, "greedy"), "x".repeat(100_000));
  });

  it("removes recordings of a key with a larger share, at any gateway", async () => {
    const { fleet, near, far } = get();
    fleet.maxBytes = 400_000;
    const text = "x".repeat(10_000);
    const kept: string[] = [];
    for (let number = 0; number < 5; number++) kept.push(await record(near, "other", text));
    for (let number = 0; number < 60; number++) {
      await record(number % 2 === 0 ? near : far, "greedy", text);
    }
    for (let number = 0; number < 3; number++) kept.push(await record(far, "other", text));
    const { total } = await readBudget(fleet);
    assert.ok(total > 350_000 && total <= 400_000, `${total} bytes`);
    for (const id of kept) assert.equal((await near.store.find(id))?.state, "complete");
  });

  it("returns the share of recordings whose gateway died", async () => {
    const { fleet, near, far } = get();
    fleet.maxBytes = 200_000;
    await write(await beginOf(near, "greedy"), "x".repeat(150_000));
    assert.ok((await readBudget(fleet)).running > 150_000);
    fleet.freeze(near.store);
    await fleet.pass(fleet.leaseMs);
    const refused = await beginOf(far, "greedy");
    await write(refused, "x".repeat(50_000));
    await fleet.pass(1000);
    await assert.rejects(refused.append(entryOf(ENTRY_KIND.bytes, 50_000, "x")), RecordingsFull);
    await refused.discard();
    await fleet.pass(KEEP_MS);
    const held = await beginOf(far, "greedy");
    await held.end(endOf(await write(held, "x".repeat(150_000))), "complete");
    assert.equal((await readBudget(fleet)).running, 0);
  });

  it("counts recordings that another gateway has ended for as long as they are stored", async () => {
    const { fleet, near, far } = get();
    const held = await beginOf(near, "one");
    const length = await write(held, "x".repeat(10_000));
    const { shares } = await readBudget(fleet);
    const goOn = fleet.freeze(near.store);
    await fleet.pass(fleet.leaseMs);
    const taken = await far.store.takeOver(held.id, new NotedHolder()) ??
      assert.fail("it is taken over");
    await taken.end(endOf(length, taken.epoch), "broken");
    goOn();
    await assert.rejects(held.append(entryOf(ENTRY_KIND.bytes, length, "x")), RecordingLost);
    await held.discard();
    assert.deepEqual(await readBudget(fleet), { total: Number(shares.one), shares, running: 0 });
    await fleet.pass(KEEP_MS);
    await beginOf(far, "two");
    assert.deepEqual((await readBudget(fleet)).shares, { two: "5120" });
  });

  it("restores counts that a server has lost, and counts nothing that never began", async () => {
    const { fleet, near } = get();
    const held = await beginOf(near, "one");
    await write(held, "x".repeat(10_000));
    const { shares } = await readBudget(fleet);
    await raw.del(...await raw.keys("sallyport:{sallyport:recordings}:*"));
    await fleet.pass(fleet.leaseMs / 4);
    assert.deepEqual((await readBudget(fleet)).shares, shares);
    const name = freshName("key");
    const claim = {
      ...claimOf(name, KEEP_MS),
      facts: { ...claimOf(name, KEEP_MS).facts, keyId: "two" },
    };
    await near.store.claim(claim, new NotedHolder());
    const found = await near.store.claim(
      { ...claimOf(name, KEEP_MS), facts: claim.facts },
      new NotedHolder(),
    );
    assert.ok("found" in found);
    assert.equal((await readBudget(fleet)).shares.two, "5120");
  });

  it("counts exactly, for all ends of recordings, and nothing once all are gone", async () => {
    const { fleet, near, far } = get();
    fleet.maxBytes = 100_000;
    let running: HeldRecording[] = [];
    for (let number = 0; number < 300; number++) {
      try {
        const held = await beginOf(number % 2 === 0 ? near : far, `key-${number % 7}`);
        running.push(held);
        const length = await write(held, "x".repeat(number * 37 % 9000));
        if (number % 3 === 0) {
          await held.end(endOf(length), number % 2 === 0 ? "complete" : "broken");
        } else if (number % 3 === 1) await held.discard();
        if (number % 3 < 2) running.pop();
      } catch (error) {
        assert.ok(error instanceof RecordingsFull, String(error));
        for (const held of running) await far.store.delete(held.id);
        running = [];
      }
      if (number % 20 === 0) await readBudget(fleet);
    }
    for (const held of running) await held.discard();
    await fleet.pass(KEEP_MS + fleet.tombstoneMs + 2 * fleet.leaseMs);
    assert.equal(await raw.dbsize(), 0);
  });
}
