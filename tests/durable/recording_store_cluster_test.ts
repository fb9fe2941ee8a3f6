/** Recordings in a Redis Cluster, and behind Sentinels during a failover. */
// runtimes: once
// long: a Cluster starts, and nodes of it fail
import assert from "node:assert/strict";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { ENTRY_KIND, RecordingLost } from "../../src/durable/recording_store.ts";
import { withRedis } from "../support/redis.ts";
import {
  moveSlot,
  type RedisCluster,
  startCluster,
  startSentinelFleet,
} from "../support/redis_fleets.ts";
import { closeAfterEach } from "../support/scenes.ts";
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
} from "./recording_store_suite.ts";
import { RedisRecordingsFleet } from "./recordings_redis.ts";

const KEEP_MS = 60_000;
/** The longest time for a fleet to recover. Milliseconds. */
const RECOVERY_MS = 20_000;

withRedis.describe("recordings in a Cluster", () => {
  let cluster: RedisCluster;
  const rawOf = () => cluster.servers.map(({ raw }) => raw);
  const start = () =>
    new RedisRecordingsFleet({ cluster: cluster.urls.slice(0, 1), timeoutMs: 50 }, rawOf());
  beforeAll(async () => void (cluster = await startCluster()));
  afterAll(() => cluster.stop());

  describeRecordings("in a Cluster", () => Promise.resolve(start()), { hasGateways: true });

  it("follows a recording whose slot moves", async () => {
    const fleet = start();
    const [near, far] = [await fleet.join(), await fleet.join()];
    const claimed = await near.store.claim(claimOf(freshName("key"), KEEP_MS), new NotedHolder());
    const held = "held" in claimed ? claimed.held : assert.fail();
    await held.append(headOf());
    const slot = Number(await rawOf()[0]?.cluster("KEYSLOT", `{${held.id.slice(0, 6)}}`));
    const [first, second, third] = cluster.servers;
    const [from, to] = slot < 5461
      ? [first, second]
      : slot < 10_923
      ? [second, third]
      : [third, first];
    const read = far.store.read(held.id, { offset: 0, waitMs: 60_000 });
    await far.store.find(held.id);
    await moveSlot(slot, from ?? assert.fail(), to ?? assert.fail(), cluster.servers);
    const entry = entryOf(ENTRY_KIND.bytes, 0, "one");
    await held.append(entry);
    assert.deepEqual((await read)?.entries, [entry]);
    await held.end(endOf(3), "complete");
    assert.deepEqual(await readAll(far.store, held.id), { text: "one", isWhole: true });
    await fleet.close();
    await moveSlot(slot, to ?? assert.fail(), from ?? assert.fail(), cluster.servers);
  });
});

withRedis.describe("recordings behind Sentinels", () => {
  const { after } = closeAfterEach();

  for (const kind of ["planned", "unplanned"] as const) {
    it(`survive a failover that is ${kind}, or are lost: an answer that looks complete is complete`, async () => {
      const sentinels = await startSentinelFleet();
      after(() => sentinels.stop());
      const [primary, replica] = sentinels.servers;
      const target = { sentinel: { name: sentinels.name, nodes: sentinels.nodes }, timeoutMs: 50 };
      const fleet = new RedisRecordingsFleet(target, [primary.raw]);
      const [near, far] = [await fleet.join(), await fleet.join()];
      after(async () => {
        for (const { store, client } of [near, far]) {
          await store.close();
          client.close();
        }
      });
      const claimed = await near.store.claim(
        claimOf(freshName("key"), 10 * KEEP_MS),
        new NotedHolder(),
      );
      const held = "held" in claimed ? claimed.held : assert.fail();
      await held.append(headOf());
      let [written, sent, isLost] = ["", "", false];
      /** Appends a text, and retries until it succeeds. */
      const append = async (text: string) => {
        const deadline = performance.now() + RECOVERY_MS;
        sent = written + text;
        for (;;) {
          try {
            await held.append(entryOf(ENTRY_KIND.bytes, written.length, text));
            written += text;
            return;
          } catch (error) {
            isLost ||= error instanceof RecordingLost;
            if (isLost || performance.now() > deadline) return;
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
        }
      };
      for (let number = 0; number < 20; number++) await append(`${number} `);
      const failOver = kind === "planned" ? sentinels.failOver() : primary.pause();
      for (let number = 20; number < 300 && !isLost; number++) await append(`${number} `);
      await failOver;
      if (kind === "unplanned") assert.equal((await replica.raw.role())[0], "master");
      if (!isLost) await held.end(endOf(written.length), "complete").catch(() => isLost = true);
      // The connection of the reader was not used since, and has to find the new primary first.
      const isFound = () => far.store.find(held.id).then(() => true, () => false);
      await until(isFound, "the reader finds the new primary", RECOVERY_MS);
      const { text, isWhole } = await readAll(far.store, held.id);
      assert.ok(sent.startsWith(text), "no other bytes than those that were written");
      assert.equal(isWhole, !isLost);
      if (isWhole) assert.equal(text, written);
      primary.resume();
    });
  }
});
