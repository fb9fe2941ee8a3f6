/**
 * Reads a stream of `application/vnd.amazon.eventstream` frame by frame, without changing it
 * (https://smithy.io/2.0/aws/amazon-eventstream.html). A frame has a prelude of 12 bytes (its
 * length, the length of its headers, a checksum), headers, a payload and a checksum. The checksums
 * are left to the client.
 *
 * @module
 */
import { joinChunks } from "../http/read_all.ts";
import { JsonSkeleton } from "./json_skeleton.ts";

/** One frame. */
export interface Frame {
  /** Its headers with text, such as `:event-type`. */
  readonly headers: ReadonlyMap<string, string>;
  /**
   * Its payload. Of a frame larger than {@link MAX_READ_BYTES} the skeleton of its JSON; empty if
   * that is too long, or if it is no JSON.
   */
  readonly payload: Uint8Array;
}

const PRELUDE_BYTES = 12;
const CHECKSUM_BYTES = 4;
/**
 * The largest frame that is read whole. AWS allows 24 MB. Usage can be in a frame with all that a
 * guardrail has read, so the headers and the skeleton of larger frames are read.
 */
const MAX_READ_BYTES = 131_072;
/** Bytes of a header's value by its type; type 6 and 7 state their length. */
const VALUE_BYTES = [0, 0, 1, 2, 4, 8, undefined, undefined, 8, 16] as const;
const TEXT_TYPE = 7;
const utf8 = new TextDecoder();

const viewOf = ({ buffer, byteOffset, byteLength }: Uint8Array): DataView =>
  new DataView(buffer, byteOffset, byteLength);

/** Reads the headers with text. A header of an unknown type ends them. */
function readHeaders(bytes: Uint8Array): Map<string, string> {
  const headers = new Map<string, string>();
  const view = viewOf(bytes);
  let at = 0;
  while (at < bytes.length) {
    const nameEnd = at + 1 + view.getUint8(at);
    const type = view.getUint8(nameEnd);
    const fixed = VALUE_BYTES[type];
    if (fixed === undefined && type !== TEXT_TYPE && type !== TEXT_TYPE - 1) break;
    const start = nameEnd + (fixed === undefined ? 3 : 1);
    const end = start + (fixed ?? view.getUint16(nameEnd + 1));
    const name = utf8.decode(bytes.subarray(at + 1, nameEnd));
    if (type === TEXT_TYPE) headers.set(name, utf8.decode(bytes.subarray(start, end)));
    at = end;
  }
  return headers;
}

/** Divides a stream into frames. The result does not depend on the division into chunks. */
export class FrameReader {
  readonly #onFrame: (frame: Frame) => void;
  /**
   * The bytes of the unfinished frame that are read: the first {@link #readBytes}. Copies, because
   * runtimes can reuse the buffer.
   */
  #parts: Uint8Array[] = [];
  /** Bytes of the unfinished frame so far. */
  #frameBytes = 0;
  /** Length of the unfinished frame; 0 before its prelude is complete. */
  #length = 0;
  #readBytes = PRELUDE_BYTES;
  /** The payload of an unfinished frame that is too large. */
  #skeleton: JsonSkeleton | undefined;
  /** True after bytes that are no frame. The rest is not read. */
  #isBroken = false;

  /** @param onFrame Receives each frame */
  constructor(onFrame: (frame: Frame) => void) {
    this.#onFrame = onFrame;
  }

  /** True between two frames. */
  get isAtBoundary(): boolean {
    return this.#frameBytes === 0 && !this.#isBroken;
  }

  /** Reads the next bytes. */
  push(chunk: Uint8Array): void {
    let rest = chunk;
    while (rest.length > 0 && !this.#isBroken) {
      const wanted = (this.#length === 0 ? PRELUDE_BYTES : this.#length) - this.#frameBytes;
      const taken = rest.subarray(0, wanted);
      rest = rest.subarray(taken.length);
      const read = taken.subarray(0, Math.max(0, this.#readBytes - this.#frameBytes));
      const payloadEnd = this.#length - CHECKSUM_BYTES - this.#frameBytes;
      this.#skeleton?.push(taken, read.length, Math.min(taken.length, payloadEnd));
      this.#frameBytes += taken.length;
      if (read.length > 0) this.#parts.push(new Uint8Array(read));
      if (taken.length === wanted) this.#advance();
    }
  }

  /** Goes on after the prelude, or after the frame. */
  #advance(): void {
    if (this.#length === 0) {
      const prelude = viewOf(joinChunks(this.#parts));
      this.#length = prelude.getUint32(0);
      const isLarge = this.#length > MAX_READ_BYTES;
      const headersEnd = PRELUDE_BYTES + prelude.getUint32(4);
      this.#readBytes = isLarge ? Math.min(headersEnd, MAX_READ_BYTES) : this.#length;
      this.#skeleton = isLarge ? new JsonSkeleton() : undefined;
      this.#isBroken = this.#length < PRELUDE_BYTES + CHECKSUM_BYTES;
      return;
    }
    this.#read(joinChunks(this.#parts));
    this.#parts = [];
    this.#frameBytes = this.#length = 0;
    this.#readBytes = PRELUDE_BYTES;
  }

  #read(bytes: Uint8Array): void {
    try {
      const headersEnd = PRELUDE_BYTES + viewOf(bytes).getUint32(4);
      const headers = readHeaders(bytes.subarray(PRELUDE_BYTES, headersEnd));
      const payload = this.#skeleton === undefined
        ? bytes.subarray(headersEnd, bytes.length - CHECKSUM_BYTES)
        : Uint8Array.from(this.#skeleton.text ?? "", (byte) => byte.charCodeAt(0));
      this.#onFrame({ headers, payload });
    } catch {
      this.#isBroken = true; // its headers leave their bounds
    }
  }
}
