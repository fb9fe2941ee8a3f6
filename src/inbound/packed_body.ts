/**
 * Packed bodies (`Content-Encoding`): they are unpacked to be read. The caller's own bytes are
 * forwarded.
 *
 * The provider must unpack the same content. So whatever decoders read differently is refused:
 * several codings, several members or frames, other bytes after the end, raw deflate, and bytes
 * that could also be read as JSON.
 *
 * @module
 */
import { formatSize } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { ByteSource, Unpack } from "../http/message.ts";
import { readAll, type ReadAllOptions } from "../http/read_all.ts";
import { BytePattern } from "./byte_pattern.ts";

/** Largest ratio of unpacked to packed bytes. Text of agents has a ratio of 3 to 20. */
const MAX_RATIO = 200;
/** Unpacked bytes that are accepted with any ratio: a short text can repeat itself. */
const FREE_BYTES = 65_536;
const EMPTY: ByteSource = { read: () => Promise.resolve(undefined), cancel() {} };

/**
 * End of an empty gzip member, which has a checksum and a size of zero (RFC 1952 §2.3.1), and the
 * beginning of another member.
 */
const EMPTY_MEMBER_END = new BytePattern(Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0x1f, 0x8b, 8));

/**
 * Returns whether gzip that was unpacked is one member. The last member states its own size (RFC
 * 1952 §2.3.1), so members with content before it are found by the size. Empty members are found by
 * their end, because a decoder that reads one member would read no content. One member contains the
 * same 11 bytes with a probability below 2^-24, and only next to a long repetition.
 */
function isOneGzipMember(packed: Uint8Array, bytes: DataView, contentBytes: number): boolean {
  return bytes.getUint32(bytes.byteLength - 4, true) === contentBytes &&
    EMPTY_MEMBER_END.findIn(packed, 0) === -1;
}

/** Returns whether bytes have the zlib format without a dictionary (RFC 1950 §2.2). */
function isZlib(bytes: DataView): boolean {
  if (bytes.byteLength < 2) return false;
  const header = bytes.getUint16(0);
  return (header & 0x0f20) === 0x0800 && header % 31 === 0;
}

/**
 * Brotli has no mark at its beginning. Returns whether no JSON text can begin with the first byte:
 * white space, the mark of an encoding, or the zero of UTF-16. No content in Brotli begins with a
 * brace.
 */
function isNoText(first: number): boolean {
  return ![0x00, 0x09, 0x0a, 0x0d, 0x20, 0xef].includes(first);
}

/**
 * The lowest bits of Brotli with a large window, which RFC 7932 §9.1 does not have. Deno 2.9 unpacks
 * it.
 */
const LARGE_WINDOW = 0x11;

function isBrotli(bytes: DataView): boolean {
  if (bytes.byteLength === 0) return false;
  const first = bytes.getUint8(0);
  return isNoText(first) && (first & 0x7f) !== LARGE_WINDOW;
}

/** Bytes of the id of a dictionary, by the flag in the descriptor of a frame. */
const DICTIONARY_ID_BYTES: readonly number[] = [0, 1, 2, 4];
const RLE_BLOCK = 1;

/**
 * Returns whether bytes are one whole Zstandard frame (RFC 8878 §3.1.1). Bun 1.4 and Deno 2.9
 * accept a truncated one.
 */
function isOneZstdFrame(bytes: DataView): boolean {
  const { byteLength } = bytes;
  if (byteLength < 9 || bytes.getUint32(0) !== 0x28b52ffd) return false;
  const descriptor = bytes.getUint8(4);
  const isSingleSegment = (descriptor & 0x20) !== 0;
  const sizeFlag = descriptor >> 6;
  const sizeBytes = sizeFlag === 0 ? Number(isSingleSegment) : 1 << sizeFlag;
  let at = 5 + Number(!isSingleSegment) + (DICTIONARY_ID_BYTES[descriptor & 3] ?? 0) + sizeBytes;
  for (let isLast = false; !isLast;) {
    if (at + 3 > byteLength) return false;
    const header = bytes.getUint16(at, true) | bytes.getUint8(at + 2) << 16;
    isLast = (header & 1) === 1;
    at += 3 + ((header >> 1 & 3) === RLE_BLOCK ? 1 : header >> 3);
  }
  const checksumBytes = descriptor & 4;
  return at + checksumBytes === byteLength;
}

/** By coding: whether packed bytes can have only one meaning. */
const FORMS: Readonly<Record<string, (bytes: DataView) => boolean>> = {
  gzip: (bytes) => bytes.byteLength >= 18 && bytes.getUint16(0) === 0x1f8b,
  deflate: isZlib,
  br: isBrotli,
  zstd: isOneZstdFrame,
};

/**
 * Returns the coding of a packed body.
 *
 * @param written Value of `Content-Encoding`
 * @throws {GatewayError} `unsupported_content_encoding`, which names the codings of this runtime
 */
export function toCoding(written: string, isJson: boolean, unpack: Unpack): string {
  const coding = written.trim().toLowerCase();
  const known = Object.keys(FORMS).filter((name) => unpack(name, EMPTY, 0) !== undefined);
  if (isJson && known.includes(coding)) return coding;
  const detail = isJson
    ? `expected one of ${known.join(", ")}`
    : "only a body of JSON can have a content encoding";
  throw new GatewayError("unsupported_content_encoding", { detail });
}

/** Conditions of unpacking a body. */
export interface UnpackOptions extends Pick<ReadAllOptions, "exchange" | "deadline"> {
  readonly unpack: Unpack;
  readonly maxBodyBytes: number;
  /** Counts memory for the unpacked bytes so far. Throws if there is none. */
  reserve(byteLength: number): void;
}

/**
 * Unpacks a body.
 *
 * @throws {GatewayError} `invalid_content_encoding`, `body_too_large`, `gateway_overloaded`
 */
export async function unpackBody(
  packed: Uint8Array,
  coding: string,
  { unpack, maxBodyBytes, reserve, ...reading }: UnpackOptions,
): Promise<Uint8Array> {
  const bytes = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const mostBytes = Math.min(maxBodyBytes, Math.max(packed.byteLength * MAX_RATIO, FREE_BYTES));
  const source = FORMS[coding]?.(bytes) ? unpack(coding, toSource(packed), mostBytes) : undefined;
  if (source === undefined) throw new GatewayError("invalid_content_encoding");
  const accept = (byteLength: number) => {
    if (byteLength > mostBytes) throw tooLarge(mostBytes, maxBodyBytes);
    reserve(byteLength);
  };
  const toError = (cause: unknown) =>
    cause instanceof RangeError
      ? tooLarge(mostBytes, maxBodyBytes)
      : new GatewayError("invalid_content_encoding");
  try {
    const content = await readAll(source, { ...reading, accept, toError });
    if (coding === "gzip" && !isOneGzipMember(packed, bytes, content.byteLength)) {
      throw new GatewayError("invalid_content_encoding");
    }
    return content;
  } finally {
    source.cancel();
  }
}

function tooLarge(mostBytes: number, maxBodyBytes: number): GatewayError {
  const limit = mostBytes === maxBodyBytes
    ? `the limit is ${formatSize(maxBodyBytes)}`
    : `the limit is ${MAX_RATIO} times the packed size`;
  return new GatewayError("body_too_large", { detail: `unpacked, ${limit}` });
}

function toSource(bytes: Uint8Array): ByteSource {
  let isRead = false;
  return {
    read() {
      const next = isRead ? undefined : bytes;
      isRead = true;
      return Promise.resolve(next);
    },
    cancel() {},
  };
}
