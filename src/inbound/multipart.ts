/**
 * Reads the text fields of a multipart body (RFC 7578) without copying its files. Strict where parsers differ: a policy
 * decides on the field `model`, and the provider must not find another one in the same bytes.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import { joinChunks } from "../http/read_all.ts";

const CR = 0x0d;
const LF = 0x0a;
const DASH = 0x2d;
/** Bytes of the longest header of a part, and of the longest field that is read. */
const MAX_HEADER_BYTES = 8192;
const MAX_FIELD_BYTES = 8192;
const MAX_PARTS = 1000;
// RFC 2046 §5.1.1: at most 70 characters, which need quotes if they are no token.
const MULTIPART_TYPE =
  /^multipart\/form-data *;(?:[^"]*;)? *boundary=(?:"([\w'()+,./:=? -]{1,70})"|([\w'+.-]{1,70})) *(?:;|$)/i;
// `name` as every library writes it. Anything else may be read in two ways.
const DISPOSITION = /^content-disposition: *form-data; *name="([^"\\]*)"(?:;(.*))?$/i;
const SECOND_NAME = /(?:^|[^a-z])name\*?[\d*]* *=/i;

const latin1 = new TextDecoder("latin1");

function refuse(detail: string): never {
  throw new GatewayError("invalid_body", { detail });
}

/** Tells whether a content type is one of a multipart body. */
export function isMultipart(contentType: string): boolean {
  return /^multipart\/form-data *(?:;|$)/i.test(contentType);
}

/** Finds bytes among others; -1 where they are not. */
function indexOf(bytes: Uint8Array, sought: Uint8Array, from: number): number {
  const first = sought[0] ?? 0;
  for (let at = bytes.indexOf(first, from); at !== -1; at = bytes.indexOf(first, at + 1)) {
    let length = 1;
    while (length < sought.length && bytes[at + length] === sought[length]) length++;
    if (length === sought.length) return at;
  }
  return -1;
}

/**
 * Returns a body without its boundary, by which two bodies can be compared: a client library that sends one again makes a
 * new boundary.
 *
 * @param bytes The whole body
 * @param contentType Its `Content-Type`
 * @returns The parts with a dash between them; the body itself if it is not a multipart one
 */
export function withoutBoundary(bytes: Uint8Array, contentType: string): Uint8Array {
  const [, quoted, plain] = MULTIPART_TYPE.exec(contentType) ?? [];
  const boundary = quoted ?? plain;
  if (boundary === undefined) return bytes;
  const delimiter = new TextEncoder().encode(`--${boundary}`);
  const pieces: Uint8Array[] = [];
  let from = 0;
  for (let at = indexOf(bytes, delimiter, 0); at !== -1; at = indexOf(bytes, delimiter, from)) {
    pieces.push(bytes.subarray(from, at), Uint8Array.of(DASH));
    from = at + delimiter.length;
  }
  return joinChunks([...pieces, bytes.subarray(from)]);
}

/** Returns the name of a part, and whether it is a file. @throws {GatewayError} `invalid_body` for a header that could be read as another name */
function nameOf(header: string): { readonly name: string; readonly isFile: boolean } {
  const lines = header.split("\r\n");
  const isAmbiguous = lines.some((line) => /^[ \t]|[\r\n]|^content-transfer-encoding\b/i.test(line));
  const dispositions = lines.filter((line) => /^content-disposition\b/i.test(line));
  const [, name, rest = ""] = DISPOSITION.exec(dispositions[0] ?? "") ?? [];
  if (name === undefined || dispositions.length > 1 || isAmbiguous || SECOND_NAME.test(rest)) {
    return refuse('expected parts with one Content-Disposition: form-data; name="…", and no transfer encoding');
  }
  return { name, isFile: /\bfilename\b/i.test(rest) };
}

/** One part of a body. */
interface Part {
  readonly name: string;
  readonly isFile: boolean;
  readonly content: Uint8Array;
}

/** Iterates over the parts of a body, from one boundary to the next. */
function* partsOf(bytes: Uint8Array, boundary: string): Generator<Part> {
  const delimiter = new TextEncoder().encode(`--${boundary}`);
  const blank = Uint8Array.of(CR, LF, CR, LF);
  // The first boundary has no line end before it; what stands before it would be read by nobody (RFC 2046 §5.1.1).
  if (!delimiter.every((byte, index) => bytes[index] === byte)) refuse("expected the boundary at the start");
  let at = delimiter.length;
  for (let parts = 0;; parts++) {
    if (bytes[at] === DASH && bytes[at + 1] === DASH) return assertEnd(bytes, at + 2);
    if (bytes[at] !== CR || bytes[at + 1] !== LF) refuse("expected a line end after each boundary");
    if (parts >= MAX_PARTS) refuse(`expected at most ${MAX_PARTS} parts`);
    const headerEnd = indexOf(bytes.subarray(0, at + MAX_HEADER_BYTES), blank, at);
    const next = indexOf(bytes, delimiter, at);
    if (headerEnd === -1 || next === -1) refuse("expected the closing boundary");
    // Lenient parsers take a boundary after any line end, or within a line: it stands nowhere else then.
    const isDelimiter = next >= headerEnd + 6 && bytes[next - 2] === CR && bytes[next - 1] === LF;
    if (!isDelimiter) refuse("expected each boundary at the start of a line, after CRLF");
    yield {
      ...nameOf(latin1.decode(bytes.subarray(at + 2, Math.max(at + 2, headerEnd)))),
      content: bytes.subarray(headerEnd + 4, next - 2),
    };
    at = next + delimiter.length;
  }
}

function assertEnd(bytes: Uint8Array, at: number): void {
  const isLine = bytes[at] === CR && bytes[at + 1] === LF;
  if (bytes.length !== (isLine ? at + 2 : at)) refuse("expected nothing after the closing boundary");
}

/** Fields of a multipart body. */
export interface FormFields<Name extends string> {
  /** Their texts; a field that is missing is left out. */
  readonly fields: Partial<Record<Name, string>>;
  /** Bytes of all fields that are no files. */
  readonly textBytes: number;
}

/**
 * Reads fields of a multipart body.
 *
 * @param bytes The whole body
 * @param contentType Its `Content-Type`
 * @param names Names of the fields
 * @returns Their texts, and the size of all texts
 * @throws {GatewayError} `invalid_body` for a field that is given twice, a missing closing boundary, or a form that
 *   parsers read differently
 */
export function readFields<Name extends string>(
  bytes: Uint8Array,
  contentType: string,
  names: readonly Name[],
): FormFields<Name> {
  const [, quoted, plain] = MULTIPART_TYPE.exec(contentType) ?? [];
  const boundary = quoted ?? plain ?? refuse("expected a boundary in the content type");
  const fields: Partial<Record<Name, string>> = {};
  let textBytes = 0;
  for (const { name, isFile, content } of partsOf(bytes, boundary)) {
    if (!isFile) textBytes += content.length;
    // Some parsers match names in any case.
    const known = names.find((each) => each === name.toLowerCase());
    if (known === undefined) continue;
    if (fields[known] !== undefined) {
      throw new GatewayError("invalid_body", { param: known, detail: "expected it once" });
    }
    if (content.length > MAX_FIELD_BYTES) {
      throw new GatewayError("invalid_body", { param: known, detail: "it is too long" });
    }
    fields[known] = new TextDecoder().decode(content);
  }
  return { fields, textBytes };
}
