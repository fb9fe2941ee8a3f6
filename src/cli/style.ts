/**
 * Colours for people at a terminal: none into a pipe, and none with NO_COLOR
 * (https://no-color.org).
 *
 * @module
 */
import process from "node:process";
import { styleText } from "node:util";

/** Name of a style. */
export type Style = "bold" | "green" | "red" | "yellow" | "gray";

function isPlainWanted(): boolean {
  try {
    return (process.env.NO_COLOR ?? "") !== "";
  } catch {
    return false; // Deno: not allowed to know
  }
}

/** Returns a text in a style, where standard output shows it. */
export function styled(style: Style, text: string): string {
  // Its own look at the stream would take colours away in continuous integration, terminal or not.
  return process.stdout.isTTY && !isPlainWanted()
    ? styleText(style, text, { validateStream: false })
    : text;
}
