/**
 * The setting for the location of gateway keys.
 *
 * @module
 */
import * as v from "valibot";
import { ConfigError } from "./config_error.ts";
import { type KeyConfig, type KeyInput, KeySchema } from "./key.ts";
import { about, nonEmpty, strictObject } from "./schema.ts";

/** Location of gateway keys: in the configuration itself, or in a store. */
export type KeysConfig = KeyConfig[] | StoredKeysConfig;

/** Gateway keys in a store, which `store` names. */
export type StoredKeysConfig = FileKeysConfig | RedisKeysConfig;

/** Gateway keys in a file. */
export interface FileKeysConfig {
  /** Name of the store. */
  readonly store: "file";
  /** File of the keys, which `sallyport keys` writes. */
  readonly file: string;
}

/** Gateway keys in Redis. */
export interface RedisKeysConfig {
  /** Name of the store. */
  readonly store: "redis";
  /** File with the keys that this gateway has used, for a start while Redis is away. */
  readonly snapshot?: string | undefined;
}

/** Gateway keys in a file, as written in the configuration. */
export interface FileKeysInput {
  /** File of the keys, which `sallyport keys` writes. */
  readonly file: string;
}

/** Gateway keys in Redis, as written in the configuration. */
export interface RedisKeysInput {
  /** `redis`, which can be left out next to `snapshot`. */
  readonly store?: "redis" | undefined;
  /** File with the keys that this gateway has used, for a start while Redis is away. */
  readonly snapshot?: string | undefined;
}

/** @internal The properties of a store of keys that other parts of the gateway depend on. */
export interface KeyStoreProperties {
  /** True if the keys are in the Redis of the setting `redis`. */
  readonly needsRedis: boolean;
  /** File that the gateway itself writes. */
  readonly writtenFile?: string | undefined;
  /** File that other files are stored next to, such as the revoked tokens. */
  readonly mainFile?: string | undefined;
}

/**
 * @internal Describes the store of the configured keys.
 *
 * @throws {ConfigError} If the store is unknown, in a configuration that was not checked
 */
export function describeKeyStore(keys: KeysConfig): KeyStoreProperties {
  if (Array.isArray(keys)) return { needsRedis: false };
  switch (keys.store) {
    case "file":
      return { needsRedis: false, writtenFile: keys.file, mainFile: keys.file };
    case "redis":
      return { needsRedis: true, writtenFile: keys.snapshot };
    default:
      return refuseKeyStore(keys);
  }
}

/**
 * @internal Refuses an unknown store. The compiler accepts the call only where every known store
 * has been handled.
 *
 * @throws {ConfigError} Always
 */
export function refuseKeyStore(_keys: never): never {
  throw new ConfigError([{ path: "keys.store", message: STORE_FORM }]);
}

/** @internal The stores whose name alone is a setting, such as `"keys": "redis"`. */
export type NamedStore = "redis";
/** @internal True for the name of a store that needs no other setting. */
export function isNamedStore(value: unknown): value is NamedStore {
  return value === "redis";
}

const STORE_FORM = 'expected "redis", or { "file": "gateway-keys.json" } without store';
const keysForm = 'expected an array of keys, { "file": "gateway-keys.json" } or "redis"';
/** @internal The schema of {@link KeysConfig}. */
export const KeysSchema: v.GenericSchema<
  KeyInput[] | FileKeysInput | NamedStore | RedisKeysInput,
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
    v.pipe(
      strictObject({
        file: about(
          nonEmpty,
          "File of the keys, relative to the configuration. `sallyport keys` writes it",
        ),
      }),
      v.transform(({ file }) => ({ store: "file" as const, file })),
    ),
    v.pipe(v.literal("redis"), v.transform((store) => ({ store }))),
    v.pipe(
      strictObject({
        store: v.optional(
          about(
            v.literal("redis", STORE_FORM),
            '`redis`: keys are in Redis, as with `"keys": "redis"`',
          ),
        ),
        snapshot: v.optional(
          about(
            nonEmpty,
            "File in which the gateway saves the keys that its callers used. " +
              "With it the gateway can start while Redis is unavailable",
          ),
        ),
      }),
      v.check(({ store, snapshot }) => store !== undefined || snapshot !== undefined, keysForm),
      v.transform((keys) => ({ ...keys, store: "redis" as const })),
    ),
  ], keysForm);
