/** The least that reads HTTP/1.1 answers of one connection, one after the other: status, type, and the bytes of the body. */
import { Buffer } from "node:buffer";

/** Takes an answer. */
export interface Sink {
  head(status: number, type: string): void;
  /** What one read brought, without what frames it. */
  body(bytes: Uint8Array): void;
  end(): void;
}

/** @returns Takes what was read and tells the sink, which may be another one for each answer */
export function readAnswers(sink: () => Sink | undefined): (read: Uint8Array) => void {
  let kept: Buffer | undefined;
  let [hasHead, isChunked, left] = [false, false, 0];
  return (read) => {
    let data = kept === undefined
      ? Buffer.from(read.buffer, read.byteOffset, read.length)
      : Buffer.concat([kept, read]);
    kept = undefined;
    const pieces: Buffer[] = [];
    let isOver = false;
    if (!hasHead) {
      const end = data.indexOf("\r\n\r\n");
      if (end < 0) return void (kept = data);
      const head = data.toString("latin1", 0, end);
      const length = /\ncontent-length: (\d+)/i.exec(head)?.[1];
      [hasHead, isChunked, left] = [true, length === undefined, Number(length ?? 0)];
      sink()?.head(Number(head.slice(9, 12)), /\ncontent-type: ([^\r]*)/i.exec(head)?.[1] ?? "");
      data = data.subarray(end + 4);
    }
    while (!isOver) {
      if (left > 0) {
        const piece = data.subarray(0, left);
        if (piece.length > 0) pieces.push(piece);
        left -= piece.length;
        data = data.subarray(piece.length);
        if (left > 0) break;
      }
      if (!isChunked) isOver = true;
      else {
        const start = data[0] === 13 ? 2 : 0; // the end of the chunk before
        const end = data.indexOf("\r\n", start);
        const size = end < 0 ? -1 : Number.parseInt(data.toString("latin1", start, end), 16);
        if (size < 0 || (size === 0 && data.length < end + 4)) {
          if (data.length > 0) kept = Buffer.from(data);
          break;
        }
        [isOver, left, data] = [size === 0, size, data.subarray(end + 2)];
      }
    }
    const [only] = pieces;
    if (only !== undefined) sink()?.body(pieces.length === 1 ? only : Buffer.concat(pieces));
    if (isOver) {
      hasHead = false;
      sink()?.end();
    }
  };
}

/** @returns A whole request for the provider */
export function toRequest(authorization: string, body: Uint8Array): Buffer {
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: provider\r\nauthorization: ${authorization}\r\n` +
    `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head, "latin1"), body]);
}
