/**
 * Limits on callers' use of the gateway itself, as settings.
 *
 * @module
 */
import * as v from "valibot";
import { about, duration, size, strictObject } from "./schema.ts";

/** Limits on callers' use of the gateway itself. */
export interface LimitsConfig {
  /** Maximum size of a caller's body. Bytes. */
  readonly maxBodyBytes: number;
  /** Longest time for a caller's body to arrive. Milliseconds. */
  readonly bodyTimeMs: number;
  /** Maximum size of all bodies in memory together. Bytes. */
  readonly maxBodiesBytes: number;
  /** Maximum number of open exchanges. */
  readonly maxExchanges: number;
  /** Longest time for which a caller can leave its answer unread. Milliseconds. */
  readonly writeStallMs: number;
  /**
   * Maximum size of all recordings of durable exchanges: in this process's memory, or in Redis for
   * all gateways together. Bytes.
   */
  readonly maxRecordingsBytes: number;
}

/** These limits as written in the configuration. */
export interface LimitsInput {
  /** Maximum size of a caller's body, such as `32MB`. */
  readonly body?: string | undefined;
  /** Longest time for a caller's body to arrive, such as `60s`. */
  readonly bodyTime?: string | undefined;
  /** Maximum size of all bodies in memory together, such as `512MB`. */
  readonly bodies?: string | undefined;
  /** Maximum number of open exchanges. */
  readonly exchanges?: number | undefined;
  /** Longest time for which a caller can leave its answer unread, such as `2m`. */
  readonly writeStall?: string | undefined;
  /**
   * Maximum size of all recordings of durable exchanges, in memory or in Redis, such as `256MB`.
   */
  readonly recordings?: string | undefined;
}

/** @internal The schema of these limits. */
export const LimitsSchema: v.GenericSchema<LimitsInput, LimitsConfig> = v.pipe(
  strictObject({
    body: about(size("32MB"), "The largest body of a request"),
    bodyTime: about(duration("60s"), "Time in which the body of a request has to arrive"),
    bodies: about(
      size("512MB"),
      "Memory for the bodies of all open requests. Above it, or above the share of one key, requests get 503",
    ),
    exchanges: v.optional(
      v.pipe(
        v.number("expected a whole number"),
        v.integer("expected a whole number"),
        v.minValue(1, "expected at least 1"),
        v.description("The most open exchanges. Above it, new requests get 503"),
      ),
      10_000,
    ),
    writeStall: about(
      duration("2m"),
      "If a caller reads nothing of its answer for this time, its connection is reset",
    ),
    recordings: about(
      size("256MB"),
      "The largest size of all recordings of durable exchanges together: of this process, or with Redis of all gateways",
    ),
  }, "expected an object"),
  v.forward(v.check(({ body, bodies }) => body <= bodies, "expected at most bodies"), ["body"]),
  v.transform((input) => ({
    maxBodyBytes: input.body,
    bodyTimeMs: input.bodyTime,
    maxBodiesBytes: input.bodies,
    maxExchanges: input.exchanges,
    writeStallMs: input.writeStall,
    maxRecordingsBytes: input.recordings,
  })),
);
