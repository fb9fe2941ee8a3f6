/**
 * Suggestions for a mistyped word.
 *
 * @module
 */

/** The largest share of a word that can be mistyped. */
const MISTYPED_PART = 0.4;

/**
 * Counts the letters to insert, remove, replace or swap with their neighbour to turn one word into
 * another (optimal string alignment).
 */
function distance(from: string, to: string): number {
  let [before, last]: [number[], number[]] = [
    [],
    Array.from({ length: to.length + 1 }, (_, column) => column),
  ];
  const at = (row: readonly number[], column: number) => row[column] ?? Infinity;
  for (let row = 1; row <= from.length; row++) {
    const next = [row];
    for (let column = 1; column <= to.length; column++) {
      const isSame = from[row - 1] === to[column - 1];
      const isSwapped = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      next.push(Math.min(
        at(last, column) + 1,
        at(next, column - 1) + 1,
        at(last, column - 1) + (isSame ? 0 : 1),
        isSwapped ? at(before, column - 2) + 1 : Infinity,
      ));
    }
    [before, last] = [last, next];
  }
  return at(last, to.length);
}

/**
 * Finds the word that was probably meant; `undefined` if none is near, or the word was typed
 * correctly.
 */
export function findNearest(typed: string, words: readonly string[]): string | undefined {
  const limit = Math.max(1, Math.floor(typed.length * MISTYPED_PART));
  const [nearest] = words.map((word) => ({ word, far: distance(typed, word) }))
    .filter(({ word, far }) => far <= limit || (typed.length > 2 && word.startsWith(typed)))
    .toSorted((one, other) => one.far - other.far);
  return nearest?.far === 0 ? undefined : nearest?.word;
}
