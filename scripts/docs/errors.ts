/** The tables of errors, from the one in the sources. */
import { ERRORS, type ErrorSpec } from "../../src/error_table.ts";
import { toTable } from "./parts.ts";

/** Those that a stream can end with. `tests/docs/stale_test.ts` compares with what tests provoke. */
export const IN_STREAM: readonly string[] = [
  "upstream_stream_truncated",
  "upstream_idle_timeout",
  "upstream_disconnected",
  "upstream_timeout",
  "gateway_draining",
];
/** Of those, the ones that have no other place. */
const ONLY_IN_STREAM = ["upstream_stream_truncated"];

const entries = Object.entries(ERRORS) as [string, ErrorSpec][];

/** @returns By status: what callers get before an answer begins */
export function makeErrors(): string {
  const rows = entries.filter(([code]) => !ONLY_IN_STREAM.includes(code))
    .toSorted(([, a], [, b]) => a.status - b.status)
    .map(([code, { status, type, param, shouldRetry, retryAfterS, message }]) => [
      String(status),
      `\`${code}\``,
      `\`${type}\``,
      param === null ? "" : `\`${param}\``,
      shouldRetry ? retryAfterS === undefined ? "yes" : "later" : "no",
      message,
    ]);
  return toTable(["status", "code", "type", "param", "retry", "message"], rows);
}

/** @returns What a stream that has begun can end with */
export function makeStreamErrors(): string {
  const rows = entries.filter(([code]) => IN_STREAM.includes(code))
    .map(([code, { outcome, message }]) => [`\`${code}\``, `\`${outcome}\``, message]);
  return toTable(["code", "outcome in the log", "message"], rows);
}
