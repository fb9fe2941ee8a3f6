/** Teams in Redis: the suite of all stores, on a single server and on a Cluster. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { TeamDirectory } from "../../src/keys/team_directory.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { RedisTeamStore } from "../../src/keys/redis/team_store.ts";
import { RedisClient, type RedisTarget } from "../../src/storage/redis_client.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { type RedisCluster, startCluster } from "../support/redis_fleets.ts";
import { startLink } from "../support/redis_link.ts";
import { describeTeamStore, type TeamPlace } from "./team_store_suite.ts";

/** Opens stores over one empty Redis. */
function makePlace(target: string | RedisTarget): TeamPlace {
  const clients: RedisClient[] = [];
  const connect = async () => {
    const client = new RedisClient(target, patientClock, () => {});
    clients.push(client);
    await client.ready();
    return client;
  };
  return {
    open: async () => new RedisTeamStore(await connect(), { generation: () => undefined }),
    close: async () => {
      for (const client of clients) await client.close();
    },
  };
}

withRedis.describe("one Redis for all of these", () => {
  let server: RedisServer | undefined;
  beforeAll(async () => void (server = await startRedis()));
  afterAll(() => server?.stop());
  const url = () => server?.url ?? assert.fail("no Redis");

  describeTeamStore("in Redis", async () => {
    const raw = new Redis(url());
    await raw.flushdb();
    raw.disconnect();
    return makePlace(url());
  });

  it("is read for operators with their deadline, and for callers with the deadline of a call", async () => {
    const link = await startLink(server?.port ?? assert.fail("no Redis"));
    const client = new RedisClient({ url: link.url, timeoutMs: 20 }, systemClock, () => {});
    await client.ready();
    try {
      link.rtt = 200;
      const store = new RedisTeamStore(client, { generation: () => undefined });
      assert.equal((await store.read(true)).isComplete, true);
      await assert.rejects(store.read());
    } finally {
      client.close();
      await link.close();
    }
  });

  it("keeps known teams in effect after Redis has lost its data, and calls no other team unknown until that is confirmed", async () => {
    const generations = "sallyport:generations";
    const client = new RedisClient(url(), patientClock, () => {});
    await client.ready();
    await client.ask((redis) => redis.hset(generations, "one", "here"), Number);
    const open = () =>
      new TeamDirectory({}, new RedisTeamStore(client, { generation: () => "one" }));
    const [teams, restarted] = [open(), open()];
    const policy = { limits: { concurrency: 2 } };
    await teams.change("search", () => policy);
    await client.ask((redis) => redis.flushdb(), String);
    const assertUnknown = async (directory: TeamDirectory, name: string) =>
      await assert.rejects(async () => await directory.find(name), {
        code: "key_store_unavailable",
      });
    await assertUnknown(teams, "ads");
    await open().change("new", () => policy);
    assert.deepEqual(await teams.find("new"), policy);
    assert.deepEqual(Object.keys(await teams.load()).toSorted(), ["new", "search"]);
    assert.deepEqual(await teams.find("search"), policy, "it was known before");
    await open().change("deleted", () => policy);
    assert.deepEqual(await teams.find("deleted"), policy);
    await open().change("deleted", () => undefined);
    assert.deepEqual(Object.keys(await teams.load()).toSorted(), ["new", "search"]);
    assert.deepEqual(await restarted.find("new"), policy);
    await assertUnknown(restarted, "search");
    await client.ask((redis) => redis.hset(generations, "one", "here"), Number);
    for (const directory of [teams, restarted]) {
      await directory.load();
      assert.equal(await directory.find("search"), undefined, "it is not there, as confirmed");
      assert.deepEqual(await directory.find("new"), policy);
    }
    await client.close();
  });
});

withRedis.describe("a Cluster, which refuses a command over two slots", () => {
  let cluster: RedisCluster | undefined;
  beforeAll(async () => void (cluster = await startCluster()));
  afterAll(() => cluster?.stop());

  describeTeamStore("in a Cluster", async () => {
    const { servers, urls } = cluster ?? assert.fail("no Cluster");
    for (const { raw } of servers) await raw.flushdb();
    return makePlace({ cluster: urls, timeoutMs: 1000 });
  });
});
