/**
 * The setting for the location of gateway keys.
 *
 * @module
 */
import * as v from "valibot";
import { type KeyConfig, type KeyInput, KeySchema } from "./key.ts";
import { about, nonEmpty, strictObject } from "./schema.ts";

/** Location of gateway keys: here, in a file that `sallyport keys` writes, or in Redis. */
export type KeysConfig = KeyConfig[] | { readonly file: string } | "redis" | RedisKeysConfig;

/** Gateway keys in Redis. */
export interface RedisKeysConfig {
  /** Location of the keys. */
  readonly store: "redis";
  /** File with the keys that this gateway has used, for a start while Redis is away. */
  readonly snapshot?: string | undefined;
}

/** Gateway keys in Redis, as written in the configuration. */
export interface RedisKeysInput {
  /** `redis`, which can be left out next to `snapshot`. */
  readonly store?: "redis" | undefined;
  /** File with the keys that this gateway has used, for a start while Redis is away. */
  readonly snapshot?: string | undefined;
}

/** @internal Returns the settings of keys in Redis; `undefined` for keys elsewhere. */
export function keysInRedis(keys: KeysConfig): RedisKeysConfig | undefined {
  if (keys === "redis") return { store: keys };
  return "store" in keys ? keys : undefined;
}

const keysForm = 'expected an array of keys, { "file": "gateway-keys.json" } or "redis"';
/** @internal The schema of {@link KeysConfig}. */
export const KeysSchema: v.GenericSchema<
  KeyInput[] | { file: string } | "redis" | RedisKeysInput,
  KeysConfig
> = v
  .union([
    v.pipe(
      v.array(KeySchema),
      v.check(
        (keys) => new Set(keys.map(({ id }) => id)).size === keys.length,
        "expected each id once",
      ),
    ),
    strictObject({
      file: about(
        nonEmpty,
        "File of the keys, relative to the configuration; `sallyport keys` writes it",
      ),
    }),
    v.literal("redis"),
    v.pipe(
      strictObject({
        store: v.optional(
          about(
            v.literal("redis", 'expected "redis"'),
            '`redis`: keys are in Redis, as with `"keys": "redis"`',
          ),
        ),
        snapshot: v.optional(
          about(
            nonEmpty,
            "File for the keys that were used at this gateway. " +
              "With it the gateway can start while Redis is unavailable",
          ),
        ),
      }),
      v.check(({ store, snapshot }) => store !== undefined || snapshot !== undefined, keysForm),
      v.transform((keys) => ({ ...keys, store: "redis" as const })),
    ),
  ], keysForm);
