/**
 * Lines of the access log for people, in columns that stay aligned.
 *
 * @module
 */
import { explainFailure, SIDES } from "../../errors/explanations.ts";
import { type EndKind, endKindOf } from "../../observe/live/exchange_filter.ts";
import { type Style, styled, toPlain } from "../table.ts";
import type { LogEntry, LogEvent } from "./log_entry.ts";

/** Columns: their titles and initial widths. They widen with their content, up to a limit. */
const COLUMNS: readonly (readonly [title: string, width: number])[] = [
  ["TIME (UTC)", 23],
  ["STATUS", 6],
  ["END", 12],
  ["PROVIDER", 8],
  ["OPERATION", 16],
  ["MODEL", 12],
  ["KEY", 12],
  ["TEAM", 8],
  ["TOOK", 9],
  ["FIRST", 9],
  ["TOKENS", 8],
  ["ID", 36],
];
const MAX_WIDTH = 40;
/** The columns that are printed in the entry's style. */
const STATUS_COLUMN = 1;
const END_COLUMN = 2;
/** The first column with right-aligned numbers, and the first column after the numbers. */
const FIRST_NUMBER = 8;
const AFTER_NUMBERS = 11;

const STYLES: Readonly<Record<EndKind, Style>> = {
  ok: "green",
  errors: "red",
  refused: "yellow",
  cancelled: "gray",
};

/** Formats a time in UTC. */
const toTime = (ms: number): string => new Date(ms).toISOString().slice(0, 23).replace("T", " ");

/** Formats a duration. */
export function toDuration(ms: number | undefined): string {
  if (ms === undefined) return "-";
  if (ms < 1000) return `${Number(ms.toFixed(ms < 10 ? 1 : 0))} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(2)} s` : `${(ms / 60_000).toFixed(1)} min`;
}

/** Prints entries as lines of columns. */
export class EntryPrinter {
  readonly #widths = COLUMNS.map(([, width]) => width);

  /** Returns the titles. */
  head(): string {
    return styled("bold", this.#align(COLUMNS.map(([title]) => title)));
  }

  /** Returns the line of an entry, without its end. */
  toLine(entry: LogEntry): string {
    const {
      startedAt,
      status,
      code,
      outcome,
      cause,
      provider,
      operation,
      model,
      keyId,
      keyName,
      team,
      tokens,
      isEstimated,
    } = entry;
    const cells = [
      toTime(startedAt),
      String(status),
      `${code ?? outcome}${cause === undefined ? "" : ` (${cause})`}`,
      provider ?? "-",
      operation ?? "-",
      model ?? "-",
      keyName ?? keyId ?? "-",
      team ?? "-",
      toDuration(entry.durationMs),
      toDuration(entry.firstTokenMs),
      tokens === undefined ? "-" : `${isEstimated ? "~" : ""}${tokens.toLocaleString("en")}`,
      entry.id,
    ];
    return this.#align(cells.map(toPlain), STYLES[endKindOf(entry)]);
  }

  #align(cells: readonly string[], style?: Style): string {
    return cells.map((cell, column) => {
      const before = this.#widths[column] as number; // each cell has a column
      const width = Math.max(before, Math.min(cell.length, MAX_WIDTH));
      this.#widths[column] = width;
      const text = column >= FIRST_NUMBER && column < AFTER_NUMBERS
        ? cell.padStart(width)
        : cell.padEnd(width);
      const hasStyle = column === STATUS_COLUMN || column === END_COLUMN;
      return style !== undefined && hasStyle ? styled(style, text) : text;
    }).join("  ").trimEnd();
  }
}

/** Returns the line of an event, without its end. */
export function toEventLine({ at, event, instance, message }: LogEvent): string {
  const time = toTime(at);
  const from = instance === undefined ? event : `${event} (${instance})`;
  return `-- ${time}  ${toPlain(from)}  ${toPlain(message)}`;
}

/** Explains a failed exchange in some lines. Empty if it did not fail. */
export function explainEntry(entry: LogEntry): string {
  const explained = explainFailure(entry);
  if (explained === undefined) return "";
  const { what, why, side, toDo } = explained;
  const facts = [
    ["What", what],
    ["Limit", entry.limit],
    ["Why", why],
    ["Side", SIDES[side]],
    ["To do", toDo],
  ] as const;
  return facts.filter(([, text]) => text !== undefined)
    .map(([name, text]) => `  ${name.padEnd(6)}${text}\n`)
    .join("");
}
