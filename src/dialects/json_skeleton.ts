/**
 * Reduces a JSON text of any length to a small skeleton: deeply nested content, and most of long
 * strings, are left out.
 *
 * @module
 */
import { MAX_KEPT_BYTES } from "./dialect.ts";

const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** `choices[].delta.audio` is the deepest object that is read. */
const MAX_OBJECT_DEPTH = 5;
/** `choices`, `response.output` and the lists in an object of usage are read. */
const MAX_ARRAY_DEPTH = 3;
/**
 * Size from which further objects in long lists are left out, and the rest of objects in them and
 * of the deepest objects, so that the rest of the text still fits. Callers choose the size of some,
 * such as schemas. Characters.
 */
const MAX_LISTED = 49_152;
/** The longest escape, such as `\u0065`. Characters. */
const MAX_ESCAPE = 6;
/**
 * Maximum number of kept characters of a string. It is longer than every name and value that is
 * searched for.
 */
const MAX_STRING = 64;
/**
 * Number of bytes of a string that are skipped one by one before its quote is searched for. The rest
 * of most strings, and the distance of most escaped quotes, is shorter than a search takes.
 */
const NEAR = 32;

/**
 * Reads a JSON text in pieces and keeps its skeleton: objects near the root, short strings, numbers
 * and literals.
 */
export class JsonSkeleton {
  /** Bytes of strings that were left out so far. */
  omittedBytes = 0;
  #kept = "";
  #depth = 0;
  /** The depth of the object or array whose content is left out; 0 if there is none. */
  #emptyDepth = 0;
  #isInString = false;
  #isEscaped = false;
  /** Number of further characters of the current string to keep. */
  #stringLeft = 0;
  #hasBegun = false;
  /** The depth of the outermost open list that can be long; 0 if there is none. */
  #longDepth = 0;
  readonly #maxArrayDepth: number;
  readonly #minLongDepth: number;

  /**
   * @param maxArrayDepth Depth of the deepest array whose content is kept
   * @param minLongDepth Depth of arrays from which objects can be left out
   */
  constructor(maxArrayDepth: number = MAX_ARRAY_DEPTH, minLongDepth: number = MAX_ARRAY_DEPTH) {
    this.#maxArrayDepth = maxArrayDepth;
    this.#minLongDepth = minLongDepth;
  }

  /** Reads the next bytes of the text. */
  push(bytes: Uint8Array, from: number, end: number): void {
    let at = from;
    while (at < end) {
      if (this.#isInString) at = this.#string(bytes, at, end);
      else if (this.#emptyDepth !== 0) at = this.#skipContent(bytes, at, end);
      else this.#structure(bytes[at++] ?? SPACE);
    }
  }

  /** The skeleton as JSON, once the object is closed; `undefined` before, and if it is too long. */
  get text(): string | undefined {
    return this.#hasBegun && this.#depth === 0 && this.#kept.length <= MAX_KEPT_BYTES
      ? this.#kept
      : undefined;
  }

  #keep(byte: number): void {
    if (this.#emptyDepth === 0 && this.#kept.length <= MAX_KEPT_BYTES) {
      this.#kept += String.fromCharCode(byte);
    }
  }

  /** Reads a part of a string, and returns the offset after it. */
  #string(bytes: Uint8Array, from: number, end: number): number {
    let at = from;
    while (at < end && (this.#isEscaped || (this.#stringLeft > 0 && this.#emptyDepth === 0))) {
      const byte = bytes[at] ?? QUOTE;
      if (this.#isEscaped) {
        this.#isEscaped = false;
        if (this.#stringLeft > 0) this.#keep(byte);
      } else if (byte === QUOTE) return this.#endString(at);
      else if (byte === BACKSLASH) this.#beginEscape();
      else {
        this.#stringLeft--;
        this.#keep(byte);
      }
      at++;
    }
    const skipped = this.#skip(bytes, at, end);
    this.omittedBytes += skipped - at;
    return skipped < end ? this.#endString(skipped) : end;
  }

  /** Keeps an escape if all of it fits. */
  #beginEscape(): void {
    this.#isEscaped = true;
    const isKept = this.#stringLeft > MAX_ESCAPE;
    this.#stringLeft = isKept ? this.#stringLeft - 2 : 0;
    // A space replaces it, because an empty string has another meaning.
    this.#keep(isKept ? BACKSLASH : SPACE);
  }

  /**
   * Skips the rest of a string, and returns the offset of its closing quote; `end` if that has not
   * arrived.
   */
  #skip(bytes: Uint8Array, from: number, end: number): number {
    let at = from;
    while (at < end) {
      for (const near = Math.min(at + NEAR, end); at < near; at++) {
        const byte = bytes[at];
        if (byte === QUOTE) return at;
        if (byte === BACKSLASH) at++;
      }
      if (at >= end) break;
      const quote = bytes.subarray(at, end).indexOf(QUOTE); // not beyond the end of the line
      const stop = quote === -1 ? end : at + quote;
      let slash = stop;
      while (slash > at && bytes[slash - 1] === BACKSLASH) slash--;
      const isEscaped = (stop - slash) % 2 === 1;
      if (stop < end && !isEscaped) return stop;
      at = isEscaped ? stop + 1 : stop;
    }
    if (at > end) this.#isEscaped = true;
    return end;
  }

