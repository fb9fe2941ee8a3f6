/**
 * `npm run regions`: measures one limit that the gateways of three regions share through the Redis
 * of the home region. The limiters and the Redis are real. Callers want twice the limit, a third of
 * that in each region.
 *
 * Writes the table of docs/reliability.md. Ends with 1 if more calls were admitted in a window than
 * the bound on that page.
 */
import { writeFileSync } from "node:fs";
import process from "node:process";
import { systemClock } from "../src/exchange/clock.ts";
import { GatewayError } from "../src/errors/gateway_error.ts";
import { type LimitSubject, NO_AMOUNTS, NO_RESERVATION } from "../src/limits/limiter.ts";
import { RedisLimiter } from "../src/limits/redis/limiter.ts";
import { RedisClient } from "../src/storage/redis_client.ts";
import { startLink } from "../tests/support/redis_link.ts";
import { startRedis } from "../tests/support/redis.ts";
import { writePart } from "./docs/parts.ts";
import { type RegionRow, REGIONS, REGIONS_RESULTS } from "./docs/regions.ts";

/** Round trip to the home region. Milliseconds. */
const FAR_MS = 100;
/** Deadline of a call to Redis: several round trips. Milliseconds. */
const TIMEOUT_MS = 400;
/** Delay of answers while a region is cut off. Milliseconds. */
const CUT_MS = 600_000;
const WINDOW_MS = 10_000;
/** Time that an admitted call lasts. Milliseconds. */
const CALL_MS = 500;
/** Calls that are wanted, as a multiple of the limit. */
const WANTED = 2;
const REGION_COUNT = 3;
/** Excess in a window in which an outage begins or ends: three calls of the smallest limit. */
const MOST_AT_THE_EDGE = 0.1;
const LIMITS = [30, 300, 3000, 30_000];

/** One gateway in one region. */
interface Region {
  readonly limiter: RedisLimiter;
  /** Cuts it off from Redis, or connects it again. */
  cut(isCut: boolean): void;
  close(): Promise<void>;
}

/** What happens while the callers call. */
interface Scene {
  readonly name: string;
  readonly windows: number;
  /** Round trip of the second and third region. Milliseconds. */
  readonly rtt: number;
  /** Number of regions that are cut off from Redis, the far ones first. */
  readonly cut: number;
  /** Begin and end of that time, in windows. */
  readonly outage: readonly [number, number];
}

/** From the middle of a window to the middle of the next but one. */
const OUTAGE = [0.5, 2.5] as const;

const SCENES: readonly Scene[] = [
  // The run ends before the window does, so that all calls are in one.
  { name: "one region", windows: 0.9, rtt: 0, cut: 0, outage: OUTAGE },
  { name: "two regions are 100 ms away", windows: 0.9, rtt: FAR_MS, cut: 0, outage: OUTAGE },
  { name: "two regions are cut off", windows: 3, rtt: FAR_MS, cut: 2, outage: OUTAGE },
  { name: "Redis is away for all", windows: 3, rtt: FAR_MS, cut: 3, outage: OUTAGE },
];

