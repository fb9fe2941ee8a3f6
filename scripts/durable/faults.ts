/** Faults of gateways and of Redis under durable exchanges, and schedules of them. */
import { pause } from "../chaos/long_run.ts";
import type { Happening, Scene } from "./scene.ts";

/** A fault and its time, in milliseconds after the first call. */
export interface ScheduledFault {
  readonly name: string;
  readonly atMs: number;
  act(scene: Scene): Promise<void>;
}

/**
 * Time within which a gateway reconnects to Redis, and a lease that could not be renewed expires.
 * Milliseconds.
 */
const RECOVERY_MS = 10_000;
/** How long a gateway is absent. Milliseconds. */
const AWAY_MS = [200, 3000] as const;
/** How long Redis is frozen: shorter than a lease, or longer. Milliseconds. */
const SHORT_FREEZE_MS = [200, 4000] as const;
const LONG_FREEZE_MS = [9000, 12_000] as const;
/** Duration of a freeze after which Sentinels promote another server. Milliseconds. */
const SPLIT_MS = [1500, 5000] as const;

const between = ({ random }: Scene, [least, most]: readonly [number, number]) =>
  least + random.below(most - least);

/** Records an event of Redis, with the time that it needs to recover. */
async function note(
  scene: Scene,
  what: Happening["what"],
  act: () => Promise<void>,
): Promise<void> {
  const happening: Happening = { what, from: performance.now(), to: Infinity };
  scene.happened.push(happening);
  await act();
  happening.to = performance.now() + RECOVERY_MS;
}

type Act = (scene: Scene) => Promise<void>;

const killGateway: Act = (scene) => scene.end(scene.pick(), "SIGKILL", between(scene, AWAY_MS));
const stopGateway: Act = (scene) => scene.end(scene.pick(), "SIGTERM", between(scene, AWAY_MS));

/** Returns a fault that freezes a Redis without Sentinels. */
const freeze = (ms: readonly [number, number]): Act => (scene) =>
  note(scene, "frozen", async () => {
    const { redis } = scene;
    if ("sentinels" in redis) return;
    redis.pause();
    await pause(between(scene, ms));
    redis.resume();
  });

const failOver: Act = (scene) =>
  note(scene, "failover", async () => {
    if ("sentinels" in scene.redis) await scene.redis.failOver();
  });

/** Waits until the replica is the primary. */
async function waitForHeir({ redis }: Scene): Promise<void> {
  if (!("sentinels" in redis)) return;
  for (const end = performance.now() + 3 * RECOVERY_MS; performance.now() < end; await pause(50)) {
    if ((await redis.servers[1].raw.role())[0] === "master") return;
  }
  throw new Error("Cannot go on: no Sentinel has made the replica the primary");
}

const killPrimary: Act = (scene) =>
  note(scene, "failover", async () => {
    if ("sentinels" in scene.redis) await scene.redis.servers[0].kill();
    await waitForHeir(scene);
  });

/**
 * Freezes the primary until the replica is promoted; then the old primary continues as if nothing
 * had happened.
 */
const splitBrain: Act = (scene) =>
  note(scene, "failover", async () => {
    if (!("sentinels" in scene.redis)) return;
    const [primary] = scene.redis.servers;
    primary.pause();
    await Promise.all([pause(between(scene, SPLIT_MS)), waitForHeir(scene)]);
    primary.resume();
  });

const OF_GATEWAYS = { "kill -9 of a gateway": killGateway, "SIGTERM of a gateway": stopGateway };
const ALONE = {
  "a short freeze of Redis": freeze(SHORT_FREEZE_MS),
  "a long freeze of Redis": freeze(LONG_FREEZE_MS),
};
/** Only one of these faults per schedule: after it the Sentinels have no spare server. */
const WITH_SENTINELS = {
  "a planned failover": failOver,
  "kill -9 of the primary": killPrimary,
  "a frozen primary and its heir": splitBrain,
};

/** The maximum number of gateway faults in a schedule. */
const MAX_OF_GATEWAYS = 2;

/**
 * Makes a schedule.
 *
 * @param scene The scene
 * @param withinMs The time in which faults start
 * @returns Any number of faults, in the order of their times
 */
export function schedule({ random, redis }: Scene, withinMs: number): ScheduledFault[] {
  const take = (faults: Readonly<Record<string, Act>>): ScheduledFault => {
    const [first = ["", killGateway], ...rest] = Object.entries(faults);
    const [name, act] = random.pick([first, ...rest]);
    return { name, act, atMs: random.below(withinMs) };
  };
  const hasRedisFault = random.chance(0.7);
  const count = random.below(MAX_OF_GATEWAYS + 1);
  return [
    ...Array.from({ length: count }, () => take(OF_GATEWAYS)),
    ...(hasRedisFault ? [take("sentinels" in redis ? WITH_SENTINELS : ALONE)] : []),
  ].sort((one, other) => one.atMs - other.atMs);
}
