/**
 * The memory that the bodies of all callers share: counted as bytes arrive, until they have left for the provider, and
 * shared out so that one key leaves room for the others.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";

/** Keys whose shares are kept although they have no body, at least. */
const MAX_SHARES = 1024;

/** The bodies of one key. */
interface Share {
  heldBytes: number;
  bodies: number;
}

/**
 * The memory that all bodies share.
 *
 * The only body of a key may take all that is free. Beside another one of the same key it may grow as long as no more
 * is held for the key than stays free. So a key never holds more than half of the memory, or one body; and as every key
 * leaves as much free as it holds itself, there is room for the next one (Choudhury and Hahne, "Dynamic queue length
 * thresholds", 1998).
 */
export class BodyMemory {
  #maxBytes: number;
  readonly #shares: Map<string, Share> = new Map();
  #maxShares = MAX_SHARES;
  #heldBytes = 0;

  /** @param maxBytes Bytes that may be held at once */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** @param maxBytes Bytes that may be held at once from now on; what is held already stays */
  resize(maxBytes: number): void {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of all bodies that are held. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /**
   * Opens the account of a body. Whoever does so sees to its release.
   *
   * @param owner Id of the gateway key
   */
  open(owner: string): RequestBody {
    let share = this.#shares.get(owner);
    if (share === undefined) {
      if (this.#shares.size >= this.#maxShares) this.#sweep();
      this.#shares.set(owner, share = { heldBytes: 0, bodies: 0 });
    }
    share.bodies++;
    return new RequestBody(this, share);
  }

  /**
   * Drops the shares of keys without a body. Not each one when its body ends: a `Map` with much coming and going drops
   * its table over and over, and V8 keeps the old ones. Its own part was not told from noise (Node: 0.89 and 0.92 of the
   * build before, with overlapping spreads; 2026-11-22, `bench --against`).
   */
  #sweep(): void {
    for (const [owner, { bodies }] of this.#shares) if (bodies === 0) this.#shares.delete(owner);
    this.#maxShares = Math.max(MAX_SHARES, 2 * this.#shares.size);
  }

  /** Returns the number of bytes by which a body may grow that holds `heldBytes` now. */
  room(share: Share, heldBytes: number): number {
    const freeBytes = this.#maxBytes - this.#heldBytes;
    const isOnly = share.heldBytes === heldBytes;
    return isOnly ? freeBytes : Math.floor((freeBytes - share.heldBytes) / 2);
  }

  /** Adds to the bytes that a body holds; a negative number subtracts. */
  count(share: Share, bytes: number): void {
    this.#heldBytes += bytes;
    share.heldBytes += bytes;
  }

  /** Closes the account of a body that holds nothing. */
  close(share: Share): void {
    share.bodies--;
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

  /** The whole body, exactly as the caller sent it; `null` before it has arrived, and once it was released. */
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
   * @param bytes The number of bytes to add
   * @throws {GatewayError} `gateway_overloaded` when there is no room for them
   */
  reserve(bytes: number): void {
    if (bytes > this.room) throw new GatewayError("gateway_overloaded");
    this.#heldBytes += bytes;
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
