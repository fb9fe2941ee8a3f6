/**
 * Gateway keys in Redis, for a gateway or a command, with a snapshot if configured.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { resolve } from "node:path";
import { addCount } from "../exchange/count_map.ts";
import { systemClock } from "../exchange/clock.ts";
import { KeySnapshot } from "../keys/key_snapshot_file.ts";
import { RedisKeyStore } from "../keys/redis/key_store.ts";
import type { RedisClient } from "../storage/redis_client.ts";
import { SharedFile } from "../storage/shared_file.ts";
import type { EngineReferences, Engines } from "./engines.ts";

/** Location of keys in Redis. */
export interface RedisKeysPlace {
  /** Name that configurations share the connection by. */
  readonly name: string;
  readonly client: RedisClient;
  /** File of the snapshot, if one is configured. */
  readonly snapshot: string | undefined;
}

/** Options for opening keys: a part of the options of `assemble`. */
interface RedisKeysOptions {
  readonly directory: string;
  readonly report: ReportEvent;
  readonly isServing: boolean;
  readonly engines: Engines;
  readonly references: EngineReferences;
}

/**
 * Opens the keys.
 *
 * @returns Their store. A gateway has already tried a look-up, a command has not
 */
export async function openRedisKeys(
  place: RedisKeysPlace,
  options: RedisKeysOptions,
): Promise<RedisKeyStore> {
  const { name, client, snapshot } = place;
  const { directory, report, isServing, engines, references } = options;
  const file = snapshot === undefined ? undefined : new SharedFile(resolve(directory, snapshot));
  const open = async () => {
    if (!isServing) return new RedisKeyStore(client, systemClock, { isCluster: client.isCluster });
    // For a worker, its supervisor has already done so.
    if (engines.remote.limiter === undefined) await file?.tidy(report);
    const clock = systemClock;
    const failed = () => addCount(engines.failedWrites, "snapshot");
    const store = new RedisKeyStore(client, clock, {
      snapshot: file && new KeySnapshot(file, { clock, report, failed }),
      report,
      isCluster: client.isCluster,
      siblings: engines.remote.keys,
    });
    await store.start();
    return store;
  };
  return await references.use(`keys in ${name} ${file?.path}`, open, (store) => store.close());
}
