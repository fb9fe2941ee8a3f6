/** Runs in Redis and in memory: the same calls at random have the same effects in both. */
// runtimes: once
import assert from "node:assert/strict";
import { afterAll, beforeAll } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import { MemoryRuns } from "../../src/runs/memory_runs.ts";
import { RedisRuns } from "../../src/runs/redis/runs.ts";
import type { RunCall, RunLease, RunRegistry, RunStatus } from "../../src/runs/run_registry.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { it } from "../support/cases.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";

const GAMES = 12;
const STEPS = 60;
/** Number of different runs of a key. */
const RUNS = 8;
const IDLE_MS = 110_000;
// The server's clock cannot be set. Instead its scripts add the time that the test has let pass.
const PASSED = "test:passed";
const TIME = "local now = time[1] * 1000";

/** A connection whose scripts have a clock that the test can set. */
class TimedClient extends RedisClient {
  override script(name: string, lua: string): ReturnType<RedisClient["script"]> {
    const passed = `${TIME} + tonumber(redis.call('GET', '${PASSED}') or 0)`;
    return super.script(name, lua.replace(TIME, passed));
  }
}

/** Returns whole numbers from 0 to below a bound. */
function createRandom(seed: number): (bound: number) => number {
  let state = seed;
  return (bound) => {
    state = (state * 1_103_515_245 + 12_345) & 0x7fffffff;
    return (state >> 8) % bound;
  };
}

/** Makes a call: mostly below the run with the next number, so that the chains are long. */
function makeCall(keyId: string, random: (bound: number) => number): RunCall {
  const isIn = (bound: number) => random(bound) === 0;
  const at = random(RUNS);
  const limits = {
    budget: isIn(15) ? 50 + random(300) : undefined,
    calls: isIn(20) ? 5 + random(30) : undefined,
  };
  const parent = isIn(6) ? undefined : `r${at + 1}`;
  const isFree = isIn(8);
  return {
    keyId,
    run: { id: `r${at}`, parent, limits },
    reservation: {
      spend: isFree ? 0 : random(15),
      isFree,
      isStrict: isIn(4),
      unpriced: isIn(15) ? "model_not_priced" : undefined,
    },
    bounds: { idleMs: IDLE_MS, maxPerKey: 100 },
    defaults: isIn(3) ? { calls: 60, budget: 900 } : {},
    body: isIn(3)
      ? { digest: `b${random(2)}`, most: isIn(2) ? 2 : undefined, isRetry: isIn(4) }
      : undefined,
  };
}

/** Admits a call. @returns The outcome for its caller, and its lease */
async function admit(runs: RunRegistry, call: RunCall): Promise<[string, RunLease | undefined]> {
  try {
    const lease = await runs.admit(call, () => {});
    return [`admitted ${lease.repeats}`, lease];
  } catch (error) {
    if (!GatewayError.is(error)) throw error;
    return [`${error.code} ${error.message}`, undefined];
  }
}

/** The listed runs in one order. Times differ by the time between two calls. */
const toComparable = (listed: readonly RunStatus[]) =>
  listed
    .map(({ open: _, openedAt: __, usedAt: ___, ...rest }) => JSON.parse(JSON.stringify(rest)))
    .toSorted((one, other) => one.id < other.id ? -1 : 1);

withRedis.describe("runs in Redis and in memory", () => {
  let server: RedisServer;
  let raw: Redis;
  let client: RedisClient;
  let redis: RedisRuns;
  beforeAll(async () => {
    server = await startRedis();
    raw = new Redis(server.url);
    client = new TimedClient({ url: server.url, timeoutMs: 5000 }, systemClock, () => {});
    await client.ready();
    redis = new RedisRuns(client, systemClock, { idleMs: IDLE_MS });
  });
  afterAll(async () => {
    redis.close();
    client.close();
    raw.disconnect();
    await server.stop();
  });

  it("are the same after the same calls at random", async () => {
    let passed = 0;
    const pass = (ms: number) => raw.set(PASSED, passed += ms);
    for (let seed = 1; seed <= GAMES; seed++) {
      const random = createRandom(seed);
      const keyId = `agent-${seed}`;
      const memory = new MemoryRuns({ now: () => systemClock.now() + passed });
      const both = [memory, redis];
      const open: (RunLease | undefined)[][] = [];
      const release = (at: number, spend: number, isUndone = false) => {
        for (const lease of open.splice(at, 1).flat()) lease?.release(spend, isUndone);
      };
      for (let step = 0; step < STEPS; step++) {
        await pass(20); // no two uses of a run have the same time
        const kind = random(20);
        const id = `r${random(RUNS)}`;
        if (kind < 12) {
          const call = makeCall(keyId, random);
          const [one, other] = [await admit(memory, call), await admit(redis, call)];
          assert.equal(other[0], one[0], `game ${seed}, step ${step}: ${JSON.stringify(call)}`);
          if (one[1] !== undefined) open.push([one[1], other[1]]);
        } else if (kind < 16 && open.length > 0) {
          const isUndone = random(5) === 0;
          release(random(open.length), isUndone ? 0 : random(20), isUndone);
        } else if (kind === 16 && random(5) === 0) {
          assert.equal(await redis.stop(keyId, id), await memory.stop(keyId, id));
        } else if (kind === 17) {
          const change = random(20) - 10;
          for (const runs of both) runs.correct({ keyId, id, change });
        } else if (kind === 18 && random(3) === 0) {
          while (open.length > 0) release(0, 3); // open calls renew their runs
          await redis.list(keyId, 1);
          await pass(25_000 * (1 + random(4)));
        }
        const [inMemory, inRedis] = [await memory.list(keyId, 1000), await redis.list(keyId, 1000)];
        const place = `game ${seed}, step ${step}`;
        assert.deepEqual(toComparable(inRedis), toComparable(inMemory), place);
      }
      while (open.length > 0) release(0, 0);
    }
  });
});
