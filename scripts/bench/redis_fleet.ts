/**
 * Simulates many gateways and keys on one Redis and on a Cluster of three: CPU of the primaries for
 * each decision, and the resulting decisions per second of one primary; the memory of a key; the
 * longest time that a command blocked Redis.
 *
 * Usage: `node scripts/bench/redis_fleet.ts [--gateways 100] [--keys 1000000]`; a million keys take
 * some minutes.
 */
import process from "node:process";
import { parseArgs } from "node:util";
import { Redis } from "ioredis";
import { systemClock } from "../../src/exchange/clock.ts";
import type { LimitSubject, Reservation } from "../../src/limits/limiter.ts";
import { RedisLimiter } from "../../src/limits/redis/limiter.ts";
import { RedisClient, type RedisTarget } from "../../src/storage/redis_client.ts";
import { startRedis } from "../../tests/support/redis.ts";
import { startCluster } from "../../tests/support/redis_fleets.ts";

const { values } = parseArgs({
  options: {
    gateways: { type: "string", default: "100" },
    keys: { type: "string", default: "1000000" },
  },
});
const [GATEWAYS, KEYS] = [Number(values.gateways), Number(values.keys)];
/** Calls that each gateway has open at once. */
const OPEN = 4;
/**
 * Window of every limit, in milliseconds. It is longer than a run, so that all keys still exist at
 * the end.
 */
const HOUR_MS = 3_600_000;
const USED = { tokens: 400, spend: 0 };
const RESERVATION: Reservation = {
  expected: { tokens: 500, spend: 0 },
  most: { tokens: 500, spend: 0 },
};
const requests = { limit: 600, windowMs: HOUR_MS };
const LIMITS = {
  "requests": { requests },
  "requests and tokens": { requests, tokens: { limit: 1e6, windowMs: HOUR_MS } },
} as const;

/** Reads a number of `INFO`, summed over all servers. */
async function sumOf(servers: readonly Redis[], section: string, name: string): Promise<number> {
  const infos = await Promise.all(servers.map((server) => server.info(section)));
  return infos.reduce(
    (sum, info) => sum + Number(new RegExp(`^${name}:([\\d.]+)`, "m").exec(info)?.[1] ?? NaN),
    0,
  );
}

async function cpuMicros(servers: readonly Redis[]): Promise<number> {
  const kinds = ["used_cpu_user_main_thread", "used_cpu_sys_main_thread"];
  const seconds = await Promise.all(kinds.map((kind) => sumOf(servers, "cpu", kind)));
  return seconds.reduce((sum, each) => sum + each * 1e6, 0);
}

async function simulate(
  place: string,
  target: RedisTarget,
  servers: readonly Redis[],
): Promise<void> {
  const clients = Array.from(
    { length: GATEWAYS },
    () => new RedisClient(target, systemClock, console.error),
  );
  const limiters = clients.map((client) => new RedisLimiter(client, systemClock));
  for (const client of clients) await client.ready();
  for (const limiter of limiters) await limiter.start();
  for (const [name, limits] of Object.entries(LIMITS)) {
    for (const server of servers) {
      await server.flushall();
      await server.config("SET", "slowlog-log-slower-than", "5000");
      await server.call("SLOWLOG", "RESET");
    }
    const [memory, cpu, since] = [
      await sumOf(servers, "memory", "used_memory"),
      await cpuMicros(servers),
      Date.now(),
    ];
    let number = 0;
    const call = async (limiter: RedisLimiter) => {
      while (number < KEYS) {
        const subject: LimitSubject = { name: `key:${name}-${number++}`, limits };
        (await limiter.acquire([subject], RESERVATION)).release(USED);
      }
    };
    await Promise.all(
      limiters.flatMap((limiter) => Array.from({ length: OPEN }, () => call(limiter))),
    );
    // All settlements have arrived before this.
    await limiters[0]?.status({ name: "key:nobody", limits: {} });
    const micros = (await cpuMicros(servers) - cpu) / KEYS;
    const bytes = (await sumOf(servers, "memory", "used_memory") - memory) / KEYS;
    const slow = await Promise.all(servers.map((server) => server.call("SLOWLOG", "LEN")));
    console.log(
      `${place}, ${name}: ${micros.toFixed(1)} us of Redis for each of ${KEYS} calls, ` +
        `${Math.round(1e6 / micros)} calls a second and primary, ${
          Math.round(bytes)
        } bytes a key, ` +
        `${slow.reduce((sum: number, each) => sum + Number(each), 0)} commands of over 5 ms, ` +
        `${Math.round((Date.now() - since) / 1000)} s`,
    );
  }
  console.log(
    `${place}: ${
      limiters.reduce((sum, { localDecisions }) => sum + localDecisions, 0)
    } decisions without Redis`,
  );
  for (const limiter of limiters) await limiter.close();
  for (const client of clients) client.close();
}

const server = await startRedis();
const raw = new Redis(server.url);
try {
  await simulate("one Redis", { url: server.url, timeoutMs: 1000 }, [raw]);
} finally {
  raw.disconnect();
  await server.stop();
}
const cluster = await startCluster();
try {
  await simulate(
    "a Cluster of three",
    { cluster: cluster.urls, timeoutMs: 1000 },
    cluster.servers.map(({ raw }) => raw),
  );
} finally {
  await cluster.stop();
}
process.exit(0); // remaining connections must not keep the process alive
