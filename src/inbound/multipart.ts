/**
 * Reads the text fields of a multipart body (RFC 7578) without copying its files. Strict where
 * parsers differ: policies read the field `model`, and the provider must not find another model in
 * the same bytes.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import { lenientName } from "../http/field_name.ts";
import { joinChunks } from "../http/read_all.ts";
import { BytePattern } from "./byte_pattern.ts";

const CR = 0x0d;
const LF = 0x0a;
const DASH = 0x2d;
/** Maximum size of the header of a part, and of a field that is read. Bytes. */
const MAX_HEADER_BYTES = 8192;
const MAX_FIELD_BYTES = 8192;
const MAX_PARTS = 1000;
const MULTIPART = /^multipart\/form-data *(?:;|$)/i;
const PARAMETER = /^ *([\w!#$%&'*+.^`|~-]+)=(?:"([^"\\]*)"|([\w'+.-]+)) *(?:;|$)/;
// RFC 2046 §5.1.1: at most 70 of these characters, and no space at the end.
const BOUNDARY = /^[\w'()+,./:=? -]{0,69}[\w'()+,./:=?-]$/;
const UTF8 = /^utf-?8$/i;
// RFC 9110 §5.6.2, §5.5: a line of a part's header, without controls. Some parsers strip them,
// others do not.
const HEADER_LINE = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[ -~\u0080-\uffff]*$/;
// `name` and `filename` as every library writes them. Other forms are ambiguous.
const FILE_NAME = '; *filename(?:\\*=[\\w\'%.!#$&+^`|~-]+|=(?:"(?:[^"\\\\]|\\\\.)*"|[^\\s";]+)) *';
const DISPOSITION = new RegExp(
  `^content-disposition: *form-data; *name="([^"\\\\]*)" *((?:${FILE_NAME}){0,2});?$`,
  "i",
);
/** Start of an encoded word (RFC 2047), which some parsers decode to another name. */
const ENCODED_WORD = "=?";
/** The transfer encodings that change no byte (RFC 2045 §6.2). */
const IDENTITY_ENCODING = /^content-transfer-encoding: *(?:7bit|8bit|binary) *$/i;

const latin1 = new TextDecoder("latin1");

function refuse(detail: string): never {
  throw new GatewayError("invalid_body", { detail });
}

/** Returns whether a content type is multipart. */
export function isMultipart(contentType: string): boolean {
  return MULTIPART.test(contentType);
}

/**
 * Reads the parameters of a content type. Two parsers could read different boundaries or charsets
 * from one header, so each parameter is accepted only once, in its plain form.
 *
 * @throws {GatewayError} `invalid_body`
 */
function readParameters(contentType: string): ReadonlyMap<string, string> {
  const parameters = new Map<string, string>();
  let rest = contentType.slice(
    (MULTIPART.exec(contentType) ?? refuse("expected multipart/form-data"))[0].length,
  );
  while (rest.trim() !== "") {
    const [text, name = "", quoted, plain = ""] = PARAMETER.exec(rest) ??
      refuse("expected parameters of the content type as name=value");
    const key = name.toLowerCase();
    if (key.includes("*")) refuse("expected no parameter with * in the content type");
    if (parameters.has(key)) refuse("expected each parameter of the content type once");
    parameters.set(key, quoted ?? plain);
    rest = rest.slice(text.length);
  }
  return parameters;
}

/**
 * Finds the boundary in a content type. @throws {GatewayError} `invalid_body` if parsers could find
 * another one
 */
function readBoundary(contentType: string): string {
  const parameters = readParameters(contentType);
  const boundary = parameters.get("boundary");
  if (boundary === undefined || !BOUNDARY.test(boundary)) {
    refuse("expected a boundary in the content type");
  }
  if (!UTF8.test(parameters.get("charset") ?? "utf-8")) refuse("expected the charset UTF-8");
  return boundary;
}

const toDelimiter = (boundary: string): BytePattern =>
  new BytePattern(new TextEncoder().encode(`--${boundary}`));
const BLANK_LINE = new BytePattern(Uint8Array.of(CR, LF, CR, LF));

/**
 * Returns a body without its boundary, to compare two bodies. A client library makes a new boundary
 * for each retry.
 *
 * @returns The parts with a dash between them; the body itself if it is not multipart
 */
export function withoutBoundary(bytes: Uint8Array, contentType: string): Uint8Array {
  if (!isMultipart(contentType)) return bytes;
  const delimiter = toDelimiter(readBoundary(contentType));
  const pieces: Uint8Array[] = [];
  let from = 0;
  for (let at = delimiter.findIn(bytes, 0); at !== -1; at = delimiter.findIn(bytes, from)) {
    pieces.push(bytes.subarray(from, at), Uint8Array.of(DASH));
    from = at + delimiter.length;
  }
  return joinChunks([...pieces, bytes.subarray(from)]);
}

/**
 * True for a header line of a part that two parsers could read differently, or that requires
 * decoding.
 */
function isAmbiguous(line: string): boolean {
  if (!HEADER_LINE.test(line) || /^content-encoding\b/i.test(line)) return true;
  return /^content-transfer-encoding\b/i.test(line) && !IDENTITY_ENCODING.test(line);
}

/** True for a `Content-Type` of a part that names a charset other than UTF-8. */
function hasOtherCharset(line: string): boolean {
  if (!/^content-type\b/i.test(line)) return false;
  const charsets = Array.from(line.matchAll(/charset([^;]*)/gi), ([, value = ""]) => value);
  return charsets.some((value) => !/^ *= *"?utf-?8"? *$/i.test(value));
}

/**
 * Returns the name of a part, and whether it is a file. @throws {GatewayError} `invalid_body` for a
 * header from which another name could be read
 */
function nameOf(header: string): { readonly name: string; readonly isFile: boolean } {
  const lines = header === "" ? [] : header.split("\r\n");
  const dispositions = lines.filter((line) => /^content-disposition\b/i.test(line));
  const [, name, rest = ""] = DISPOSITION.exec(dispositions[0] ?? "") ?? [];
  const isUnclear = name === undefined || dispositions.length > 1 || lines.some(isAmbiguous) ||
    name.includes(ENCODED_WORD);
  if (isUnclear) {
    return refuse(
      'expected parts with one Content-Disposition: form-data; name="…", with a filename or nothing more, and no encoding',
    );
  }
  const isFile = rest !== "";
  if (!isFile && lines.some(hasOtherCharset)) refuse("expected fields in the charset UTF-8");
  return { name, isFile };
}

/** One part of a body. */
interface Part {
  readonly name: string;
  readonly isFile: boolean;
  readonly content: Uint8Array;
}

/** Iterates over the parts of a body, from one boundary to the next. */
function* partsOf(bytes: Uint8Array, boundary: string): Generator<Part> {
  const delimiter = toDelimiter(boundary);
  // The first boundary has no line end before it. Parsers ignore a preamble (RFC 2046 §5.1.1), or
  // read it as a part.
  if (!delimiter.isAtStartOf(bytes)) refuse("expected the boundary at the start");
  let at = delimiter.length;
  for (let parts = 0;; parts++) {
    if (bytes[at] === DASH && bytes[at + 1] === DASH) return assertEnd(bytes, at + 2, delimiter);
    if (bytes[at] !== CR || bytes[at + 1] !== LF) refuse("expected a line end after each boundary");
    if (parts >= MAX_PARTS) refuse(`expected at most ${MAX_PARTS} parts`);
    const headerEnd = BLANK_LINE.findIn(bytes.subarray(0, at + MAX_HEADER_BYTES), at);
    const next = delimiter.findIn(bytes, at);
    if (headerEnd === -1 || next === -1) refuse("expected the closing boundary");
    // Lenient parsers accept a boundary after any line end, or within a line, so it must not occur
    // anywhere else.
    const isDelimiter = next >= headerEnd + 6 && bytes[next - 2] === CR && bytes[next - 1] === LF;
    if (!isDelimiter) refuse("expected each boundary at the start of a line, after CRLF");
    yield {
      ...nameOf(latin1.decode(bytes.subarray(at + 2, Math.max(at + 2, headerEnd)))),
      content: bytes.subarray(headerEnd + 4, next - 2),
    };
    at = next + delimiter.length;
  }
}

/**
 * Refuses bytes after the closing boundary that a parser could read as one more part. An epilogue
 * is ignored (RFC 2046 §5.1.1).
 */
function assertEnd(bytes: Uint8Array, at: number, delimiter: BytePattern): void {
  if (at === bytes.length) return;
  if (bytes[at] !== CR || bytes[at + 1] !== LF) {
    refuse("expected a line end after the closing boundary");
  }
  if (delimiter.findIn(bytes, at) !== -1) refuse("expected no boundary after the closing one");
}

/** Fields of a multipart body. */
export interface FormFields<Name extends string> {
  /** Their texts. Missing fields are left out. */
  readonly fields: Partial<Record<Name, string>>;
  /** Bytes of all fields that are not files. */
  readonly textBytes: number;
}

/**
 * Reads fields of a multipart body.
 *
 * @returns Their texts, and the size of all texts
 * @throws {GatewayError} `invalid_body` for a duplicate field, a missing closing boundary, or a
 * form that parsers read differently
 */
export function readFields<Name extends string>(
  bytes: Uint8Array,
  contentType: string,
  names: readonly Name[],
): FormFields<Name> {
  const boundary = readBoundary(contentType);
  const fields: Partial<Record<Name, string>> = {};
  let textBytes = 0;
  for (const { name, isFile, content } of partsOf(bytes, boundary)) {
    if (!isFile) textBytes += content.length;
    // A form can state its charset in a field (HTML, "multipart/form-data encoding algorithm").
    if (name.toLowerCase() === "_charset_" && !UTF8.test(latin1.decode(content))) {
      refuse("expected the charset UTF-8");
    }
    const lenient = lenientName(name);
    const known = names.find((each) => each === lenient);
    if (known === undefined) continue;
    if (known !== name.toLowerCase()) {
      throw new GatewayError("invalid_body", { param: known, detail: "expected its plain name" });
    }
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
