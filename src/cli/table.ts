/**
 * Tables, lines and colours for a terminal.
 *
 * @module
 */
import process from "node:process";
import { styleText } from "node:util";
import { readVariable } from "./env_file.ts";

/** Characters that are two columns wide: East Asian characters, and pictures. */
const WIDE =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Emoji_Presentation}\uff01-\uff60]/gu;

/** The longest line: the minimum width of a terminal. Characters. */
export const WIDTH = 80;

/** Splits a text into lines of at most `width` characters, if no word is longer. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width) {
      lines[lines.length - 1] = `${last} ${word}`;
    } else lines.push(word);
  }
  return lines;
}

/** Returns a text in bold if standard output is a terminal. */
export const bold = (text: string): string => process.stdout.isTTY ? styleText("bold", text) : text;

/** Name of a style. */
export type Style = "bold" | "green" | "red" | "yellow" | "gray";

/**
 * Returns a text in a style if standard output is a terminal and NO_COLOR is not set
 * (https://no-color.org).
 */
export function styled(style: Style, text: string): string {
  // `styleText`'s own check of the stream would remove colours in continuous integration, even at a
  // terminal.
  return process.stdout.isTTY && !readVariable("NO_COLOR")
    ? styleText(style, text, { validateStream: false })
    : text;
}

/**
 * Replaces the control characters of a text. The name of a key or a model must not move the cursor.
 */
export function toPlain(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "\ufffd");
}

/** Returns the width of a text in terminal columns. */
function widthOf(text: string): number {
  const plain = text.replace(/\p{Mn}/gu, "");
  return Array.from(plain).length + (plain.match(WIDE)?.length ?? 0);
}

/**
 * Formats rows as columns, each as wide as its widest cell.
 *
 * @param head The titles, in the order of the cells
 * @param isNumber True if a column is aligned to the right
 */
export function alignColumns(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  isNumber: (column: number) => boolean = () => false,
): string {
  const plain = rows.map((row) => row.map(toPlain)); // each row has a cell for each title
  const widths = head.map((title, column) =>
    plain.reduce((width, row) => Math.max(width, widthOf(row[column] as string)), title.length)
  );
  const toLine = (row: readonly string[]) =>
    row.map((cell, column) => {
      const space = " ".repeat((widths[column] as number) - widthOf(cell));
      return isNumber(column) ? space + cell : cell + space;
    }).join("  ").trimEnd();
  return [bold(toLine(head)), ...plain.map(toLine)].join("\n");
}
