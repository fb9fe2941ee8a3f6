/**
 * The body of a call that can be made once more: with a held key that the provider refuses.
 *
 * @module
 */
import type { HeldBody } from "./transport.ts";

/** A body whose bytes stay in memory after they were sent, until it is decided who needs them. */
export class RepeatableBody implements HeldBody {
  readonly #body: HeldBody;
  #isSent = false;
  #isLast = false;

  constructor(body: HeldBody) {
    this.#body = body;
  }

  get bytes(): Uint8Array | null {
    return this.#body.bytes;
  }

  /** Called by the transport: no more bytes will be sent. */
  release(): void {
    this.#isSent = true;
    this.#releaseIfDone();
  }

  /** Notes that the call will not be made once more. */
  forgo(): void {
    this.#isLast = true;
    this.#releaseIfDone();
  }

  // An answer can begin before all bytes were sent, and until then they are in memory.
  #releaseIfDone(): void {
    if (this.#isSent && this.#isLast) this.#body.release();
  }
}
