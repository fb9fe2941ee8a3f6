/**
 * Finds the end of a JSON text while it is received, for a body without another sign of its end.
 *
 * @module
 */

const QUOTE = 0x22;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

const isBlank = (byte: number): boolean =>
  byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Watches one body. */
export class JsonEnd {
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  #state: "before" | "within" | "after" | "other" = "before";

  /** True if the body so far is one whole object or array. */
  get isReached(): boolean {
    return this.#state === "after";
  }

  /** Scans the next bytes. */
  push(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length && this.#state !== "other"; at++) {
      this.#read(bytes[at] as number);
    }
  }

  #read(byte: number): void {
    if (this.#isInString) return this.#readString(byte);
    const isOpening = byte === OPEN_OBJECT || byte === OPEN_ARRAY;
    if (this.#state !== "within") {
      if (isBlank(byte)) return;
      this.#state = this.#state === "before" && isOpening ? "within" : "other";
    }
    if (byte === QUOTE) this.#isInString = true;
    else if (isOpening) this.#depth++;
    else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) this.#close();
  }

  #readString(byte: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (byte === BACKSLASH) this.#isEscaped = true;
    else if (byte === QUOTE) this.#isInString = false;
  }

  #close(): void {
    this.#depth--;
    if (this.#depth === 0) this.#state = "after";
  }
}
