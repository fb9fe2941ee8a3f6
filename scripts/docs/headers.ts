/** The tables of the headers that the gateway forwards, and of headers that it never forwards. */
import { ATTRIBUTION_PRESETS } from "../../src/config/attribution.ts";
import { DIMENSIONS } from "../../src/config/dimensions.ts";
import { BARRED, type HeaderList } from "../../src/config/headers.ts";
import {
  AGENT_HEADERS,
  type HeaderRow,
  REQUEST_HEADERS,
  RESPONSE_HEADERS,
} from "../../src/upstream/header_lists.ts";
import { toTable } from "./parts.ts";

const toCode = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(", ");

const toRows = (rows: readonly HeaderRow[]) =>
  toTable(["header", "about"], rows.map((row) => [toCode(row.names), row.about]));

/** @returns The headers that are forwarded to the provider */
export function makeRequestHeaders(): string {
  return toRows(REQUEST_HEADERS);
}

/** @returns The headers of coding agents, which are forwarded in both directions */
export function makeAgentHeaders(): string {
  return toRows(AGENT_HEADERS);
}

/** @returns The headers in which known clients name the origins of a call */
export function makeAttributionPresets(): string {
  return toTable(
    ["preset", ...DIMENSIONS.map((name) => `\`${name}\``)],
    Object.entries(ATTRIBUTION_PRESETS).map(([preset, sources]) => [
      `\`${preset}\``,
      ...DIMENSIONS.map((name) => toCode(sources[name] ?? [])),
    ]),
  );
}

/** @returns The headers that are forwarded to the caller */
export function makeResponseHeaders(): string {
  return toRows(RESPONSE_HEADERS);
}

const MARKED: readonly HeaderList[] = ["pass", "answer", "set"];

/**
 * @returns The headers that the configuration cannot allow, with the lists that must not contain
 * them
 */
export function makeBarredHeaders(): string {
  return toTable(
    ["header", "because it", "not in"],
    BARRED.map(({ names, reason, lists }) => [
      toCode(names),
      reason,
      lists.length === MARKED.length ? "any list" : toCode(lists),
    ]),
  );
}
