/** The kinds of harm that {@link ./harm_worker.ts} does, and how it is talked to. */

/** Kinds of harm, with what they are. */
export const HARMS = {
  "idle streams": "1,000 open streams that say nothing",
  "wrong keys": "10,000 wrong gateway keys a second, half of them well-formed",
  "slow callers": "500 connections that stop in the header, in the body, or reading",
  "failing provider": "another provider that resets, truncates, garbles and refuses 200 calls a second",
  "silent provider": "200 calls that another provider never answers",
} as const;
/** One of them. */
export type Harm = keyof typeof HARMS;

/** What the worker is told. */
export type HarmOrder =
  | { readonly type: "target"; readonly key: string; readonly b: string; readonly c: string }
  | { readonly type: "begin"; readonly harm: Harm }
  | { readonly type: "end" };

/** What it tells. */
export type HarmReport =
  | { readonly type: "providers"; readonly chaotic: string; readonly quiet: string }
  | { readonly type: "begun" }
  | {
    readonly type: "ended";
    /** Answers to wrong keys: how long they took, milliseconds, in order of their arrival. */
    readonly refusals: readonly number[];
    /** What went otherwise than it should. */
    readonly complaints: readonly string[];
  };
