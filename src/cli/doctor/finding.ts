/**
 * Findings of `sallyport doctor`.
 *
 * @module
 */
import process from "node:process";
import { styleText } from "node:util";

/** One line of what was found. */
export interface Finding {
  readonly state: "ok" | "warning" | "failure";
  readonly what: string;
  /** Result, as text. */
  readonly says: string;
  /** Advice for the operator. */
  readonly fix?: string;
}

/** Makes a finding that all is well. */
export const ok = (what: string, says: string): Finding => ({ state: "ok", what, says });
/** Makes a warning. */
export const warning = (what: string, says: string, fix: string): Finding => ({
  state: "warning",
  what,
  says,
  fix,
});
/** Makes a finding that something fails. */
export const failed = (what: string, says: string, fix: string): Finding => ({
  state: "failure",
  what,
  says,
  fix,
});

/** Formats a duration. */
export const toMs = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;

const SIGNS = { ok: "green", warning: "yellow", failure: "red" } as const;

/** Formats findings, a line each. */
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
