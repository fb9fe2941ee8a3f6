/**
 * Reads a body to its end, within a size, a time and the life of the exchange that it belongs to.
 *
 * @module
 */
import { type ErrorCode, GatewayError } from "../errors/gateway_error.ts";
import { type AnyBody, push } from "./message.ts";

/** Deadline of a read. */
export interface ReadDeadline {
  /** The longest time for the whole body or, where the deadline is of silence, from one chunk to the next. Milliseconds. */
  readonly ms: number;
  /** True if every chunk that arrives begins the time anew. */
  readonly isOfSilence: boolean;
  /** Code of the error with which the exchange is aborted. */
  readonly code: ErrorCode;
  /** Source of timers. */
  readonly clock: { timer(ms: number, fire: () => void): () => void };
}

/** The exchange that a read belongs to. */
export interface ReadExchange {
  /** The reason of its abort; `undefined` before. */
  readonly reason: Error | undefined;
  /** Aborts it. */
  abort(reason: Error): void;
  /** Registers a function for its abort. @returns Removes it */
  onAbort(act: () => void): () => void;
}

/** Conditions of a read. */
export interface ReadAllOptions {
  /**
   * Accepts the next chunk, or throws to end the read.
   *
   * @param byteLength Bytes that have arrived so far, this chunk included
   */
  readonly accept?: ((byteLength: number) => void) | undefined;
  /** The exchange: its abort ends the read with the reason. */
  readonly exchange?: ReadExchange;
  /** Aborts the exchange when the body takes too long. */
  readonly deadline?: ReadDeadline;
  /** Translates the error of a body that breaks; passed on as it is if left out. */
  readonly toError?: (cause: unknown) => unknown;
}

const nothing = (): void => {};

/**
 * Reads a body to its end. A failed read drops what it has read, but does not cancel the body: on Node that would
 * close the connection of a caller who is still to be told why.
 *
 * @param source The body
 * @param options Conditions of the read
 * @returns All of its bytes
 * @throws What `accept` threw, the reason of the exchange's abort, or what broke the body
 */
export function readAll(source: AnyBody, options: ReadAllOptions = {}): Promise<Uint8Array> {
  const { accept, exchange, deadline, toError = (cause) => cause } = options;
  return new Promise((resolve, reject) => {
    if (exchange?.reason !== undefined) return reject(exchange.reason);
    const chunks: Uint8Array[] = [];
    let byteLength = 0;
    let isOver = false;
    let cancelTimer: (() => void) | undefined;
    let forgetAbort = nothing;
    const startTimer = () => {
      cancelTimer?.();
      cancelTimer = deadline?.clock.timer(deadline.ms, () => exchange?.abort(new GatewayError(deadline.code)));
    };
    const end = () => {
      isOver = true;
      cancelTimer?.();
      forgetAbort();
    };
    const fail = (reason: unknown) => {
      if (isOver) return;
      end();
      chunks.length = 0; // a read that never ends keeps this function's variables
      reject(reason);
    };
    push(source, {
      write(chunk) {
        if (isOver) return false;
        byteLength += chunk.byteLength;
        try {
          accept?.(byteLength);
        } catch (refusal) {
          fail(refusal);
          return false;
        }
        chunks.push(chunk);
        if (deadline?.isOfSilence && cancelTimer !== undefined) startTimer();
        return true;
      },
      end() {
        end();
        resolve(joinChunks(chunks));
      },
      fail: (cause) => fail(exchange?.reason ?? toError(cause)),
    });
    if (isOver) return; // it was there already, and can't be late
    startTimer();
    forgetAbort = exchange?.onAbort(() => fail(exchange.reason)) ?? nothing;
  });
}

/**
 * Joins pieces into one.
 *
 * @param chunks In order
 * @returns Their bytes; a single piece as it is
 */
export function joinChunks(chunks: readonly Uint8Array[]): Uint8Array {
  const [first] = chunks;
  if (chunks.length === 1 && first !== undefined) return first;
  const bytes = new Uint8Array(chunks.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let offset = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return bytes;
}
