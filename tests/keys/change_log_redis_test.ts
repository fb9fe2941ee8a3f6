/** Changes in Redis: the suite of all logs, on a single server and on a Cluster. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, it } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { systemClock } from "../../src/exchange/clock.ts";
import { RedisChangeLog } from "../../src/keys/redis/change_log.ts";
import { toKeyNames } from "../../src/keys/redis/key_scripts.ts";
import { RedisClient, type RedisTarget } from "../../src/storage/redis_client.ts";
import { patientClock } from "../support/patient_clock.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { type RedisCluster, startCluster } from "../support/redis_fleets.ts";
import { startLink } from "../support/redis_link.ts";
import { type ChangePlace, describeChangeLog, makeChange } from "./change_log_suite.ts";

/** Opens logs over one empty Redis. */
function makePlace(target: string | RedisTarget): ChangePlace {
  const clients: RedisClient[] = [];
  const connect = async () => {
    const client = new RedisClient(target, patientClock, () => {});
    clients.push(client);
    await client.ready();
    return client;
  };
  return {
    open: async () => new RedisChangeLog(await connect()),
    write: async (lines) => {
      const client = await connect();
      const { changes } = toKeyNames(client.isCluster);
      await client.ask((redis) => redis.lpush(changes, ...lines), String);
    },
    close: async () => {
      for (const client of clients) await client.close();
    },
  };
}

withRedis.describe("one Redis", () => {
  let server: RedisServer | undefined;
  beforeAll(async () => void (server = await startRedis()));
  afterAll(() => server?.stop());
  describeChangeLog("in Redis", async () => {
    const { url } = server ?? assert.fail("no Redis");
    const raw = new Redis(url);
    await raw.flushdb();
    raw.disconnect();
    return makePlace(url);
  });

  it("is read with the deadline of operators, which is longer than that of callers", async () => {
    const link = await startLink(server?.port ?? assert.fail("no Redis"));
    const client = new RedisClient({ url: link.url, timeoutMs: 20 }, systemClock, () => {});
    await client.ready();
    const log = new RedisChangeLog(client);
    try {
      await log.add(makeChange(1));
      link.rtt = 200;
      assert.deepEqual((await log.read())[0], makeChange(1));
    } finally {
      client.close();
      await link.close();
    }
  });
});

withRedis.describe("a Cluster, which refuses a command over two slots", () => {
  let cluster: RedisCluster | undefined;
  beforeAll(async () => void (cluster = await startCluster()));
  afterAll(() => cluster?.stop());
  describeChangeLog("in a Cluster", async () => {
    const { servers, urls } = cluster ?? assert.fail("no Cluster");
    for (const { raw } of servers) await raw.flushdb();
    return makePlace({ cluster: urls, timeoutMs: 1000 });
  });
});
