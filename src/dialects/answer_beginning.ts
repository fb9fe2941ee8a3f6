/**
 * The beginning of an answer, in the pieces in which it arrives.
 *
 * @module
 */
import { MAX_KEPT_BYTES } from "./dialect.ts";

/** Keeps the beginning of one answer. */
export class AnswerBeginning {
  readonly #utf8 = new TextDecoder();
  #bytes = 0;
  /** The text so far. */
  text = "";

  /** Adds the next bytes. */
  push(chunk: Uint8Array): void {
    if (this.#bytes >= MAX_KEPT_BYTES) return;
    const part = chunk.subarray(0, MAX_KEPT_BYTES - this.#bytes);
    this.#bytes += part.length;
    this.text += this.#utf8.decode(part, { stream: true });
  }
}
