/**
 * The caller's body: read within a size and a time, into memory that the bodies of all callers
 * share. Its bytes are counted as they arrive, until they have left for the provider, and shared
 * out so that one key leaves room for the others. They are kept as they came, since exactly these
 * go upstream: a parser's output drops, reorders and rounds.
 *
 * @module
 */
import type { LimitsConfig } from "../config/gateway_limits.ts";
import { formatSize } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { ClientClosed, type Exchange } from "../exchange/exchange.ts";
import { createShare, type Share, SharedBudget } from "../exchange/shared_budget.ts";
import type { AnyBody, GatewayRequest } from "../http/message.ts";
import { readAll } from "../http/read_all.ts";
import { isMultipart } from "./multipart.ts";

/** Options for reading a body. */
export interface ReadBodyOptions {
  readonly limits: Pick<LimitsConfig, "maxBodyBytes" | "bodyTimeMs">;
  /** Content types that are accepted. */
  readonly types: ContentTypes;
  /** Memory that counts the bytes of the body. */
  readonly memory: BodyMemory;
  /** Id of the gateway key. */
  readonly owner: string;
  readonly clock: Clock;
  /**
   * The exchange: its abort ends the read, its end releases the body, if that was not done before.
   */
  readonly exchange: Exchange;
}

/**
 * A body is read in one piece only if the room for it is this many times its size: its bytes are
 * reserved at once.
 */
const SPARE_FACTOR = 8;
// `application/json`, with at most a charset, and that UTF-8 (RFC 8259 §8.1).
const JSON_TYPE = /^application\/json *(?:; *charset *= *"?utf-8"? *)?;?$/i;

function tooLarge(maxBodyBytes: number): GatewayError {
  return new GatewayError("body_too_large", { detail: `the limit is ${formatSize(maxBodyBytes)}` });
}

/** Tells whether a content type is JSON's. */
export function isJson(contentType: string): boolean {
  return JSON_TYPE.test(contentType);
}

/** Content types that an operation accepts. */
export interface ContentTypes {
  /** Tells whether a content type is one of them; empty for a header that is missing. */
  has(contentType: string): boolean;
  /** Names them in the error for any other; left out, JSON's. */
  readonly detail?: string;
}

/** JSON alone. */
export const JSON_ONLY: ContentTypes = { has: isJson };
/** Multipart, and JSON, which some operations take in its place. */
export const FORM_OR_JSON: ContentTypes = {
  has: (contentType) => isMultipart(contentType) || isJson(contentType),
  detail: "this operation takes multipart/form-data",
};
/** Anything: the provider decides. */
export const ANY_TYPE: ContentTypes = { has: () => true };

/**
 * Checks the headers of a body. @returns The number of bytes that are announced; 0 where none are
 */
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
  if ((headers.get("content-encoding") ?? "identity").toLowerCase() !== "identity") {
    throw new GatewayError("unsupported_content_encoding");
  }
  const length = Number(headers.get("content-length") ?? 0);
  if (length > limits.maxBodyBytes) throw tooLarge(limits.maxBodyBytes);
  // A framework may hand on what no listener would.
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
  body.reserve(announced); // what comes in one piece can't be counted before it is there
  return source;
}

/**
 * Reads a body whole.
 *
 * @returns Exactly what the caller sent, counted in `options.memory` until it is released
 * @throws {GatewayError} `unsupported_media_type`, `unsupported_content_encoding`,
 * `body_too_large`, `body_timeout`, `invalid_json`, `gateway_overloaded`
 * @throws {ClientClosed} When the caller left half-way
 */
export async function readBody(
  request: GatewayRequest,
  options: ReadBodyOptions,
): Promise<RequestBody> {
  const { limits: { maxBodyBytes, bodyTimeMs }, memory, owner, clock, exchange } = options;
  const announced = checkHeaders(request.headers, options);
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
          body.release(); // at once: what else arrives in this turn has room then
          throw refusal;
        }
      },
      exchange,
      deadline: { ms: bodyTimeMs, isOfSilence: false, code: "body_timeout", clock },
      // Whatever a runtime calls it: a body that breaks is a caller that left.
      toError: () => new ClientClosed(),
    });
    body.keep(bytes);
    exchange.bytesIn = bytes.byteLength;
    return body;
  } catch (error) {
    body.release(); // now: the exchange may be over much later
    throw error;
  } finally {
    exchange.waitedMs += exchange.elapsed() - beganAt;
  }
}

/** The bodies of a key may take as much as stays free: at most a half. */
const BODY_FACTOR = 1;

/**
 * The memory that all bodies share. The only body of a key may take all that is free. Next to
 * another one of the same key it may grow within the key's share, see {@link SharedBudget}. So a
 * key never holds more than half of the memory, or one body.
 */
export class BodyMemory {
  readonly #budget: SharedBudget;

  /** @param maxBytes Bytes that may be held at once */
  constructor(maxBytes: number) {
    this.#budget = new SharedBudget(maxBytes, createShare);
  }

  /** @param maxBytes Bytes that may be held at once from now on; what is held already stays */
  resize(maxBytes: number): void {
    this.#budget.resize(maxBytes);
  }

  /** Bytes of all bodies that are held. */
  get heldBytes(): number {
    return this.#budget.held;
  }

  /**
   * Opens the account of a body.
   *
   * @param exchange Its end releases the body at the latest
   */
  open(owner: string, exchange?: Pick<Exchange, "onSettled">): RequestBody {
    const body = new RequestBody(this, this.#budget.join(owner));
    // In the async function that asks, it would keep the request on Bun.
    exchange?.onSettled(() => body.release());
    return body;
  }

  /** Returns how many bytes may be added to a body that holds `heldBytes` now. */
  room(share: Share, heldBytes: number): number {
    const isOnly = share.held === heldBytes;
    return isOnly ? this.#budget.free : this.#budget.room(share, BODY_FACTOR);
  }

  /** Adds to the bytes that a body holds; a negative number subtracts. */
  count(share: Share, bytes: number): void {
    this.#budget.count(bytes);
    share.held += bytes;
  }

  /** Closes the account of a body that holds nothing. */
  close(share: Share): void {
    this.#budget.leave(share);
  }
}

/** The caller's body, held in memory until it is released. */
export class RequestBody {
  readonly #memory: BodyMemory;
  readonly #share: Share;
  #heldBytes = 0;
  #bytes: Uint8Array | null = null;
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

  /** Bytes that may still be reserved for it at this moment. */
  get room(): number {
    return this.#memory.room(this.#share, this.#heldBytes);
  }

  /**
   * Counts bytes that are held for it, or are about to be.
   *
   * @param totalBytes The number of its bytes in all; fewer than are counted already change nothing
   * @throws {GatewayError} `gateway_overloaded` when there is no room for them
   */
  reserve(totalBytes: number): void {
    const bytes = totalBytes - this.#heldBytes;
    if (bytes <= 0) return;
    if (bytes > this.room) throw new GatewayError("gateway_overloaded");
    this.#heldBytes = totalBytes;
    this.#memory.count(this.#share, bytes);
  }

  /** @param bytes The whole body: from now on exactly these bytes are held */
  keep(bytes: Uint8Array): void {
    this.#bytes = bytes;
    this.#memory.count(this.#share, bytes.byteLength - this.#heldBytes);
    this.#heldBytes = bytes.byteLength;
  }

  /** Lets go of the bytes. Safe to call again. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#bytes = null;
    this.#memory.count(this.#share, -this.#heldBytes);
    this.#heldBytes = 0;
    this.#memory.close(this.#share);
  }
}
