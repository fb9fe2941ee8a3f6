/**
 * Parser of the HTTP/1.1 responses on a connection, one after another (RFC 9112, from the client's
 * side). It is strict and never guesses, because the end of each response must be certain: the next
 * response belongs to another caller.
 *
 * `feed` takes bytes as they arrive, cut anywhere. An incomplete header or line is kept and joined
 * with the next bytes. The data of all chunks in one read is joined in place and delivered as one
 * piece.
 *
 * | expected     | received                              | expected next                       |
 * | ------------ | ------------------------------------- | ----------------------------------- |
 * | `head`       | 1xx                                   | `head`: it is skipped               |
 * |              | 204, 304 or a length of 0              | `nothing`                           |
 * |              | `Transfer-Encoding: chunked`          | `chunk`                             |
 * |              | a length, or neither                  | `body`                              |
 * | `body`       | all bytes; without a length: `close`  | `nothing`                           |
 * | `chunk`      | a size above 0                        | `chunk data`                        |
 * |              | the size 0                            | `trailer`                           |
 * | `chunk data` | all bytes                             | `chunk end`                         |
 * | `chunk end`  | CRLF                                  | `chunk`                             |
 * | `trailer`    | a field                               | `trailer`: it is dropped            |
 * |              | an empty line                         | `nothing`: the response is complete |
 *
 * Everything else is a {@link MalformedResponse}. Bytes that arrive in the state `nothing` make the
 * connection unusable for another call.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import {
  HEAD_END,
  HeadReader,
  IncompleteBytes,
  MalformedResponse,
  MAX_HEADER_BYTES,
} from "./head_reader.ts";

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/; // RFC 9110 §5.6.2
const NO_FIELD_TEXT = /[^\t\x20-\x7e\x80-\xff]/; // RFC 9110 §5.5
const LENGTH = /^\d{1,15}$/;
const MAX_SIZE_DIGITS = 12;
/**
 * If a received piece is larger than this multiple of its body bytes, these are copied, so that the
 * piece is freed.
 */
const MAX_KEPT_RATIO = 16;
const EXTENSION = /^[\t ]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/; // of a chunk, RFC 9112 §7.1.1: ignored
const CR = 0x0d;
const LF = 0x0a;
const SPACE = 0x20;
const TAB = 0x09;

/** Receiver of parsed responses. */
export interface ResponseSink {
  /**
   * Receives the header of a response that is not interim.
   *
   * @param status HTTP status
   * @param headers Lower-case names. Repeated fields are joined with `", "`
   */
  head(status: number, headers: Map<string, string>): void;
  /** Receives a decoded part of its body. Not empty. */
  data(bytes: Uint8Array): void;
  /** Reports that the response is complete. */
  end(): void;
}

/** The part of a response that is expected next. */
type Expected = "head" | "body" | "chunk" | "chunk data" | "chunk end" | "trailer" | "nothing";

/** The parser of one connection. */
export class ResponseParser {
  readonly #sink: ResponseSink;
  #expected: Expected = "head";
  /**
   * Remaining bytes of the body, or of the chunk; Infinity for a body that ends with its
   * connection.
   */
  #left = 0;
  readonly #heads = new HeadReader(MAX_HEADER_BYTES);
  /** The received part of a header or a line. */
  readonly #incomplete = new IncompleteBytes();
  #trailerBytes = 0;
  #isPersistent = false;
  /** True if the response belongs to a `HEAD`. It has no body, regardless of its header. */
  #isHead = false;

  constructor(sink: ResponseSink) {
    this.#sink = sink;
  }

  /**
   * Returns whether the connection can carry another call: the last response is complete, no bytes
   * followed it, and the server did not announce that it closes the connection.
   */
  get isReusable(): boolean {
    return this.#expected === "nothing" && this.#isPersistent;
  }

  /** True while a body is read that ends with its connection. */
  get endsWithConnection(): boolean {
    return this.#expected === "body" && this.#left === Infinity;
  }

