/**
 * The caller's body: read within limits of size and time, into memory that the bodies of all
 * callers share. Its bytes are counted from their arrival until they were sent to the provider, or
 * until a held key was accepted. Each key can use only a share of the memory. The bytes are kept
 * unchanged and forwarded exactly, because the output of a parser could drop, reorder and round
 * values.
 *
 * @module
 */
import type { LimitsConfig } from "../config/gateway_limits.ts";
import { formatSize } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { ClientClosed, type Exchange } from "../exchange/exchange.ts";
import { createShare, type Share, SharedBudget } from "../exchange/shared_budget.ts";
import type { AnyBody, GatewayRequest, Unpack } from "../http/message.ts";
import { readAll } from "../http/read_all.ts";
import { isMultipart } from "./multipart.ts";
import { toCoding, unpackBody } from "./packed_body.ts";

/** Options for reading a body. */
export interface ReadBodyOptions {
  readonly limits: Pick<LimitsConfig, "maxBodyBytes" | "bodyTimeMs">;
  /** Content types that are accepted. */
  readonly types: ContentTypes;
  /** Unpacks a packed body. */
  readonly unpack: Unpack;
  /** Memory that counts the bytes of the body. */
  readonly memory: BodyMemory;
  /** Id of the gateway key. */
  readonly owner: string;
  readonly clock: Clock;
  /**
   * The exchange. Its abort ends the read. Its end releases the body, if that was not done before.
   */
  readonly exchange: Exchange;
}

/**
 * A body is read in one piece only if the free room is this many times its size, because its bytes
 * are reserved at once.
 */
const SPARE_FACTOR = 8;
// `application/json`, with at most a charset, and that UTF-8 (RFC 8259 §8.1).
const JSON_TYPE = /^application\/json *(?:; *charset *= *"?utf-8"? *)?;?$/i;

function tooLarge(maxBodyBytes: number): GatewayError {
  return new GatewayError("body_too_large", { detail: `the limit is ${formatSize(maxBodyBytes)}` });
}

/** Returns whether a content type is JSON. */
export function isJson(contentType: string): boolean {
  return JSON_TYPE.test(contentType);
}

/** Content types that an operation accepts. */
export interface ContentTypes {
  /** Returns whether a content type is accepted. A missing header is an empty text. */
  has(contentType: string): boolean;
  /** Names the accepted types in the error. Default: the text for JSON. */
  readonly detail?: string;
}

/** Only JSON. */
export const JSON_ONLY: ContentTypes = { has: isJson };
/** Multipart, and JSON, which some operations also accept. */
export const FORM_OR_JSON: ContentTypes = {
  has: (contentType) => isMultipart(contentType) || isJson(contentType),
  detail: "this operation expects multipart/form-data",
};
/** Any type. The provider decides. */
export const ANY_TYPE: ContentTypes = { has: () => true };

/** Checks the headers of a body. @returns The announced number of bytes; 0 if there is none */
function checkHeaders(
  headers: GatewayRequest["headers"],
  { types, limits }: ReadBodyOptions,
): number {
  if (!types.has(headers.get("content-type") ?? "")) {
    throw new GatewayError(
      "unsupported_media_type",
      types.detail === undefined ? {} : { detail: types.detail },
    );
  }
  const length = Number(headers.get("content-length") ?? 0);
  if (length > limits.maxBodyBytes) throw tooLarge(limits.maxBodyBytes);
  // A framework can pass values that no listener would pass.
  return Number.isSafeInteger(length) && length > 0 ? length : 0;
}

/**
 * Chooses whether a body is read in one piece or in several. Memory for one piece is reserved
 * before it arrives.
 */
function choosePieces(source: AnyBody, announced: number, body: RequestBody): AnyBody {
  if (source.isWhole !== true || "pushTo" in source) return source;
  if (announced * SPARE_FACTOR > body.room) {
    const pieces = source.inPieces?.() ?? null;
    if (pieces !== null) return pieces;
  }
  body.reserve(announced); // a single piece cannot be counted before it has arrived
  return source;
}

/**
 * Reads a whole body.
 *
 * @returns Exactly the bytes that the caller sent, counted in `options.memory` until they are
 * released
 * @throws {GatewayError} `unsupported_media_type`, `unsupported_content_encoding`,
 * `invalid_content_encoding`, `body_too_large`, `body_timeout`, `invalid_json`,
 * `gateway_overloaded`
 * @throws {ClientClosed} If the caller left before the end
 */
export async function readBody(
  request: GatewayRequest,
  options: ReadBodyOptions,
): Promise<RequestBody> {
  const { limits: { maxBodyBytes, bodyTimeMs }, memory, owner, clock, exchange } = options;
  const announced = checkHeaders(request.headers, options);
  const packing = request.headers.get("content-encoding");
  const coding = packing === null ? undefined : readCoding(packing, request, options);
  if (request.body === null) throw new GatewayError("invalid_json");
  const body = memory.open(owner, exchange);
  const beganAt = exchange.elapsed();
  try {
    const bytes = await readAll(choosePieces(request.body, announced, body), {
      accept(byteLength) {
        try {
          if (byteLength > maxBodyBytes) throw tooLarge(maxBodyBytes);
          body.reserve(byteLength);
        } catch (refusal) {
          body.release(); // at once, so that other bodies in this turn have room
          throw refusal;
        }
      },
      exchange,
      deadline: { ms: bodyTimeMs, isOfSilence: false, code: "body_timeout", clock },
      // Runtimes throw different errors, but a broken body always means that the caller left.
      toError: () => new ClientClosed(),
    });
    body.keep(bytes);
    exchange.bytesIn = bytes.byteLength;
    if (coding !== undefined) await unpackInto(body, bytes, coding, options);
    return body;
  } catch (error) {
    body.release(); // now, because the exchange can end much later
    throw error;
  } finally {
    exchange.waitedMs += exchange.elapsed() - beganAt;
  }
}

