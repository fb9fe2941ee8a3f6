/**
 * Durable exchanges of a configuration: their recordings are in Redis, with another process, or in memory.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import type { DurableExchanges } from "../durable/durable_exchanges.ts";
import type { RecordingStore } from "../durable/recording_store.ts";
import { MemoryRecordings } from "../durable/recording_store_memory.ts";
import { systemClock } from "../exchange/clock.ts";
import { createDurableExchanges } from "../steps/durable_parts.ts";
import type { EngineReferences, Engines } from "./engines.ts";

/** Engines to open durable exchanges with. */
export interface DurableEngines {
  readonly engines: Engines;
  /** References of the configuration, through which a change of it keeps what runs. */
  readonly references: EngineReferences;
}

/**
 * Opens the durable exchanges of a configuration.
 *
 * @param config The configuration
 * @param options The engines
 * @returns They; `undefined` where no provider has any
 */
export async function openDurable(
  { providers, limits }: Config,
  { engines, references }: DurableEngines,
): Promise<DurableExchanges | undefined> {
  if (Object.values(providers).every(({ durable }) => durable === undefined)) return undefined;
  const clock = systemClock;
  const open = (): RecordingStore =>
    engines.remote.recordings ?? new MemoryRecordings({ clock, maxBytes: limits.maxRecordingsBytes });
  return await references.use(
    "recordings",
    () => Promise.resolve(createDurableExchanges(open(), clock)),
    (durable) => durable.close(),
  );
}
