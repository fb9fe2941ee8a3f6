/** The kinds of harm that {@link ./harm_worker.ts} does, and how it is talked to. */

/** Kinds of harm, with what they are. */
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
/** One of them. */
export type Harm = keyof typeof HARMS;

/** Whom the worker harms. */
export interface Target {
  /** The gateway key of bystanders and harmful callers alike. */
  readonly key: string;
  /** One of harmful callers alone. */
  readonly otherKey: string;
  /**
   * Address of the host of each provider: that of the bystanders, one that fails, one that is
   * silent.
   */
  readonly a: string;
  readonly b: string;
  readonly c: string;
  /** A listener that speaks TLS. */
  readonly tls: string;
}

/** The memory for bodies of the gateway that is harmed. */
export const BODY_MEMORY_BYTES = 64_000_000;

/** Models for which the bystanders' own provider fails. */
export const FAILING_MODELS = ["resets", "unavailable"] as const;

/** What the worker is told. */
export type HarmOrder =
  | ({ readonly type: "target" } & Target)
  | { readonly type: "begin"; readonly harm: Harm }
  | { readonly type: "end" };

/** Answers to wrong keys: how many a second, and how long they took. */
export interface Refusals {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** What it tells. */
export type HarmReport =
  | { readonly type: "providers"; readonly chaotic: string; readonly quiet: string }
  | { readonly type: "begun" }
  | {
    readonly type: "ended";
    /** What became of a flood of wrong keys. */
    readonly refusals: Refusals | undefined;
    /** What went otherwise than it should. */
    readonly complaints: readonly string[];
  };
