/** The tables of errors, outcomes, causes and events, from those in the sources. */
import { ADMIN_ERRORS } from "../../src/errors/admin_errors.ts";
import { ERRORS } from "../../src/errors/codes.ts";
import type { ErrorSpec } from "../../src/errors/error_spec.ts";
import { concernOf, FAILURE_CAUSES, type Outcome, OUTCOMES } from "../../src/errors/outcomes.ts";
import { EVENTS } from "../../src/exchange/reported_event.ts";
import { toTable } from "./parts.ts";

/**
 * Errors that can end a stream. `tests/docs/generated_test.ts` compares the list with the errors
 * that tests provoke.
 */
export const IN_STREAM: readonly string[] = [
  "upstream_stream_truncated",
  "upstream_first_event_timeout",
  "upstream_idle_timeout",
  "upstream_disconnected",
  "upstream_timeout",
  "gateway_draining",
  "exchange_lost",
  "exchange_stopped",
  "run_stopped",
];
/** Errors that occur only in a stream. */
const ONLY_IN_STREAM = ["upstream_stream_truncated"];

/** A message as Markdown: without the escape, `<gateway key>` would be an unknown element. */
function toMarkdown(message: string): string {
  return message.replace(/`[^`]*`|<(?=[a-z])/gi, (part) => part === "<" ? "\\<" : part);
}

const entries = Object.entries(ERRORS) as [string, ErrorSpec][];

const ABOUT_ERRORS =
  "`param` is the header or the field at fault. A message can go on after a colon, for example with the\n" +
  "limit that is reached. `retry` states whether the same call can be sent again:";
const ABOUT_RETRIES = [
  "`yes`: at once. It is not billed twice. The answer has `x-should-retry: true`.",
  "`later`: the same, but after the seconds in `retry-after`.",
  "`no`: it would fail again, or could be billed a second time. The answer has\n" +
  "  `x-should-retry: false`.",
].map((line) => `- ${line}`).join("\n");

/** @returns By status: errors that callers get before an answer begins */
export function makeErrors(): string {
  const rows = entries.filter(([code]) => !ONLY_IN_STREAM.includes(code) && !(code in ADMIN_ERRORS))
    .toSorted(([, a], [, b]) => a.status - b.status)
    .map(([code, { status, type, param, shouldRetry, retryAfterS, message }]) => [
      String(status),
      `\`${code}\``,
      `\`${type}\``,
      param === null ? "" : `\`${param}\``,
      shouldRetry ? retryAfterS === undefined ? "yes" : "later" : "no",
      toMarkdown(message),
    ]);
  const table = toTable(["status", "code", "type", "param", "retry", "message"], rows);
  return [ABOUT_ERRORS, ABOUT_RETRIES, table].join("\n\n");
}

/** @returns By status: errors that operators get at the admin listener only */
export function makeAdminErrors(): string {
  const rows = Object.entries(ADMIN_ERRORS).toSorted(([, a], [, b]) => a.status - b.status)
    .map((
      [code, { status, type, message }],
    ) => [String(status), `\`${code}\``, `\`${type}\``, toMarkdown(message)]);
  return toTable(["status", "code", "type", "message"], rows);
}

/** @returns Errors that can end a stream that has begun */
export function makeStreamErrors(): string {
  const rows = entries.filter(([code]) => IN_STREAM.includes(code))
    .map(([code, { outcome, message }]) => [`\`${code}\``, `\`${outcome}\``, toMarkdown(message)]);
  return toTable(["code", "outcome in the log", "message"], rows);
}

/** @returns The outcomes of exchanges, and the party that each of them concerns */
export function makeOutcomes(): string {
  const rows = (Object.keys(OUTCOMES) as Outcome[]).map((outcome) => {
    const [usual, of4xx] = [502, 404].map((status) => concernOf({ outcome, status }));
    // The gateway never answers the other outcomes with a 4xx.
    const concern = outcome === "upstream_error"
      ? `\`${usual}\`, with a 4xx \`${of4xx}\``
      : `\`${usual}\``;
    return [`\`${outcome}\``, concern, OUTCOMES[outcome]];
  });
  return toTable(["outcome", "concerns", "meaning"], rows);
}

/** @returns The reasons why calls to a provider fail */
export function makeCauses(): string {
  return toTable(
    ["cause", "meaning"],
    Object.entries(FAILURE_CAUSES).map(([cause, meaning]) => [`\`${cause}\``, meaning]),
  );
}

/** @returns The events of the log */
export function makeEvents(): string {
  return toTable(
    ["event", "meaning"],
    Object.entries(EVENTS).map(([event, meaning]) => [`\`${event}\``, meaning]),
  );
}
