/**
 * Decodes and parses JSON of callers, guarded: strict about UTF-8, and refused before a parser recurses over what is too
 * deep, too much or ambiguous.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";

/** The deepest nesting that is accepted. No provider's schema needs more; parsers of some fail or recurse beyond it. */
export const MAX_DEPTH = 128;
/**
 * The most keys, objects and arrays in one body, all together. Thousands of messages and hundreds of tools stay far
 * below. JSON.parse blocks all other requests meanwhile: this many take 0.1 s to 0.3 s, a million keys 0.6 s to 1 s
 * (measured; all different, in objects of 1 to 200,000).
 */
export const MAX_MEMBERS = 200_000;
/**
 * The most values in one body, counted by its commas; a string counts for {@link STRING_WEIGHT}, since a parser takes
 * that much longer over it. A million numbers pass. JSON.parse takes 0.1 s to 0.3 s for this many, as for the keys
 * above (measured: numbers of 17 digits, short strings that all differ).
 */
export const MAX_VALUES = 1_100_000;
const STRING_WEIGHT = 3;
/** Keys on which a policy decides. If one is given twice, parsers differ in which one wins: a way around the policy. */
const SINGLE_KEYS: ReadonlySet<string> = new Set([
  ...["model", "messages", "input", "stream"],
  // What strict limits reserve.
  ...["n", "best_of", "prompt", "max_tokens", "max_completion_tokens", "max_output_tokens"],
]);

/** The index of the quote that ends the string whose first character stands at `from`; -1 where none does. */
function endOfString(text: string, from: number): number {
  for (let quote = text.indexOf('"', from); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(quote - 1 - backslashes) === 0x5c) backslashes++;
    if (backslashes % 2 === 0) return quote;
  }
  return -1;
}

/** The key whose quotes stand at `open` and `close`. */
function readKey(text: string, open: number, close: number): string | undefined {
  const raw = text.slice(open + 1, close);
  if (!raw.includes("\\")) return raw;
  try {
    return String(JSON.parse(`"${raw}"`)); // A key may be written with escapes: mod\\u0065l
  } catch {
    return undefined; // The whole is no JSON then, and JSON.parse says so
  }
}

const MAX_MEMBERS_TEXT = `${MAX_MEMBERS} keys, objects and arrays`;
const MAX_VALUES_TEXT = `${MAX_VALUES} values, of which a string counts for ${STRING_WEIGHT}`;

function refuseCount(limit: string): never {
  throw new GatewayError("invalid_body", { detail: `expected at most ${limit}` });
}

/**
 * Refuses a text that is nested too deep, holds too much, or has one of the {@link SINGLE_KEYS} twice, before a parser
 * recurses over it. Strings are skipped at the speed of `indexOf`, so that a 10 MB image costs one search.
 *
 * @param text JSON, or a text that claims to be
 * @throws {GatewayError} `invalid_json`, `invalid_body`
 */
export function assertShape(text: string): void {
  const seen = new Set<string>();
  let depth = 0;
  let members = 0;
  let values = 0;
  let open = 0; // The quotes of the last string: before a colon it is a key
  let close = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code <= 0x20) continue; // White space, by the megabyte where a body is indented
    if (code === 0x22) { // "
      open = index;
      close = endOfString(text, index + 1);
      if (close === -1) return; // No JSON, and JSON.parse says so
      index = close;
      values += STRING_WEIGHT - 1; // the rest is its comma
      if (values > MAX_VALUES) refuseCount(MAX_VALUES_TEXT);
    } else if (code === 0x2c) { // ,
      if (++values > MAX_VALUES) refuseCount(MAX_VALUES_TEXT);
    } else if (code === 0x3a) { // :
      if (++members > MAX_MEMBERS) refuseCount(MAX_MEMBERS_TEXT);
      if (depth !== 1) continue;
      // Some parsers match keys in any case (Go's encoding/json does): "Model" beside "model" is twice to them.
      const key = readKey(text, open, close)?.toUpperCase().toLowerCase();
      close = open; // The key is read: a second colon makes no second key, only no JSON
      if (key !== undefined && SINGLE_KEYS.has(key)) {
        if (seen.has(key)) throw new GatewayError("invalid_body", { param: key, detail: "expected the key once" });
        seen.add(key);
      }
    } else if (code === 0x7b || code === 0x5b) { // { [
      if (++depth > MAX_DEPTH) throw new GatewayError("invalid_json");
      if (++members > MAX_MEMBERS) refuseCount(MAX_MEMBERS_TEXT);
    } else if (code === 0x7d || code === 0x5d) { // } ]
      depth--;
    }
  }
}

const lenientUtf8 = new TextDecoder();

/** Decodes UTF-8, or throws. Deno decodes ten times as fast when it need not throw (measured; 1 MB of ASCII). */
function decode(bytes: Uint8Array): string {
  const text = lenientUtf8.decode(bytes);
  // A replacement: of an error, or as the caller wrote it
  return text.includes("\ufffd") ? new TextDecoder("utf-8", { fatal: true }).decode(bytes) : text;
}

/**
 * Decodes and parses a body.
 *
 * @param bytes UTF-8, with or without a byte order mark
 * @returns What it says
 * @throws {GatewayError} `invalid_json`, `invalid_body`
 */
export function parseJson(bytes: Uint8Array): unknown {
  try {
    const text = decode(bytes);
    assertShape(text);
    return JSON.parse(text);
  } catch (error) {
    // The parser's own message quotes the body: it must not travel further, not even as a cause.
    throw GatewayError.is(error) ? error : new GatewayError("invalid_json");
  }
}
