/**
 * The path of a request in canonical spelling. The operation is found by it, and it is sent to the
 * provider.
 *
 * Servers read a path in different ways: some decode it twice, treat a backslash as a slash, drop
 * text after a semicolon (Tomcat, Jetty, Spring), join empty segments, or ignore case.
 * {@link readLeniently} returns the path as the most lenient server reads it.
 *
 * @module
 */
import { CONTROL_CHARACTER } from "./chat_completion.ts";

const ESCAPE = /%[0-9a-f]{2}/gi;
const ESCAPES = /(?:%[0-9a-f]{2})+/gi;
/** Characters that mean the same with and without an escape (RFC 3986 §6.2.2.2). */
const UNRESERVED = /[\w.~-]/;
/** Characters that need an escape in a path (RFC 3986 §3.3). */
const NOT_PLAIN = /[^\w.~!$&'()*+,;=:@%/-]/g;
/** The most decodings of a path. A path that is encoded more often is not read. */
const MAX_DECODINGS = 3;
/** Dots and blanks at the end of a segment, which Windows drops. */
const END_OF_SEGMENT = /[.\s]+$/;

/** Decodes an escape of an unreserved character, and writes all others in capitals. */
function normalizeEscape(escape: string): string {
  const character = String.fromCharCode(parseInt(escape.slice(1), 16));
  return UNRESERVED.test(character) ? character : escape.toUpperCase();
}

/**
 * Reads the path of a URL.
 *
 * @param url Absolute, or the path with its query
 * @returns The path in its canonical spelling: dot segments are resolved, and only reserved
 * characters are escaped; `undefined` for a URL without a path, and for escapes that are not UTF-8
 * or mean control characters
 */
export function readPath(url: string): string | undefined {
  const absolute = url.startsWith("/") ? `http://gateway${url}` : url;
  if (!/^https?:/i.test(absolute) || !URL.canParse(absolute)) return undefined;
  const path = new URL(absolute).pathname.replace(ESCAPE, normalizeEscape).replace(
    NOT_PLAIN,
    encodeURIComponent,
  );
  try {
    return CONTROL_CHARACTER.test(decodeURIComponent(path)) ? undefined : path;
  } catch {
    return undefined;
  }
}

/** Decodes the escapes that are UTF-8, and keeps all others. */
function decodeEscapes(escapes: string): string {
  try {
    return decodeURIComponent(escapes);
  } catch {
    return escapes;
  }
}

/**
 * Decodes a segment until it has no escapes left. Returns `undefined` if that needs too many steps,
 * or if the result has control characters, or a semicolon and a slash, because servers handle these
 * in different orders.
 */
function decodeFully(segment: string): string | undefined {
  let decoded = segment;
  for (let times = 0; decoded.search(ESCAPE) !== -1; times++) {
    if (times === MAX_DECODINGS) return undefined;
    decoded = decoded.replace(ESCAPES, decodeEscapes);
  }
  const isUnclear = decoded.includes(";") && /[/\\]/.test(decoded);
  return isUnclear || CONTROL_CHARACTER.test(decoded) ? undefined : decoded;
}

/**
 * Divides a path into segments, without their parameters. A segment that is empty, or has only
 * dots, becomes empty.
 */
function toSegments(path: string): readonly string[] {
  const segments = path.split(/[/\\]/).slice(1).map((segment) =>
    segment.split(";", 1).join("").trim()
  );
  while (segments.at(-1) === "") segments.pop(); // slashes at the end
  return segments.map((segment) => segment.replace(END_OF_SEGMENT, ""));
}

/**
 * Reads a path as the most lenient server does.
 *
 * @param path A path of {@link readPath}
 * @param isAnyCase True if the server ignores case
 * @returns The path that such a server reads; `undefined` if it has empty segments or dots, or is
 * ambiguous
 */
export function readLeniently(path: string, isAnyCase: boolean): string | undefined {
  const parts = path.split("/").map(decodeFully);
  if (parts.includes(undefined)) return undefined;
  const decoded = parts.join("/");
  // Some servers resolve dots after an encoded question mark. Others begin the query there.
  if (toSegments(decoded).includes("")) return undefined;
  const [beforeQuery = ""] = decoded.split(/[?#]/, 1);
  const read = isAnyCase ? beforeQuery.toUpperCase().toLowerCase() : beforeQuery;
  // A colon means the same with and without an escape.
  const encode = (segment: string) => encodeURIComponent(segment).replaceAll("%3A", ":");
  return toSegments(read).map((segment) => `/${encode(segment)}`).join("");
}
