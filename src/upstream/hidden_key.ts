/**
 * Removal of a held key from answers that repeat it: some providers return the headers of a request,
 * or name the key that they refuse.
 *
 * @module
 */
import { type AnyBody, type ByteSink, push, type PushedBody } from "../http/message.ts";
import { joinChunks } from "../http/read_all.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Shorter keys could be found by chance. Real keys are longer. */
const MIN_LENGTH = 8;
const ASTERISK = 0x2a;
const NO_BYTES = new Uint8Array();
/** Content type of streams in frames, each of which has a checksum. */
const CHECKED_FRAMES = /^application\/vnd\.amazon\.eventstream\b/i;

/** Removes the headers that contain the key. */
function hideInHeaders(headers: UpstreamResponse["headers"], key: string) {
  const names = new Set<string>();
  headers.forEach((value, name) => {
    if (value.includes(key)) names.add(name);
  });
  if (names.size === 0) return headers;
  return {
    get: (name: string) => names.has(name) ? null : headers.get(name),
    forEach: (act: (value: string, name: string) => void) =>
      headers.forEach((value, name) => {
        if (!names.has(name)) act(value, name);
      }),
  };
}

/** Returns whether bytes continue with the key, or end with the beginning of it. */
function continuesWith(key: Uint8Array, bytes: Uint8Array, at: number): boolean {
  const end = Math.min(key.length, bytes.length - at);
  for (let index = 1; index < end; index++) {
    if (bytes[at + index] !== key[index]) return false;
  }
  return true;
}

/**
 * A body in which asterisks replace the key, so that all other bytes stay as they are. Bytes at the
 * end of a chunk that could begin the key wait for the next chunk. A body with checksums fails
 * instead, because asterisks would make a checksum wrong.
 */
class MaskedBody implements PushedBody, ByteSink {
  readonly #body: AnyBody;
  readonly #key: Uint8Array;
  readonly #hasChecksums: boolean;
  #sink: ByteSink | undefined;
  #waiting: Uint8Array = NO_BYTES;
  #isEndDue = false;

  #hasFailed = false;

  constructor(body: AnyBody, key: string, hasChecksums: boolean) {
    this.#body = body;
    this.#key = new TextEncoder().encode(key);
    this.#hasChecksums = hasChecksums;
  }

  get isWhole(): boolean {
    return this.#body.isWhole === true;
  }

  pushTo(sink: ByteSink): () => void {
    this.#sink = sink;
    const askForMore = push(this.#body, this);
    return () => {
      if (!this.#isEndDue) return askForMore();
      this.#isEndDue = false;
      sink.end();
    };
  }

  cancel(reason?: unknown): void {
    this.#waiting = NO_BYTES;
    this.#isEndDue = false;
    this.#body.cancel(reason);
  }

  write(chunk: Uint8Array): boolean {
    if (this.#hasFailed) return false;
    const bytes = this.#waiting.length === 0 ? chunk : joinChunks([this.#waiting, chunk]);
    const masked = this.#mask(bytes);
    if (masked === undefined) {
      this.#failAtKey();
      return false;
    }
    return masked.length === 0 || this.#sink?.write(masked) === true;
  }

  /** Ends a body that would have to be changed. The bytes before the key have no end either. */
  #failAtKey(): void {
    const error = new Error("The answer repeats the provider key within a frame with a checksum");
    this.#hasFailed = true;
    this.cancel(error);
    this.#sink?.fail(error);
  }

  end(): void {
    if (this.#hasFailed) return;
    const rest = this.#waiting;
    this.#waiting = NO_BYTES;
    this.#isEndDue = rest.length > 0 && this.#sink?.write(rest) !== true;
    if (!this.#isEndDue) this.#sink?.end();
  }

  fail(error: unknown): void {
    if (!this.#hasFailed) this.#sink?.fail(error);
  }

  /**
   * Masks the key, and sets the bytes aside that could begin it.
   *
   * @returns The bytes to send; `undefined` if they have the key and cannot be changed
   */
  #mask(bytes: Uint8Array): Uint8Array | undefined {
    const key = this.#key;
    const [first = 0] = key;
    let masked = bytes;
    let next = 0;
    for (let at = bytes.indexOf(first); at !== -1; at = bytes.indexOf(first, next)) {
      next = at + 1;
      if (!continuesWith(key, bytes, at)) continue;
      next = at + key.length;
      if (next > bytes.length) {
        this.#waiting = new Uint8Array(bytes.subarray(at));
        return masked.subarray(0, at);
      }
      if (this.#hasChecksums) return undefined;
      // `slice` of a Buffer would share the bytes of the transport
      if (masked === bytes) masked = new Uint8Array(bytes);
      masked.fill(ASTERISK, at, next);
    }
    this.#waiting = NO_BYTES;
    return masked;
  }
}

/** Removes a held key from the headers and the body of an answer. */
export function hideKey(
  { status, headers, body }: UpstreamResponse,
  key: string,
): UpstreamResponse {
  if (key.length < MIN_LENGTH) return { status, headers, body };
  const hasChecksums = CHECKED_FRAMES.test(headers.get("content-type") ?? "");
  return {
    status,
    headers: hideInHeaders(headers, key),
    body: body && new MaskedBody(body, key, hasChecksums),
  };
}
