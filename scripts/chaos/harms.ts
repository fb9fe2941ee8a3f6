/** The kinds of harm that {@link ./harm_worker.ts} does, and its messages. */

/** Kinds of harm, with their descriptions. */
export const HARMS = {
  "idle streams": "1,000 open streams that say nothing",
  "wrong keys": "10,000 wrong gateway keys a second, half of them well-formed",
  "slow callers": "500 connections that stop in the header, in the body, or reading",
  "failing provider":
    "another provider that resets, truncates, garbles and refuses 200 calls a second",
  "silent provider": "200 calls that another provider never answers",
  "held bodies": "150 open streams whose bodies have 4 MB each",
  "half handshakes": "500 connections that never finish, or never begin, their TLS handshake",
  "failing model":
    "200 calls a second of a model that the bystanders' own provider resets or answers with 503",
  "announced bodies":
    "16 connections of another key that together announce as much as all bodies may hold, and send a byte each",
} as const;
/** A kind of harm. */
export type Harm = keyof typeof HARMS;

/** The gateway that the worker harms. */
export interface Target {
  /** The gateway key of bystanders and harmful callers. */
  readonly key: string;
  /** The gateway key of harmful callers only. */
  readonly otherKey: string;
  /**
   * Address of the host of each provider: the bystanders' provider, a failing one, and a silent
   * one.
   */
  readonly a: string;
  readonly b: string;
  readonly c: string;
  /** A listener that accepts TLS. */
  readonly tls: string;
}

/** The memory for bodies of the harmed gateway. */
export const BODY_MEMORY_BYTES = 64_000_000;

/** Models for which the bystanders' provider fails. */
export const FAILING_MODELS = ["resets", "unavailable"] as const;

/** Orders to the worker. */
export type HarmOrder =
  | ({ readonly type: "target" } & Target)
  | { readonly type: "begin"; readonly harm: Harm }
  | { readonly type: "end" };

/** Answers to wrong keys: their rate per second, and their latency. */
export interface Refusals {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Reports of the worker. */
export type HarmReport =
  | { readonly type: "providers"; readonly chaotic: string; readonly quiet: string }
  | { readonly type: "begun" }
  | {
    readonly type: "ended";
    /** The result of a flood of wrong keys. */
    readonly refusals: Refusals | undefined;
    /** Descriptions of unexpected results. */
    readonly complaints: readonly string[];
  };
