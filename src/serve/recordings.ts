/**
 * Durable exchanges of a configuration. Their recordings are in Redis, in another process, or in
 * memory.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { mayRecord } from "../config/durable.ts";
import type { DurableExchanges } from "../durable/durable_exchanges.ts";
import type { RecordingStore } from "../durable/recording_store.ts";
import { systemClock } from "../exchange/clock.ts";
import { createDurableExchanges } from "../steps/durable/setup.ts";
import type { EngineReferences, Engines } from "./engines.ts";
import type { RedisPlace } from "./identity_engines.ts";

/** Engines that durable exchanges are opened with. */
export interface DurableEngines {
  readonly engines: Engines;
  /**
   * References of the configuration. They keep running engines open while the configuration
   * changes.
   */
  readonly references: EngineReferences;
  /** Redis, if configured. All of its gateways share the recordings. */
  readonly redis: RedisPlace | undefined;
  /** False for a command: it records nothing. */
  readonly isServing: boolean;
}

/**
 * Opens the durable exchanges of a configuration. Once opened, they stay open in the process: after
 * a change to a configuration without recording, existing recordings can still be read and stopped.
 * Returns `undefined` if no call can be recorded.
 */
export async function openDurable(
  config: Config,
  options: DurableEngines,
): Promise<DurableExchanges | undefined> {
  const { engines, references, redis, isServing } = options;
  const name = redis === undefined ? "recordings" : `recordings ${redis.name}`;
  const isNeeded = mayRecord(config) || engines.isOpen(name);
  if (!isServing || !isNeeded) return undefined;
  const clock = systemClock;
  const open = async (): Promise<RecordingStore> => {
    if (redis === undefined) return engines.remote.recordings ?? engines.recordings;
    const { RedisRecordings } = await import("../durable/redis/recording_store.ts");
    return new RedisRecordings({
      client: redis.client,
      clock,
      maxBytes: () => engines.recordings.maxBytes,
    });
  };
  return await references.use(
    name,
    async () => createDurableExchanges(await open(), clock),
    (durable) => durable.close(),
  );
}