  /** Prepares for the next response. */
  next(isHead = false): void {
    this.#expected = "head";
    this.#heads.reset();
    this.#isHead = isHead;
  }

  /**
   * Parses received bytes.
   *
   * @param received Received bytes. They can be overwritten, because the data of chunks is joined
   * in place
   * @throws {MalformedResponse} For bytes that are not a valid response
   */
  feed(received: Buffer): void {
    let searched = this.#incomplete.length; // of the first header or line
    const bytes = this.#incomplete.join(received);
    let first = 0; // start and end of the body in these bytes
    let last = 0;
    let at = 0;
    while (at < bytes.length && this.#expected !== "nothing") {
      const from = at;
      if (this.#expected === "head") at = this.#readHead(bytes, at, searched);
      else if (this.#expected === "body" || this.#expected === "chunk data") {
        at = Math.min(at + this.#left, bytes.length);
        if (first === last) first = last = from;
        else bytes.copyWithin(last, from, at);
        last += at - from;
        this.#left -= at - from;
        if (this.#left === 0) this.#expected = this.#expected === "body" ? "nothing" : "chunk end";
      } else at = this.#readLine(bytes, at, searched);
      if (at === from) {
        this.#incomplete.keep(bytes, at);
        break;
      }
      searched = 0;
    }
    // More bytes arrived than were requested.
    if (at < bytes.length && this.#expected === "nothing") this.#isPersistent = false;
    if (first < last) {
      const data = bytes.subarray(first, last);
      this.#sink.data(bytes.length > data.length * MAX_KEPT_RATIO ? Buffer.from(data) : data);
    }
    if (this.#expected === "nothing") this.#sink.end();
  }

  /** Handles the regular end of the connection by its other side. */
  close(): boolean {
    const isEnd = this.endsWithConnection;
    if (isEnd) this.#expected = "nothing";
    this.#isPersistent = false;
    if (isEnd) this.#sink.end();
    return isEnd;
  }

  /** Reads a header. @returns Its end, or `at` while it is incomplete */
  #readHead(bytes: Buffer, at: number, searched: number): number {
    const head = this.#heads.find(bytes, at, searched);
    if (head === undefined) return at;
    const [line = "", ...fields] = head.split("\r\n");
    const [, minor, code] = STATUS_LINE.exec(line) ?? [];
    if (code === undefined) throw new MalformedResponse("It does not begin with a status");
    const headers = toHeaders(fields);
    const status = Number(code);
    if (status === 101) throw new MalformedResponse("It changes to another protocol");
    if (status < 200) this.#heads.countInterim(head);
    else {
      this.#frame(status, headers, minor === "1");
      this.#sink.head(status, headers);
    }
    return at + head.length + HEAD_END.length;
  }

  /** Determines how the body ends (RFC 9112 §6.3). */
  #frame(status: number, headers: ReadonlyMap<string, string>, isCurrent: boolean): void {
    const length = headers.get("content-length");
    const coding = headers.get("transfer-encoding");
    const isChunkedAlone = length === undefined && isCurrent && coding?.toLowerCase() === "chunked";
    if (coding !== undefined && !isChunkedAlone) {
      throw new MalformedResponse("Where its body ends can't be told");
    }
    if (length !== undefined && !LENGTH.test(length)) {
      throw new MalformedResponse("Its length is no number");
    }
    const isChunked = coding !== undefined;
    const isBodiless = this.#isHead || status === 204 || status === 304; // regardless of its header
    this.#left = isChunked ? 0 : Number(length ?? (isBodiless ? 0 : Infinity));
    this.#trailerBytes = 0;
    if (isBodiless) this.#expected = "nothing";
    else if (isChunked) this.#expected = "chunk";
    else this.#expected = this.#left === 0 ? "nothing" : "body";
    // If a 204 or 304 wrongly has a body, that must not be parsed as the next response.
    const isEndKnown = this.#isHead ||
      (isBodiless ? !isChunked && this.#left === 0 : this.#left < Infinity);
    const options = (headers.get("connection") ?? "").toLowerCase().split(",");
    this.#isPersistent = isCurrent && isEndKnown &&
      !options.some((option) => option.trim() === "close");
  }

  /** Reads a line between the data of chunks. @returns Its end, or `at` while it is incomplete */
  #readLine(bytes: Buffer, at: number, searched: number): number {
    const end = endOfLine(bytes, at, searched);
    const hasMore = bytes[at] !== CR || end > at;
    if (this.#expected === "chunk end" && hasMore) {
      throw new MalformedResponse("A chunk is longer than it says");
    }
    if (end === -1) return at;
    if (this.#expected === "chunk end") this.#expected = "chunk";
    else if (this.#expected === "chunk") {
      this.#left = readSize(bytes, at, end);
      this.#expected = this.#left === 0 ? "trailer" : "chunk data";
    } else if (end === at) this.#expected = "nothing";
    else this.#checkTrailer(bytes.toString("latin1", at, end));
    return end + 2;
  }

  /** Checks a field of the trailer, which is then dropped. */
  #checkTrailer(field: string): void {
    this.#trailerBytes += field.length;
    if (this.#trailerBytes > MAX_HEADER_BYTES) {
      throw new MalformedResponse("The trailer is too large");
    }
    toHeaders([field]);
  }
}

/**
 * Returns the index of a line's CRLF, or -1 while it has not arrived. Bytes that an earlier call
 * has searched contain no line end.
 */
function endOfLine(bytes: Buffer, at: number, searched: number): number {
  const limit = Math.min(bytes.length, at + MAX_HEADER_BYTES + 2);
  for (let index = at + searched; index < limit; index++) {
    if (bytes[index] !== LF) continue;
    if (index > at && bytes[index - 1] === CR) return index - 1;
    throw new MalformedResponse("A line between chunks does not end as it should");
  }
  if (bytes.length - at > MAX_HEADER_BYTES + 1) throw new MalformedResponse("A line is too large");
  return -1;
}

/** Reads the size of a chunk. */
function readSize(bytes: Buffer, at: number, end: number): number {
  let size = 0;
  let index = at;
  for (; index < end; index++) {
    const byte = bytes[index] as number;
    const digit = byte <= 0x39 ? byte - 0x30 : (byte | 0x20) - 0x57; // 0-9, then a-f in either case
    const isDigit = digit >= 0 && digit <= 15 && (byte <= 0x39 || digit >= 10);
    if (!isDigit) break;
    size = size * 16 + digit;
  }
  const isSize = index > at && index - at <= MAX_SIZE_DIGITS;
  if (isSize && (index === end || EXTENSION.test(bytes.toString("latin1", index, end)))) {
    return size;
  }
  throw new MalformedResponse("A chunk has no size");
}

function toHeaders(fields: readonly string[]): Map<string, string> {
  const headers = new Map<string, string>();
  for (const field of fields) {
    const colon = field.indexOf(":");
    const name = field.slice(0, Math.max(0, colon));
    // A folded line begins with a space, unlike every name.
    if (!TOKEN.test(name) || NO_FIELD_TEXT.test(field)) {
      throw new MalformedResponse("A header is malformed");
    }
    const value = trimBlanks(field.slice(colon + 1));
    const key = name.toLowerCase();
    const earlier = headers.get(key);
    headers.set(key, earlier === undefined ? value : `${earlier}, ${value}`);
  }
  return headers;
}

/**
 * Removes spaces and tabs at both ends. Other characters that `trim` would remove are either
 * refused or text here.
 */
function trimBlanks(text: string): string {
  const isBlank = (index: number) =>
    text.charCodeAt(index) === SPACE || text.charCodeAt(index) === TAB;
  let first = 0;
  let last = text.length;
  while (isBlank(first)) first++;
  while (last > first && isBlank(last - 1)) last--;
  return text.slice(first, last);
}
