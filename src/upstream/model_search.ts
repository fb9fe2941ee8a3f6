/**
 * Finds the model that answered, for a call that names several: each can have another price.
 *
 * @module
 */
import { AnswerBeginning } from "../dialects/answer_beginning.ts";

/** A string, which can be cut at the end of the text, or a bracket. */
const TOKENS = /"(?:[^"\\]|\\.)*\\?(?:"|$)|[{}[\]]/gs;
/**
 * Comments in a stream of events: quotes in them begin no string. Without the flag `m`, which ends
 * lines also at U+2028, a character that a string can contain.
 */
const COMMENTS = /(?<=^|[\r\n]):[^\r\n]*/g;
const KEY = '"model"';
const NAME = /\s*:\s*"([^"\\]{1,256})"/y;
/** Change of the depth by each bracket. */
const DEPTHS: ReadonlyMap<string, number> = new Map([["{", 1], ["[", 1], ["}", -1], ["]", -1]]);

/**
 * Finds the model in the object that has the fewest objects around it. Deeper objects can repeat
 * what a caller wrote, such as `metadata`.
 */
function findModel(text: string): string | undefined {
  let depth = 0;
  let found: string | undefined;
  let foundDepth = Infinity;
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    depth += DEPTHS.get(token) ?? 0;
    if (token !== KEY || depth >= foundDepth) continue;
    NAME.lastIndex = index + token.length;
    const [, name] = NAME.exec(text) ?? [];
    if (name !== undefined) [found, foundDepth] = [name, depth];
  }
  return found;
}

/** A search for the model in an answer. */
export class ModelSearch extends AnswerBeginning {
  /** The model; `undefined` if the beginning of the answer names none. */
  get name(): string | undefined {
    return findModel(this.text.replace(COMMENTS, ""));
  }
}
