/** Bounds of usage by attribution, in memory and in Redis. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { DEFAULT_RETENTION } from "../../src/config/usage.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { valueOfDimension } from "../../src/usage/attributed.ts";
import { HOUR_MS, MAX_MODELS, OTHER_NAME, type UsageStore } from "../../src/usage/counts.ts";
import { UsageMeter } from "../../src/usage/meter.ts";
import { RedisUsage } from "../../src/usage/redis/usage_store.ts";
import { MemoryUsage } from "../../src/usage/usage_memory.ts";
import { patientClock } from "../support/patient_clock.ts";
import { startRedis, withRedis } from "../support/redis.ts";
import { ALL, exchange, rest, StillClock } from "../support/usage.ts";

/** An hour that Redis still keeps. Redis has its own clock. */
const HOUR = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
const LISTED: ReadonlySet<string> = new Set(["gpt-4o"]);
const KEEP = { ...DEFAULT_RETENTION, maxAttributed: 60 };

/** Counts more users and models than have their own rows. */
async function countMany(store: UsageStore): Promise<void> {
  const clock = new StillClock();
  const dimensions = new Set(["user"] as const);
  const meter = new UsageMeter({ store, clock, rest, listed: LISTED, dimensions, keep: KEEP });
  const use = (more = {}) => meter.settled(exchange({ startedAt: HOUR, ...more }));
  /** The number of calls by user and model. */
  const read = async (step: "hour" | "day"): Promise<Record<string, number>> => {
    const found: Record<string, number> = {};
    const from = HOUR - HOUR % (24 * HOUR_MS);
    for await (const rows of meter.read({ ...ALL, step, from, to: HOUR + HOUR_MS })) {
      for (const { attribution, model, counts } of rows) {
        const name = `${valueOfDimension(attribution, "user")} ${model}`;
        found[name] = (found[name] ?? 0) + counts.requests;
      }
    }
    return found;
  };
  // More users than models that have their own rows, all with the same unlisted model.
  for (let user = 0; user < MAX_MODELS + 5; user++) {
    use({ model: "own-model", attribution: { user: `u${user}` } });
  }
  use({ model: "another-model" });
  for (let user = 0; user < 10; user++) use({ attribution: { user: `late${user}` } });
  for (let model = 0; model < MAX_MODELS + 5; model++) {
    use({ model: `m${model}`, attribution: { user: "last" } });
  }
  for (const step of ["hour", "day"] as const) {
    const found = await read(step);
    assert.equal(found["u54 own-model"], 1, "many users are not many models");
    assert.equal(found["(none) another-model"], 1);
    assert.equal(found["late4 gpt-4o"], 1, "the last row within the bound");
    assert.equal(found["(other) gpt-4o"], 5, "further users have one row");
    assert.equal(found["(other) m0"], 1);
    assert.equal(
      found[`${OTHER_NAME} ${OTHER_NAME}`],
      6,
      "models of further users are bounded as well",
    );
    assert.equal(Object.keys(found).length, 60 + 1 + 1 + MAX_MODELS - 1 + 1);
  }
  use({ attribution: { user: "late0" } });
  use({ attribution: { user: "u0" }, model: "own-model" });
  const found = await read("hour");
  assert.deepEqual([found["late0 gpt-4o"], found["u0 own-model"]], [2, 2], "rows stay open");
}

describe("usage by attribution has a bounded number of rows for each key", () => {
  it("in memory", async () => {
    await countMany(new MemoryUsage(LISTED, () => HOUR, KEEP));
  });

  withRedis.it("in Redis", async () => {
    const redis = await startRedis();
    const client = new RedisClient(redis.url, patientClock, () => {});
    try {
      await client.ready();
      await countMany(new RedisUsage(client, LISTED, KEEP));
    } finally {
      client.close();
      await redis.stop();
    }
  });
});
