/** The faults of a fleet's Redis and of its gateways, and the excess that each of them explains. */
import { moveSlot, startCluster, startSentinelFleet } from "../../tests/support/redis_fleets.ts";
import { startLink } from "../../tests/support/redis_link.ts";
import { startRedis } from "../../tests/support/redis.ts";
import type { Fleet } from "./scene.ts";

/** The environment that exists before the gateways start. */
export interface Ground {
  /** The setting `redis`. */
  readonly redis: unknown;
  begin(fleet: Fleet): unknown;
  end(fleet: Fleet): unknown;
  close(): Promise<unknown>;
}

/** A fault. */
export interface Fault {
  readonly name: string;
  /**
   * Whole limits that can be used in excess of the limit, since counts are lost with their Redis.
   */
  readonly lost: number;
  prepare(): Promise<Ground>;
}

const nothing = (): void => {};

const far = (ms: number): Fault => ({
  name: `round trip of ${ms} ms`,
  lost: 0,
  async prepare() {
    const redis = await startRedis();
    const link = await startLink(redis.port);
    return {
      redis: link.url,
      begin: () => void (link.rtt = ms),
      end: () => void (link.rtt = 0),
      close: () => link.close().then(() => redis.stop()),
    };
  },
});

type Server = Awaited<ReturnType<typeof startRedis>>;
const single = (
  name: string,
  lost: number,
  act: (redis: Server, fleet: Fleet) => unknown,
  undo: (redis: Server, fleet: Fleet) => unknown = nothing,
): Fault => ({
  name,
  lost,
  async prepare() {
    const redis = await startRedis();
    return {
      redis: redis.url,
      begin: (fleet) => act(redis, fleet),
      end: (fleet) => undo(redis, fleet),
      close: () => redis.stop(),
    };
  },
});

/**
 * Failovers by Sentinels lose counts, planned ones too: the former primary continues to count until
 * the Sentinels have agreed on its successor. Those counts are lost.
 */
const SENTINEL_LOST = 1;

const sentinel = (
  name: string,
  act: (fleet: Awaited<ReturnType<typeof startSentinelFleet>>) => unknown,
): Fault => ({
  name,
  lost: SENTINEL_LOST,
  async prepare() {
    const fleet = await startSentinelFleet();
    const redis = { sentinel: { name: fleet.name, nodes: fleet.nodes } };
    return { redis, begin: () => act(fleet), end: nothing, close: () => fleet.stop() };
  },
});

const cluster: Fault = {
  name: "a slot of the Cluster moves",
  lost: 0,
  async prepare() {
    const { servers, urls, stop } = await startCluster();
    const [first, second] = servers;
    return {
      redis: { cluster: urls },
      async begin({ keys }: Fleet) {
        for (const { id } of keys) {
          const slot = Number(await first?.raw.cluster("KEYSLOT", `{key:${id}}`));
          const at = servers[slot < 5461 ? 0 : slot < 10_923 ? 1 : 2];
          const to = at === first ? second : first;
          if (at !== undefined && to !== undefined) await moveSlot(slot, at, to, servers);
        }
      },
      end: nothing,
      close: stop,
    };
  },
};

/** All faults, in the order of the table. */
export const FAULTS: readonly Fault[] = [
  single("none", 0, nothing),
  ...[20, 40, 80].map(far),
  single("Redis is paused for 1.5 s", 0, (redis) => redis.pause(), (redis) => redis.resume()),
  single(
    "Redis is killed, and back empty after 1.5 s",
    1,
    (redis) => redis.kill(),
    (redis) => redis.restart(),
  ),
  single("FLUSHALL", 1, async (redis) => {
    const { Redis } = await import("ioredis");
    const client = new Redis(redis.url);
    await client.flushall();
    client.disconnect();
  }),
  sentinel("failover by Sentinels, planned", (fleet) => fleet.failOver()),
  sentinel("failover by Sentinels: the primary is killed", (fleet) => fleet.servers[0].kill()),
  cluster,
  single("a gateway is killed", 0, (_, { members }) => {
    const [, second] = members;
    if (second === undefined) return;
    second.isGone = true;
    second.program.kill("SIGKILL");
  }),
  single("a gateway starts while Redis is away", 1, async (redis, fleet) => {
    await redis.kill();
    void fleet.join("node").catch(nothing);
  }, (redis) => redis.restart()),
];
