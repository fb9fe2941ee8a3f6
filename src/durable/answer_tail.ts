/**
 * The last bytes of an answer in the clear: those that its store does not have yet.
 *
 * @module
 */
import { joinChunks } from "../http/read_all.ts";

interface Piece {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

/** Bytes from some offset of an answer to its present end. */
export class AnswerTail {
  #pieces: Piece[] = [];
  #end = 0;

  /** Offset of the first byte that is here, or of the next one if there is none. */
  get start(): number {
    return this.#pieces[0]?.offset ?? this.#end;
  }

  /** Number of bytes of the answer so far. */
  get end(): number {
    return this.#end;
  }

  /** Takes the next bytes. @returns Their offset */
  push(bytes: Uint8Array): number {
    const offset = this.#end;
    this.#end += bytes.byteLength;
    this.#pieces.push({ offset, bytes });
    return offset;
  }

  /** Returns the bytes from an offset on; `undefined` if the first of them are not here. */
  from(offset: number): Uint8Array | undefined {
    const index = this.#pieces.findLastIndex((piece) => piece.offset <= offset);
    const piece = this.#pieces[index];
    if (piece === undefined) return undefined;
    const rest = this.#pieces.slice(index + 1).map(({ bytes }) => bytes);
    return joinChunks([piece.bytes.subarray(offset - piece.offset), ...rest]);
  }

  /** Returns the pieces from an offset on, at which one begins. */
  piecesFrom(offset: number): readonly Uint8Array[] {
    return this.#pieces.filter((piece) => piece.offset >= offset).map(({ bytes }) => bytes);
  }

  /** Lets go of pieces that end before or at an offset. */
  dropTo(offset: number): void {
    const first = this.#pieces.findIndex((piece) => piece.offset + piece.bytes.byteLength > offset);
    this.#pieces = first === -1 ? [] : this.#pieces.slice(first);
  }
}
