/** Runs in Redis: the suite of all registries, outages, and the keys that they use. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll, beforeEach } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { systemClock } from "../../src/exchange/clock.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { RedisRuns } from "../../src/runs/redis/runs.ts";
import type { RunCall } from "../../src/runs/run_registry.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { NOW } from "../../src/storage/redis_script.ts";
import { it } from "../support/cases.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { costing, describeRuns, IDLE_MS } from "./runs_suite.ts";

// The server's clock cannot be set. Instead its scripts add the time that tests have let pass.
const PASSED = "test:passed";
const TIME = "local now = time[1] * 1000";
const PASSED_TIME = `${TIME} + tonumber(redis.call('GET', '${PASSED}') or 0)`;
/** Renews the runs of open calls, as their gateways do while time passes. */
const RENEW = `${NOW.replace(TIME, PASSED_TIME)}
for _, key in ipairs(redis.call('KEYS', 'sallyport:{*}:runs:open')) do
  for _, name in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZADD', string.gsub(key, ':open$', ':used'), 'XX', now, string.match(name, ' (.+)$'))
  end
end`;

/** A connection whose scripts have a clock that tests can set. */
class TimedClient extends RedisClient {
  override script(name: string, lua: string): ReturnType<RedisClient["script"]> {
    return super.script(name, lua.replace(TIME, PASSED_TIME));
  }
}

let server: RedisServer;
let raw: Redis;
const open = async () => {
  server = await startRedis();
  raw = new Redis(server.url, { retryStrategy: () => 20 });
  raw.on("error", () => {});
};
const close = async () => {
  raw.disconnect();
  await server.stop();
};
async function join(Client = RedisClient, timeoutMs = 5000) {
  const client = new Client({ url: server.url, timeoutMs }, systemClock, () => {});
  await client.ready();
  const runs = new RedisRuns(client, systemClock, { idleMs: IDLE_MS });
  return {
    runs,
    close() {
      runs.close();
      client.close();
    },
  };
}

withRedis.describe("in Redis", () => {
  beforeAll(open);
  afterAll(close);
  describeRuns("in Redis", async () => {
    let passed = 0;
    await raw.del(PASSED);
    const [one, other] = [await join(TimedClient), await join(TimedClient)];
    return {
      runs: one.runs,
      others: other.runs,
      async pass(ms) {
        await raw.set(PASSED, passed += ms);
        await raw.eval(RENEW, 0);
      },
      close() {
        one.close();
        other.close();
      },
    };
  });
});

let made = 0;
withRedis.describe("runs in Redis", () => {
  let keyId: string;
  beforeAll(open);
  afterAll(close);
  beforeEach(() => {
    keyId = `agent-${++made}`;
  });
  const callOf = (id: string, parent?: string): RunCall => ({
    keyId,
    run: { id, parent, limits: {} },
    reservation: costing(5),
    bounds: { idleMs: 60_000, maxPerKey: 10 },
  });

  it("all data of a gateway key is in its slot, and expires", async () => {
    const one = await join();
    const lease = await one.runs.admit(callOf("a", "b"), () => {});
    const names = await raw.keys(`sallyport:*${keyId}*`);
    assert.deepEqual(names.toSorted(), [
      `sallyport:{key:${keyId}}:runs`,
      `sallyport:{key:${keyId}}:runs:open`,
      `sallyport:{key:${keyId}}:runs:used`,
    ]);
    for (const name of [...names, "sallyport:run-keys"]) {
      assert.ok(await raw.pttl(name) > 0, `${name} expires`);
    }
    lease.release(1, false);
    await until(
      async () => await raw.exists(`sallyport:{key:${keyId}}:runs:open`) === 0,
      "it ends",
    );
    one.close();
  });

  it("open calls of a gateway that died leave nothing while others go on", async () => {
    const one = await join();
    const openKey = `sallyport:{key:${keyId}}:runs:open`;
    const first = await one.runs.admit(callOf("a"), () => {});
    await raw.zadd(openKey, 1, "dead a");
    const second = await one.runs.admit(callOf("a"), () => {});
    assert.equal(await raw.zscore(openKey, "dead a"), null);
    assert.equal(await raw.zcard(openKey), 2);
    for (const lease of [first, second]) lease.release(0, false);
    one.close();
  });

  it("during an outage calls of runs are refused, and open calls are settled after it", async () => {
    const one = await join(RedisClient, 300);
    const isUnavailable = (error: unknown) =>
      GatewayError.is(error) && error.code === "runs_unavailable";
    const lease = await one.runs.admit(callOf("a"), () => {});
    server.pause();
    // The first of these is sent, and Redis admits it later. The gateway then undoes it.
    for (let calls = 0; calls < 2; calls++) {
      await assert.rejects(async () => await one.runs.admit(callOf("a"), () => {}), isUnavailable);
    }
    lease.release(2, false);
    one.runs.correct({ keyId, id: "a", change: 1 });
    server.resume();
    const isSettled = async () => {
      const [run] = await one.runs.list(keyId, 10);
      return run?.spent === 3 && run.reserved === 0 && run.called === 1 && run.open === 0;
    };
    await until(isSettled, "the open call is settled, and the refused one is undone");
    one.close();
  });

  it("a restarted Redis without its data begins with unknown runs", async () => {
    const one = await join();
    const lease = await one.runs.admit(callOf("a"), () => {});
    await server.restart();
    lease.release(2, false);
    const admitted = async () => {
      try {
        (await one.runs.admit(callOf("b"), () => {})).release(1, false);
        return true;
      } catch {
        return false;
      }
    };
    await until(admitted, "calls are admitted again");
    assert.deepEqual((await one.runs.list(keyId, 10)).map(({ id }) => id), ["b"]);
    one.close();
  });
});
