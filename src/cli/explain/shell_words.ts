/**
 * Words of a command line, split as by a POSIX shell. The command is never run, and nothing is
 * expanded.
 *
 * @module
 */

/** Escapes of `$'…'`, as browsers write them. */
const ESCAPES: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t" };

function unescapeAnsi(text: string): string {
  return text.replace(
    /\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([^]))/g,
    (_, unicode?: string, hex?: string, character = "") => {
      const code = unicode ?? hex;
      return code === undefined
        ? ESCAPES[character] ?? character
        : String.fromCharCode(parseInt(code, 16));
    },
  );
}

/**
 * A piece of a word: quoted in one of three ways, an escaped character, the end of a line, or plain
 * text.
 */
const PIECE =
  /\$'((?:[^'\\]|\\[^])*)'|'([^']*)'|"((?:[^"\\]|\\[^])*)"|\\\r?(\n)|\\([^])|[^\s'"\\]+|(\s+)/gy;

/**
 * Splits a command line into its words, without their quotes.
 *
 * @param line One command. A backslash at the end of a line continues it on the next
 * @returns The words. Text after an unclosed quote is dropped
 */
export function splitWords(line: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  for (const [piece, ansi, single, double, continued, escaped, space] of line.matchAll(PIECE)) {
    if (space !== undefined) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (continued === undefined) {
      const text = ansi !== undefined ? unescapeAnsi(ansi) : double?.replace(/\\(["\\$`])/g, "$1");
      const part = text ?? single ?? escaped ?? piece;
      word = word === undefined ? part : word + part;
    }
  }
  if (word !== undefined) words.push(word);
  return words;
}
