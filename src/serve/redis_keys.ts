/**
 * Gateway keys in Redis, as a gateway or a command opens them: with a snapshot where one is
 * configured.
 *
 * @module
 */
import { resolve } from "node:path";
import { systemClock } from "../exchange/clock.ts";
import { KeySnapshot } from "../keys/key_snapshot_file.ts";
import { RedisKeyStore } from "../keys/redis/key_store.ts";
import type { RedisClient } from "../storage/redis_client.ts";
import { SharedFile } from "../storage/shared_file.ts";
import type { EngineReferences, Engines } from "./engines.ts";

/** Where keys in Redis are. */
export interface RedisKeysPlace {
  /** Name under which configurations share the connection. */
  readonly name: string;
  readonly client: RedisClient;
  /** File of the snapshot, if one is configured. */
  readonly snapshot: string | undefined;
}

/** Options for opening keys, a part of those of `assemble`. */
interface RedisKeysOptions {
  readonly directory: string;
  readonly report: (text: string) => void;
  readonly isServing: boolean;
  readonly engines: Engines;
  readonly references: EngineReferences;
}

/**
 * Opens the keys.
 *
 * @returns Their store; a gateway has tried a look-up by then, a command has not
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
    // A worker's supervisor has done so.
    if (engines.remote.limiter === undefined) await file?.tidy(report);
    const clock = systemClock;
    const store = new RedisKeyStore(client, clock, {
      snapshot: file && new KeySnapshot(file, { clock, report }),
      report,
      isCluster: client.isCluster,
      siblings: engines.remote.keys,
    });
    await store.start();
    return store;
  };
  return await references.use(`keys in ${name} ${file?.path}`, open, (store) => store.close());
}
