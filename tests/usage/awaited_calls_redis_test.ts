/** Calls whose usage is stated later, in a Redis that is away for some time. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, it } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { RedisAwaitedCalls } from "../../src/usage/redis/awaited_calls.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** Opens the calls of a Redis that is away. */
async function openAway() {
  const server: RedisServer = await startRedis();
  closing.push(() => server.stop());
  const client = new RedisClient(server.url, systemClock, () => {});
  closing.push(() => client.close());
  await client.ready();
  const calls = new RedisAwaitedCalls<{ readonly of: string }>(client);
  await server.kill();
  await until(async () => {
    await client.run((redis) => redis.ping(), () => {}).catch(() => {});
    return !client.health.isUp;
  }, "the outage is known");
  return { calls, server };
}

const named = (laterId: string) => ({ provider: "a", laterId });

withRedis.describe("awaited calls while Redis is away", () => {
  it("let repeated reads of one answer share one wait", async () => {
    const { calls, server } = await openAway();
    const first = calls.take(named("one"), "reader");
    const repeated = Array.from({ length: 100 }, () => calls.take(named("one"), "reader"));
    // Redis is still away: these do not wait for it.
    for (const call of await Promise.all(repeated)) assert.equal(call, undefined);
    await server.restart();
    assert.equal(await first, undefined);
  });

  it("let no gateway key use up the waits of the others", async () => {
    const { calls, server } = await openAway();
    const flood = Array.from({ length: 10_001 }, (_, index) => {
      return calls.take(named(`flood-${index}`), "flooder");
    });
    // More than half of them do not wait.
    let returned = 0;
    for (const call of flood) void call.then(() => returned++);
    await until(() => returned > 0, "the share is used up");
    calls.put(named("resp_1"), { of: "other" }, "other");
    await server.restart();
    await Promise.all(flood);
    await until(
      async () => (await calls.take(named("resp_1"), "other"))?.of === "other",
      "the call of another key is stored",
    );
  });
});
