/**
 * Settings of durable exchanges: answers that are recorded, so that a caller can attach again.
 *
 * @module
 */
import * as v from "valibot";
import { about, anyDuration, duration, size, strictObject } from "./schema.ts";
import { formatDuration, formatSize } from "./units.ts";

/** Settings of durable exchanges. */
export interface DurableConfig {
  /** Time for which an answer is kept after its end. Milliseconds. */
  readonly keepMs: number;
  /** Time for which a call continues without a reader. Milliseconds. */
  readonly lingerMs: number;
  /** Maximum size of a recorded answer. Bytes. */
  readonly maxBytes: number;
  /** True if the retries of client libraries attach to the call that they repeat. */
  readonly retries: boolean;
}

/** Settings of durable exchanges as written in the configuration. */
export interface DurableInput {
  /** Time for which an answer is kept after its end, such as `10m`. */
  readonly keep?: string | undefined;
  /** Time for which a call continues without a reader, such as `60s`. */
  readonly linger?: string | undefined;
  /** Maximum size of a recorded answer, such as `8MB`. */
  readonly size?: string | undefined;
  /**
   * True if the retries of client libraries attach to the call that they repeat. Default: false.
   */
  readonly retries?: boolean | undefined;
}

const form = 'expected an object such as { "keep": "10m" }';

/** @internal The schema of these settings. */
export const DurableSchema: v.GenericSchema<DurableInput, DurableConfig> = v.pipe(
  strictObject({
    keep: about(duration("10m"), "How long an answer is kept after its end"),
    linger: about(
      v.optional(anyDuration, "60s"),
      "How long a call continues after its last reader has left",
    ),
    size: about(
      size("8MB"),
      "The largest answer that is recorded. If an answer is larger, its recording ends, and the call continues",
    ),
    retries: v.optional(
      about(
        v.boolean("expected true or false"),
        "With `true`, a retry of a client library (`x-stainless-retry-count`) gets the answer of the " +
          "call that it repeats",
      ),
      false,
    ),
  }, form),
  v.transform((input) => ({
    keepMs: input.keep,
    lingerMs: input.linger,
    maxBytes: input.size,
    retries: input.retries,
  })),
);

/** @internal The settings of a key, where `false` turns off the settings of its providers. */
export const KeyDurableSchema: v.GenericSchema<DurableInput | false, DurableConfig | false> = v
  .union(
    [v.literal(false), DurableSchema],
    `${form}, or false`,
  );

/**
 * Writes settings in the form of the configuration. {@link KeyDurableSchema} reads them as the same
 * settings.
 */
export function toDurableJson(durable: DurableConfig | false): DurableInput | false {
  if (durable === false) return false;
  const { keepMs, lingerMs, maxBytes, retries } = durable;
  return {
    keep: formatDuration(keepMs),
    linger: formatDuration(lingerMs),
    size: formatSize(maxBytes).replace(" ", ""),
    ...(retries && { retries }),
  };
}

/**
 * Reads settings from one text, in a variable or on the command line. The schema checks them later.
 *
 * @param text `on` for the defaults, `never`, or some of them:
 * `keep=10m,linger=60s,size=8MB,retries=true`
 */
export function readDurableText(text: string): Record<string, unknown> | false {
  if (text === "never") return false;
  if (text === "on") return {};
  return Object.fromEntries(
    text.split(",").map((pair) => {
      const [name = "", value = ""] = pair.split("=").map((side) => side.trim());
      const isFlag = name === "retries" && /^(?:true|false)$/.test(value);
      return [name, isFlag ? value === "true" : value];
    }),
  );
}

/**
 * Returns whether calls can be recorded, by the settings of a provider or a key. Keys that are
 * stored elsewhere can have such settings at any time.
 */
export function mayRecord({ providers, keys }: RecordingSettings): boolean {
  if (Object.values(providers).some(({ durable }) => durable !== undefined)) return true;
  return !Array.isArray(keys) || keys.some(({ durable }) => typeof durable === "object");
}

/** The parts of a configuration that decide about recordings. */
export interface RecordingSettings {
  readonly providers: Readonly<Record<string, { readonly durable?: DurableConfig | undefined }>>;
  readonly keys: unknown;
}
