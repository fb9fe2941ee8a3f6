/** The tables of the headers that the gateway forwards, and of headers that it never forwards. */
import { BARRED, type HeaderList } from "../../src/config/headers.ts";
import {
  type HeaderRow,
  REQUEST_HEADERS,
  RESPONSE_HEADERS,
} from "../../src/upstream/header_lists.ts";
import { toTable } from "./parts.ts";

const toCode = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(", ");

const toRows = (rows: readonly HeaderRow[]) =>
  toTable(["header", ""], rows.map((row) => [toCode(row.names), row.about]));

/** @returns The headers that are forwarded to the provider */
export function makeRequestHeaders(): string {
  return toRows(REQUEST_HEADERS);
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
