/**
 * Findings of `sallyport doctor`.
 *
 * @module
 */
import process from "node:process";
import { styleText } from "node:util";

/** One line of the result. */
export interface Finding {
  readonly state: "ok" | "warning" | "failure";
  readonly what: string;
  /** Result, as text. */
  readonly says: string;
  /** Advice for the operator. */
  readonly fix?: string;
}

/** Creates a finding of success. */
export const ok = (what: string, says: string): Finding => ({ state: "ok", what, says });
/** Creates a warning. */
export const warning = (what: string, says: string, fix: string): Finding => ({
  state: "warning",
  what,
  says,
  fix,
});
/** Creates a finding of failure. */
export const failed = (what: string, says: string, fix: string): Finding => ({
  state: "failure",
  what,
  says,
  fix,
});

/** Formats a duration. */
export const toMs = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;

const SIGNS = { ok: "green", warning: "yellow", failure: "red" } as const;

/** Formats findings, one line each. */
export function toLines(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ what }) => what.length));
  return findings.map((finding) => {
    const { state, what, says, fix } = finding;
    const word = state.padEnd("warning".length);
    const sign = process.stdout.isTTY ? styleText(SIGNS[state], word) : word;
    const line = `${sign}  ${what.padEnd(width)}  ${says}`;
    return fix === undefined ? line : `${line}\n${" ".repeat(width + 11)}-> ${fix}`;
  }).join("\n");
}
