/**
 * Measures the cost of limits in Redis: CPU of the server's main thread, and of this process, for
 * each call of a limiter.
 *
 * Usage: `node scripts/bench/redis_cost.ts` (also with Bun or Deno).
 */
import process from "node:process";
import { setImmediate } from "node:timers";
import { Redis } from "ioredis";
import { systemClock } from "../../src/exchange/clock.ts";
import type { LimitSubject, Reservation } from "../../src/limits/limiter.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";
import { startRedis } from "../../tests/support/redis.ts";

const CALLS = 20_000;
const CALLERS = 32;
const KEYS = 200;
const MINUTE = 60_000;
const requests = { limit: 1e9, windowMs: MINUTE };
const tokens = { limit: 1e12, windowMs: MINUTE };
const reservation: Reservation = {
  expected: { tokens: 500, spend: 0 },
  most: { tokens: 500, spend: 0 },
};

// As large as a limit can be without being divided into blocks. No key reaches it in a run; the
// provider is observed.
const smallRequests = { limit: 999, windowMs: 10 * MINUTE };
const smallTokens = { limit: 999_999, windowMs: 10 * MINUTE };

/** The subjects of one call, by the call's number. */
type Subjects = (number: number) => LimitSubject[];

function keysWith(limits: LimitSubject["limits"], ...others: LimitSubject[]): Subjects {
  const keys = Array.from(
    { length: KEYS },
    () => ({ name: `key:${crypto.randomUUID()}`, limits: { ...limits } }),
  );
  return (number) =>
    [keys[number % KEYS] ?? keys[0], ...others].filter((subject) => subject !== undefined);
}

const providerWith = (name: string, limits: LimitSubject["limits"]): LimitSubject => ({
  name: `provider:${name}`,
  limits,
});

const server = await startRedis();
const raw = new Redis(server.url);
const client = new RedisClient(server.url, systemClock, console.error);
await client.ready();
const limiters = {
  redis: new RedisLimiter(client, systemClock),
  memory: new MemoryLimiter(systemClock),
};
await limiters.redis.start();

async function serverMicros(): Promise<number> {
  const info = await raw.info("cpu");
  return ["user", "sys"].map((kind) =>
    Number(new RegExp(`used_cpu_${kind}_main_thread:([\\d.]+)`).exec(info)?.[1])
  )
    .reduce((sum, seconds) => sum + seconds * 1e6, 0);
}

async function run(
  limiter: RedisLimiter | MemoryLimiter,
  subjects: Subjects,
  calls: number,
): Promise<void> {
  let number = 0;
  await Promise.all(Array.from({ length: CALLERS }, async () => {
    while (number++ < calls) {
      const lease = await limiter.acquire(subjects(number), reservation);
      await new Promise(setImmediate); // the call to the provider
      lease.release({ tokens: 400, spend: 0 });
    }
  }));
}

const cases: Record<string, Subjects> = {
  "requests": keysWith({ requests }),
  "requests, tokens": keysWith({ requests, tokens }),
  "requests, tokens; provider: requests": keysWith(
    { requests, tokens },
    providerWith("a", { requests: { ...requests, limit: 1e7 } }),
  ),
  "requests, tokens; provider: tokens": keysWith(
    { requests, tokens },
    providerWith("b", { tokens }),
  ),
  "undivided requests": keysWith({ requests: smallRequests }),
  "undivided requests, tokens; provider: requests": keysWith(
    { requests: smallRequests, tokens: smallTokens },
    providerWith("d", { requests: smallRequests, mode: "observe" }),
  ),
  "undivided requests, tokens; provider: tokens": keysWith(
    { requests: smallRequests, tokens: smallTokens },
    providerWith("e", { tokens: smallTokens, mode: "observe" }),
  ),
  "concurrency": keysWith({ concurrency: 1e6 }),
  "tokens, budget, concurrency; provider: requests": keysWith(
    { tokens, budget: { limit: 1e12, period: "month" }, concurrency: 1e6 },
    providerWith("c", { requests: { ...requests, limit: 1e7 } }),
  ),
};
for (const [name, subjects] of Object.entries(cases)) {
  const line = [name.padEnd(50)];
  for (const [engine, limiter] of Object.entries(limiters)) {
    await run(limiter, subjects, 2000);
    const [before, used] = [await serverMicros(), process.cpuUsage()];
    await run(limiter, subjects, CALLS);
    await limiters.redis.status({ name: "key:nobody", limits: {} });
    const { user, system } = process.cpuUsage(used);
    if (engine === "redis") {
      line.push(`Redis ${((await serverMicros() - before) / CALLS).toFixed(1)} us`);
    }
    line.push(`gateway with ${engine} ${((user + system) / CALLS).toFixed(1)} us`);
  }
  console.log(line.join("  "));
}
console.log(`${limiters.redis.localDecisions} decisions without Redis`);
await limiters.redis.close();
client.close();
raw.disconnect();
await server.stop();