  /**
   * Skips content that is left out, and returns the offset after it: after its end, or after the
   * first quote of a string in it.
   */
  #skipContent(bytes: Uint8Array, from: number, end: number): number {
    let depth = this.#depth;
    for (let at = from; at < end; at++) {
      const byte = bytes[at] ?? SPACE;
      if (byte < OPEN_ARRAY && byte !== QUOTE) continue; // most bytes of numbers and spaces
      const isClose = byte === CLOSE_OBJECT || byte === CLOSE_ARRAY;
      if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) depth++;
      else if (isClose && depth > this.#emptyDepth) depth--;
      else if (isClose || byte === QUOTE) {
        this.#depth = depth;
        this.#structure(byte);
        return at + 1;
      }
    }
    this.#depth = depth;
    return end;
  }

  #endString(at: number): number {
    this.#isInString = false;
    this.#keep(QUOTE);
    return at + 1;
  }

  #structure(byte: number): void {
    if (byte === SPACE || byte === TAB || byte === LF || byte === CR) return;
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      this.#keep(byte);
      this.#hasBegun = true;
      this.#depth++;
      if (this.#emptyDepth === 0) this.#open(byte === OPEN_OBJECT);
      return;
    }
    if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
      if (this.#emptyDepth === this.#depth) this.#emptyDepth = 0;
      if (this.#longDepth === this.#depth) this.#longDepth = 0;
      this.#depth--;
    } else if (byte === COMMA && this.#emptyDepth === 0 && this.#isRestLeftOut) {
      this.#emptyDepth = this.#depth;
    } else if (byte === QUOTE) {
      this.#isInString = true;
      this.#stringLeft = MAX_STRING;
    }
    this.#keep(byte);
  }

  /** True if the rest of the open object or array is left out, after one of its commas. */
  get #isRestLeftOut(): boolean {
    const isDeep = this.#depth >= MAX_OBJECT_DEPTH ||
      (this.#longDepth !== 0 && this.#depth > this.#longDepth);
    return isDeep && this.#kept.length > MAX_LISTED;
  }

  /** Decides whether the content of an object or array is kept. */
  #open(isObject: boolean): void {
    // The names in the objects of the deepest list are kept.
    const maxObjectDepth = Math.max(MAX_OBJECT_DEPTH, this.#maxArrayDepth + 1);
    const maxDepth = isObject ? maxObjectDepth : this.#maxArrayDepth;
    const isLeftOut = isObject && this.#longDepth !== 0 && this.#kept.length > MAX_LISTED;
    if (this.#depth > maxDepth || isLeftOut) this.#emptyDepth = this.#depth;
    const isLong = !isObject && this.#longDepth === 0 && this.#depth >= this.#minLongDepth;
    if (isLong) this.#longDepth = this.#depth;
  }
}
