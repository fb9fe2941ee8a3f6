/**
 * The path of a request in one spelling. The operation is found by it, and it is what the provider gets.
 *
 * Servers read a path in different ways: some decode it twice, take a backslash for a slash, drop what follows a
 * semicolon (Tomcat, Jetty, Spring), join empty segments, or ignore case. {@link readLeniently} returns the path as the
 * most lenient of them reads it.
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
/** The most often that a path is decoded. One that is encoded more often is not read. */
const MAX_DECODINGS = 3;
const MISLEADING_SEGMENTS = ["", ".", ".."];

/** Decodes an escape of an unreserved character, and writes all others in capitals. */
function normalizeEscape(escape: string): string {
  const character = String.fromCharCode(parseInt(escape.slice(1), 16));
  return UNRESERVED.test(character) ? character : escape.toUpperCase();
}

/**
 * Reads the path of a URL.
 *
 * @param url Absolute, or the path with its query
 * @returns The path in its one spelling: dot segments are resolved, and only reserved characters are escaped;
 *   `undefined` for a URL without a path, and for escapes that are no UTF-8 or stand for control characters
 */
export function readPath(url: string): string | undefined {
  const absolute = url.startsWith("/") ? `http://gateway${url}` : url;
  if (!/^https?:/i.test(absolute) || !URL.canParse(absolute)) return undefined;
  const path = new URL(absolute).pathname.replace(ESCAPE, normalizeEscape).replace(NOT_PLAIN, encodeURIComponent);
  try {
    return CONTROL_CHARACTER.test(decodeURIComponent(path)) ? undefined : path;
  } catch {
    return undefined;
  }
}

/** Decodes the escapes that are UTF-8, and leaves all others. */
function decodeEscapes(escapes: string): string {
  try {
    return decodeURIComponent(escapes);
  } catch {
    return escapes;
  }
}

const withoutParameters = (segment: string): string => segment.split(";", 1).join("").trim();

/**
 * Reads a path as the most lenient server does.
 *
 * @param path A path of {@link readPath}
 * @returns The path that such a server finds; `undefined` if that has empty segments, dots or control characters, or
 *   the path is encoded too often
 */
export function readLeniently(path: string): string | undefined {
  let decoded = path;
  for (let times = 0; decoded.search(ESCAPE) !== -1; times++) {
    if (times === MAX_DECODINGS) return undefined;
    decoded = decoded.replace(ESCAPES, decodeEscapes);
  }
  if (CONTROL_CHARACTER.test(decoded)) return undefined;
  const [beforeQuery = ""] = decoded.split(/[?#]/, 1);
  const segments = beforeQuery.split(/[/\\]/).slice(1).map(withoutParameters);
  while (segments.at(-1) === "") segments.pop();
  if (segments.some((segment) => MISLEADING_SEGMENTS.includes(segment))) return undefined;
  return segments.map((segment) => `/${encodeURIComponent(segment.replace(/\.+$/, ""))}`).join("");
}