async function startRegion(port: number, rtt: number): Promise<Region> {
  const link = await startLink(port);
  link.rtt = rtt;
  const client = new RedisClient({ url: link.url, timeoutMs: TIMEOUT_MS }, systemClock, () => {});
  await client.ready();
  const limiter = new RedisLimiter(client, systemClock);
  await limiter.start();
  return {
    limiter,
    cut: (isCut) => void (link.rtt = isCut ? CUT_MS : rtt),
    async close() {
      await limiter.close();
      client.close();
      await link.close();
    },
  };
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Results of the calls of all regions. */
interface Tally {
  /** Admitted calls by window. */
  readonly admitted: number[];
  /** Times of decisions in far regions. Milliseconds. */
  readonly waits: number[];
}

/** Makes one call. @returns Whether it was admitted */
async function call(limiter: RedisLimiter, subject: LimitSubject): Promise<boolean> {
  try {
    const lease = await limiter.acquire([subject], NO_RESERVATION);
    setTimeout(() => lease.release(NO_AMOUNTS), CALL_MS);
    return true;
  } catch (error) {
    if (GatewayError.is(error)) return false;
    throw error;
  }
}

/** Makes the calls of one region evenly over the run. */
async function callFrom(
  { limiter }: Region,
  isFar: boolean,
  run: { subject: LimitSubject; limit: number; windows: number; startedAt: number; tally: Tally },
): Promise<void> {
  const { subject, limit, windows, startedAt, tally } = run;
  const count = Math.round(windows * limit * WANTED / 3);
  const durationMs = windows * WINDOW_MS;
  const calls: Promise<void>[] = [];
  for (let index = 0; index < count; index++) {
    const early = startedAt + index * durationMs / count - performance.now();
    if (early > 1) await pause(early);
    const askedAt = performance.now();
    const window = Math.floor((askedAt - startedAt) / WINDOW_MS);
    calls.push(
      call(limiter, subject).then((isAdmitted) => {
        if (isFar) tally.waits.push(performance.now() - askedAt);
        if (isAdmitted) tally.admitted[window] = (tally.admitted[window] ?? 0) + 1;
      }),
    );
  }
  await Promise.all(calls);
}

/** Cuts regions off, and connects them again, at the times of a scene. */
async function cutOff({ cut, outage }: Scene, regions: Region[], startedAt: number): Promise<void> {
  if (cut === 0) return;
  for (const [index, windows] of outage.entries()) {
    await pause(startedAt + windows * WINDOW_MS - performance.now());
    for (const region of regions.slice(-cut)) region.cut(index === 0);
  }
}

async function runScene(scene: Scene, limit: number): Promise<RegionRow> {
  const redis = await startRedis();
  const home = await startRegion(redis.port, 0);
  const far = [await startRegion(redis.port, scene.rtt), await startRegion(redis.port, scene.rtt)];
  const regions = [home, ...far];
  // Twice, so that each knows all others.
  for (const { limiter } of [...regions, ...regions]) await limiter.start();
  const tally: Tally = { admitted: [], waits: [] };
  const subject = { name: "key:shared", limits: { requests: { limit, windowMs: WINDOW_MS } } };
  const startedAt = performance.now();
  const run = { subject, limit, windows: scene.windows, startedAt, tally };
  await Promise.all([
    cutOff(scene, regions, startedAt),
    ...regions.map((region) => callFrom(region, region !== home, run)),
  ]);
  const localDecisions = regions.reduce((sum, { limiter }) => sum + limiter.localDecisions, 0);
  await pause(CALL_MS);
  for (const region of regions) await region.close();
  await redis.stop();
  const waits = tally.waits.sort((one, other) => one - other);
  const quantile = (share: number) => waits[Math.floor(share * (waits.length - 1))] ?? 0;
  return {
    scene: scene.name,
    limit,
    admitted: tally.admitted.map((count) => count / limit),
    localDecisions,
    waitMs: { median: quantile(0.5), p99: quantile(0.99) },
  };
}

/**
 * Returns the most that a window can admit, in limits. Cut-off regions use their shares of the limit.
 * The regions that still reach Redis can use all of it, because Redis does not know these shares.
 */
function mostOf({ cut }: Scene): number {
  const inWholeOutage = cut === REGION_COUNT ? 1 : 1 + cut / REGION_COUNT;
  return Math.max(inWholeOutage, cut > 0 ? 1 + MOST_AT_THE_EDGE : 1);
}

const rows: RegionRow[] = [];
for (const scene of SCENES) {
  for (const limit of LIMITS) {
    const row = await runScene(scene, limit);
    const isWithin = row.admitted.every((share) => share <= mostOf(scene));
    if (!isWithin) process.exitCode = 1;
    console.log(`${isWithin ? "ok    " : "FAILED"} ${JSON.stringify(row)}`);
    rows.push(row);
  }
}
writeFileSync(REGIONS_RESULTS, `${JSON.stringify(rows, undefined, 2)}\n`);
writePart(REGIONS);
