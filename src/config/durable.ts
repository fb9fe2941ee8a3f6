/**
 * Durable exchanges, as an operator writes them down: answers that are recorded, so that a caller can attach again.
 *
 * @module
 */
import * as v from "valibot";
import { about, anyDuration, duration, size } from "./schema.ts";

/** Settings of durable exchanges. */
export interface DurableConfig {
  /** Time for which an answer is kept after its end. Milliseconds. */
  readonly keepMs: number;
  /** Time for which a call goes on that nobody reads. Milliseconds. */
  readonly lingerMs: number;
  /** Maximum size of an answer that is recorded. Bytes. */
  readonly maxBytes: number;
  /** True if the retries of client libraries attach to the call that they repeat. */
  readonly retries: boolean;
}

/** Settings of durable exchanges as they are written in the configuration. */
export interface DurableInput {
  /** Time for which an answer is kept after its end, such as `10m`. */
  readonly keep?: string | undefined;
  /** Time for which a call goes on that nobody reads, such as `60s`. */
  readonly linger?: string | undefined;
  /** Maximum size of an answer that is recorded, such as `8MB`. */
  readonly size?: string | undefined;
  /** True if the retries of client libraries attach to the call that they repeat; false if left out. */
  readonly retries?: boolean | undefined;
}

const form = 'expected an object such as { "keep": "10m" }';

/** @internal The schema of these settings. */
export const DurableSchema: v.GenericSchema<DurableInput, DurableConfig> = v.pipe(
  v.strictObject({
    keep: about(duration("10m"), "How long an answer is kept after its end"),
    linger: about(v.optional(anyDuration, "60s"), "How long a call goes on that nobody reads"),
    size: about(size("8MB"), "The largest answer that is recorded; a larger one goes on without its recording"),
    retries: v.optional(
      about(
        v.boolean("expected true or false"),
        "With `true`, a retry of a client library attaches to the call that it repeats (`x-stainless-retry-count`)",
      ),
      false,
    ),
  }, form),
  v.transform(({ keep, linger, size, retries }) => ({
    keepMs: keep,
    lingerMs: linger,
    maxBytes: size,
    retries,
  })),
);
