/**
 * Short texts that come over and over in bodies: keys, roles, types. Each is made once, and then found by its bytes,
 * which takes a fifth of the time.
 *
 * @module
 */

/** The longest of them. Bytes. */
const MAX_BYTES = 16;
/** The logarithm of their number. */
const SLOT_BITS = 9;
/** Each at the hash of its bytes, until another with the same hash comes. */
const texts = new Array<string>(1 << SLOT_BITS).fill("");
/** The bytes of each, as four words, filled up with zeros. */
const textWords = new Int32Array(4 << SLOT_BITS);
/** Masks of the four words of a text by its length, which leave nothing of the bytes after it. */
const MASKS = Int32Array.from({ length: 4 * (MAX_BYTES + 1) }, (_, index) => {
  const bytes = (index >> 2) - 4 * (index & 3);
  return bytes <= 0 ? 0 : bytes >= 4 ? -1 : (1 << (8 * bytes)) - 1;
});

function makeText(view: DataView, from: number, length: number): string {
  let text = "";
  for (let at = from; at < from + length; at++) text += String.fromCharCode(view.getUint8(at));
  return text;
}

/**
 * Returns a short text.
 *
 * @param view The bytes in which it stands
 * @param from Its position there
 * @param length Its length in bytes, which are ASCII without control characters
 * @returns The text; `undefined` where it is too long, or too near to the end to be looked up
 */
export function readKnownText(view: DataView, from: number, length: number): string | undefined {
  if (length > MAX_BYTES || from + MAX_BYTES > view.byteLength) return undefined;
  const mask = length << 2;
  const a = view.getInt32(from, true) & (MASKS[mask] as number);
  const b = view.getInt32(from + 4, true) & (MASKS[mask + 1] as number);
  const c = view.getInt32(from + 8, true) & (MASKS[mask + 2] as number);
  const d = view.getInt32(from + 12, true) & (MASKS[mask + 3] as number);
  const hash = Math.imul(a ^ Math.imul(b ^ Math.imul(c ^ d, 0x9e3779b1), 0x85ebca6b), 0xc2b2ae35);
  const slot = hash >>> (32 - SLOT_BITS);
  const at = slot << 2;
  const isKnown = textWords[at] === a && textWords[at + 1] === b && textWords[at + 2] === c && textWords[at + 3] === d;
  if (isKnown) return texts[slot]; // of the same length too: no byte of it is zero
  textWords[at] = a;
  textWords[at + 1] = b;
  textWords[at + 2] = c;
  textWords[at + 3] = d;
  return texts[slot] = makeText(view, from, length);
}
