/**
 * The smallest possible reader for the HTTP/1.1 answers of one connection, one after the other:
 * status, type, and the bytes of the body.
 */
import { Buffer } from "node:buffer";

/** Receives a whole answer, or its pieces. */
export interface Sink {
  whole(status: number, type: string, body: Uint8Array<ArrayBuffer>): void;
  head(status: number, type: string): void;
  /** Body bytes of one read, without framing. */
  body(bytes: Uint8Array): void;
  end(): void;
}

/**
 * @returns A function that parses the bytes of each read and passes them to the sink, which can be
 * a different one for each answer
 */
export function readAnswers(sink: () => Sink | undefined): (read: Uint8Array) => void {
  let [head, hasHead, isChunked, status, type] = ["", false, false, 0, ""];
  let [left, size, digits, isLast] = [0, 0, 0, false];
  const kept: Uint8Array[] = [];
  const begin = (read: Uint8Array): number => {
    const before = head.length;
    head += Buffer.from(read).toString("latin1");
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return read.length;
    const length = /\ncontent-length: (\d+)/i.exec(head)?.[1];
    [hasHead, isChunked, left] = [true, length === undefined, Number(length ?? 0)];
    [size, digits, isLast] = [0, 0, false];
    [status, type] = [
      Number(head.slice(9, 12)),
      /\ncontent-type: ([^\r]*)/i.exec(head.slice(0, end))?.[1] ?? "",
    ];
    if (isChunked) sink()?.head(status, type);
    head = "";
    return end + 4 - before;
  };
  return (read) => {
    const pieces: Uint8Array[] = [];
    let isOver = false;
    for (let at = hasHead ? 0 : begin(read); at < read.length && !isOver;) {
      if (left > 0) {
        const length = Math.min(left, read.length - at);
        pieces.push(new Uint8Array(read.buffer, read.byteOffset + at, length));
        at += length;
        left -= length;
        isOver = left === 0 && !isChunked;
        continue;
      }
      const byte = read[at++] ?? 0;
      if (byte === 10) { // the end of a chunk's size, of a chunk, or of the whole answer
        if (digits > 0) [left, isLast, size, digits] = [size, size === 0, 0, 0];
        else isOver = isLast;
      } else if (byte !== 13) {
        size = size * 16 + (byte < 58 ? byte - 48 : (byte | 32) - 87);
        digits++;
      }
    }
    if (isOver) hasHead = false;
    if (isChunked) {
      if (pieces.length > 0) {
        sink()?.body(pieces.length === 1 ? pieces[0] as Uint8Array : Buffer.concat(pieces));
      }
      if (isOver) sink()?.end();
    } else if (isOver) sink()?.whole(status, type, Buffer.concat([...kept.splice(0), ...pieces]));
    else kept.push(...pieces.map((piece) => piece.slice()));
  };
}

/** @returns A whole request for the provider */
export function toRequest(authorization: string, body: Uint8Array): Uint8Array {
  const head =
    `POST /v1/chat/completions HTTP/1.1\r\nhost: provider\r\nauthorization: ${authorization}\r\n` +
    `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head, "latin1"), body]);
}
