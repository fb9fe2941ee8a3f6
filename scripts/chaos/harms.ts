/** The kinds of harm that {@link ./harm_worker.ts} does, and how it is talked to. */

/** Kinds of harm, with what they are. */
export const HARMS = {
  "idle streams": "1,000 open streams that say nothing",
  "wrong keys": "10,000 wrong gateway keys a second, half of them well-formed",
  "slow callers": "500 connections that stop in the header, in the body, or reading",
  "failing provider": "another provider that resets, truncates, garbles and refuses 200 calls a second",
  "failing model": "200 calls a second of a model that the bystanders' own provider resets or answers with 503",
  "silent provider": "200 calls that another provider never answers",
} as const;
/** The model that fails at the provider of the bystanders. */
export const FAILING_MODEL = "failing-model";
/** One of them. */
export type Harm = keyof typeof HARMS;

/** What the worker is told. */
export type HarmOrder =
  | { readonly type: "target"; readonly key: string; readonly a: string; readonly b: string; readonly c: string }
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