/** An empty list of codings (RFC 9110 §5.6.1), or `identity`. */
const NO_CODING = /^(?:[\s,]*|identity)$/i;

/**
 * Returns the content encoding of a packed body; `undefined` for a body that is not packed.
 *
 * @param packing Value of `Content-Encoding`
 * @throws {GatewayError} `unsupported_content_encoding`
 */
function readCoding(
  packing: string,
  { headers }: GatewayRequest,
  { unpack }: ReadBodyOptions,
): string | undefined {
  if (NO_CODING.test(packing)) return undefined;
  return toCoding(packing, isJson(headers.get("content-type") ?? ""), unpack);
}

/** Unpacks a body, so that its content can be read. */
async function unpackInto(
  body: RequestBody,
  bytes: Uint8Array,
  coding: string,
  { limits, unpack, clock, exchange }: ReadBodyOptions,
): Promise<void> {
  const content = await unpackBody(bytes, coding, {
    unpack,
    maxBodyBytes: limits.maxBodyBytes,
    reserve: (byteLength) => body.reserve(bytes.byteLength + byteLength),
    exchange,
    deadline: { ms: limits.bodyTimeMs, isOfSilence: false, code: "body_timeout", clock },
  });
  body.keepContent(content, coding);
}

/** The bodies of a key can use as much as stays free: at most a half. */
const BODY_FACTOR = 1;

/**
 * The memory that all bodies share. The only body of a key can use all free memory. If the key has
 * more bodies, each can grow only within the key's share, see {@link SharedBudget}. So a key never
 * uses more than half of the memory, or one body.
 */
export class BodyMemory {
  readonly #budget: SharedBudget;

  /** @param maxBytes Maximum number of bytes in use */
  constructor(maxBytes: number) {
    this.#budget = new SharedBudget(maxBytes, createShare);
  }

  /** @param maxBytes Maximum number of bytes in use from now on. Bytes in use already stay */
  resize(maxBytes: number): void {
    this.#budget.resize(maxBytes);
  }

  /** Bytes of all bodies in memory. */
  get heldBytes(): number {
    return this.#budget.used;
  }

  /**
   * Opens the account of a body.
   *
   * @param exchange Its end releases the body at the latest
   */
  open(owner: string, exchange?: Pick<Exchange, "onSettled">): RequestBody {
    const body = new RequestBody(this, this.#budget.join(owner));
    // Registered here, because in the calling async function the closure would keep the request in
    // memory on Bun.
    exchange?.onSettled(() => body.release());
    return body;
  }

  /** Returns the number of bytes that can be added to a body of `heldBytes` bytes. */
  room(share: Share, heldBytes: number): number {
    const isOnly = share.used === heldBytes;
    return isOnly ? this.#budget.free : this.#budget.room(share, BODY_FACTOR);
  }

  /** Adds to the counted bytes of a body; a negative number subtracts. */
  count(share: Share, bytes: number): void {
    this.#budget.count(bytes);
    share.used += bytes;
  }

  /** Closes the account of an empty body. */
  close(share: Share): void {
    this.#budget.leave(share);
  }
}

/** The caller's body, kept in memory until it is released. */
export class RequestBody {
  readonly #memory: BodyMemory;
  readonly #share: Share;
  #heldBytes = 0;
  #bytes: Uint8Array | null = null;
  #content: Uint8Array | undefined;
  #coding: string | undefined;
  #isReleased = false;

  /** @internal See {@link BodyMemory.open} */
  constructor(memory: BodyMemory, share: Share) {
    this.#memory = memory;
    this.#share = share;
  }

  /**
   * The whole body, exactly as the caller sent it; `null` before it has arrived, and once it was
   * released.
   */
  get bytes(): Uint8Array | null {
    return this.#bytes;
  }

  /** The content of the body, to read its facts: `bytes`, unpacked if the caller packed them. */
  get content(): Uint8Array | null {
    return this.#content ?? this.#bytes;
  }

  /** Content encoding of `bytes`; `undefined` if they are not packed. */
  get coding(): string | undefined {
    return this.#coding;
  }

  /** Number of bytes that can still be reserved for it now. */
  get room(): number {
    return this.#memory.room(this.#share, this.#heldBytes);
  }

  /**
   * Counts bytes that are in memory for it, or will be.
   *
   * @param totalBytes Total number of its bytes. Smaller than the counted number, it has no effect
   * @throws {GatewayError} `gateway_overloaded` if there is no room for them
   */
  reserve(totalBytes: number): void {
    const bytes = totalBytes - this.#heldBytes;
    if (bytes <= 0) return;
    if (bytes > this.room) throw new GatewayError("gateway_overloaded");
    this.#heldBytes = totalBytes;
    this.#memory.count(this.#share, bytes);
  }

  /** @param bytes The whole body. From now on exactly these bytes are counted */
  keep(bytes: Uint8Array): void {
    this.#bytes = bytes;
    this.#memory.count(this.#share, bytes.byteLength - this.#heldBytes);
    this.#heldBytes = bytes.byteLength;
  }

  /** @param content The content of the packed body, whose bytes were reserved */
  keepContent(content: Uint8Array, coding: string): void {
    this.#content = content;
    this.#coding = coding;
  }

  /** Frees the bytes. Safe to call again. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#bytes = null;
    this.#content = undefined;
    this.#memory.count(this.#share, -this.#heldBytes);
    this.#heldBytes = 0;
    this.#memory.close(this.#share);
  }
}
