/**
 * The caller's body: read within a size and a time, decoded strictly, parsed. The bytes are kept as they came, since
 * exactly these go upstream: a parser's output drops, reorders and rounds.
 *
 * @module
 */
import { type ByteSource, joinChunks } from "../http/byte_source.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { GatewayRequest } from "../http/message.ts";
import type { Clock } from "../exchange/clock.ts";
import { ClientClosed } from "../exchange/settlement.ts";
import type { Exchange } from "../exchange/exchange.ts";
import { formatSize } from "../config/units.ts";
import type { BodyMemory, RequestBody } from "./body_memory.ts";

/** Limits on the size of a body and on the time to read it. */
export interface BodyLimits {
  /** The largest size of a body. Bytes. */
  readonly maxBodyBytes: number;
  /** The longest time from the first read to the last byte. Milliseconds. */
  readonly bodyTimeMs: number;
}

/** Options for reading a body. */
export interface ReadBodyOptions {
  readonly limits: BodyLimits;
  /** Memory that counts the bytes of the body. */
  readonly memory: BodyMemory;
  /** Id of the gateway key. */
  readonly owner: string;
  readonly clock: Clock;
  /** The exchange: its abort ends the read, its end releases the body, if nobody did so before. */
  readonly exchange: Exchange;
}

/** A body is read in one piece only if the room for it is this many times its size: its bytes are reserved at once. */
const SPARE_FACTOR = 8;
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
const SINGLE_KEYS: ReadonlySet<string> = new Set(["model", "messages", "stream"]);

// `application/json`, with at most a charset, and that UTF-8 (RFC 8259 §8.1).
const JSON_TYPE = /^application\/json *(?:; *charset *= *"?utf-8"? *)?;?$/i;

function tooLarge(maxBodyBytes: number): GatewayError {
  return new GatewayError("body_too_large", { detail: `the limit is ${formatSize(maxBodyBytes)}` });
}

/** Checks the headers of a body. @returns The number of bytes that are announced; 0 where none are */
function checkHeaders(headers: GatewayRequest["headers"], maxBodyBytes: number): number {
  if (!JSON_TYPE.test(headers.get("content-type") ?? "")) throw new GatewayError("unsupported_media_type");
  if ((headers.get("content-encoding") ?? "identity").toLowerCase() !== "identity") {
    throw new GatewayError("unsupported_content_encoding");
  }
  const length = Number(headers.get("content-length") ?? 0);
  if (length > maxBodyBytes) throw tooLarge(maxBodyBytes);
  return Number.isSafeInteger(length) && length > 0 ? length : 0; // a framework may hand on what no listener would
}

/** Chooses whether a body is read in one piece or in several. Memory for one piece is reserved before it arrives. */
function choosePieces(source: ByteSource, announced: number, body: RequestBody): ByteSource {
  if (source.isWhole !== true) return source;
  if (announced * SPARE_FACTOR > body.room) {
    const pieces = source.inPieces?.() ?? null;
    if (pieces !== null) return pieces;
  }
  body.reserve(announced); // what comes in one piece can't be counted before it is there
  return source;
}

/**
 * Opens the account of a body until the exchange ends. A function of its own: inside {@link readBytes}, the registered
 * callback would keep all variables alive, the pieces of the body among them.
 */
function openBody({ memory, owner, exchange }: Pick<ReadBodyOptions, "memory" | "owner" | "exchange">): RequestBody {
  const body = memory.open(owner);
  exchange.onSettled(() => body.release());
  return body;
}

function readBytes(
  given: ByteSource,
  announced: number,
  { limits: { maxBodyBytes, bodyTimeMs }, memory, owner, clock, exchange }: ReadBodyOptions,
): Promise<RequestBody> {
  return new Promise((resolve, reject) => {
    if (exchange.reason !== undefined) return reject(exchange.reason);
    const body = openBody({ memory, owner, exchange });
    const source = choosePieces(given, announced, body);
    const chunks: Uint8Array[] = [];
    let byteLength = 0;
    let reserved = source.isWhole === true ? announced : 0;
    const beganAt = exchange.elapsed();
    let isOver = false;
    const end = () => {
      isOver = true;
      exchange.waitedMs += exchange.elapsed() - beganAt;
      cancelTimer();
      forgetAbort();
    };
    const fail = (reason: unknown) => {
      if (isOver) return;
      end();
      chunks.length = 0; // a read that never ends keeps this function's variables
      body.release(); // at once: what else arrives in this turn has room then
      reject(reason);
    };
    // Whatever a runtime calls it: a body that breaks is a caller that left.
    const onBroken = () => fail(exchange.reason ?? new ClientClosed());
    const take = (chunk: Uint8Array | undefined): void => {
      if (isOver) return;
      try {
        if (chunk !== undefined) {
          byteLength += chunk.byteLength;
          if (byteLength > maxBodyBytes) throw tooLarge(maxBodyBytes);
          if (byteLength > reserved) {
            body.reserve(byteLength - reserved);
            reserved = byteLength;
          }
          chunks.push(chunk);
          if (source.isWhole !== true) return void source.read().then(take, onBroken);
        }
        body.keep(joinChunks(chunks));
        exchange.bytesIn = byteLength;
        end();
        resolve(body);
      } catch (error) {
        fail(error);
      }
    };
    const forgetAbort = exchange.onAbort(() => fail(exchange.reason));
    const cancelTimer = clock.timer(bodyTimeMs, () => fail(new GatewayError("body_timeout")));
    source.read().then(take, onBroken);
  });
}

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

/**
 * Reads a body that says it is JSON.
 *
 * @param request Its headers are checked before its body is touched
 * @param options Limits and parts for the read
 * @returns Exactly what the caller sent, counted in `options.memory` until it is released
 * @throws {GatewayError} `unsupported_media_type`, `unsupported_content_encoding`, `body_too_large`, `body_timeout`,
 *   `invalid_json`, `gateway_overloaded`
 * @throws {ClientClosed} When the caller left half-way
 */
export function readBody(request: GatewayRequest, options: ReadBodyOptions): Promise<RequestBody> {
  const announced = checkHeaders(request.headers, options.limits.maxBodyBytes);
  if (request.body === null) throw new GatewayError("invalid_json");
  return readBytes(request.body, announced, options);
}
