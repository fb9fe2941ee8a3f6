/**
 * The form of a gateway key: `gk_<id>_<secret>_<checksum>`. A mistyped key is refused without a
 * look-up, and scanners and tripwires recognize a leaked one.
 *
 * @module
 */
import { GATEWAY_KEY_START, SECRET } from "../config/schema.ts";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_LENGTH = 12;
/** 43 base62 characters contain 256 bits. */
const SECRET_LENGTH = 43;
/** 6 base62 characters contain the 32 bits of a CRC. */
const CHECKSUM_LENGTH = 6;
const ID_FORM = new RegExp(`^[0-9A-Za-z]{${ID_LENGTH}}$`);
const FORM = new RegExp(
  `${GATEWAY_KEY_START}[0-9A-Za-z]{${SECRET_LENGTH}}_[0-9A-Za-z]{${CHECKSUM_LENGTH}}`,
);
/** Length of a key of the gateway's form. Characters. */
export const GATEWAY_KEY_LENGTH: number = 3 + ID_LENGTH + 1 + SECRET_LENGTH + 1 + CHECKSUM_LENGTH;

/**
 * SHA-256 of a text's UTF-8 as 64 hexadecimal digits. Passed in, because the fastest one differs by
 * runtime.
 *
 * @example The one of `node:crypto`
 * ```ts
 * import { createHash } from "node:crypto";
 * import { createGateway, type Digest, parseConfig } from "sallyport";
 *
 * const digest: Digest = (text) => createHash("sha256").update(text).digest("hex");
 * const keys = [{ id: "me", key: "a-key-of-your-own" }];
 * const gateway = createGateway(parseConfig({ providers: { a: { upstream: "openai" } }, keys }), { digest });
 * ```
 */
export type Digest = (text: string) => string;

/** Compares two digests in constant time. */
export function equalDigests(a: string, b: string): boolean {
  let difference = a.length ^ b.length;
  for (let index = 0; index < a.length; index++) {
    difference |= a.charCodeAt(index) ^ b.charCodeAt(index);
  }
  return difference === 0;
}

/** Lookup table of the CRC, with an entry for each value of a byte (RFC 1952 §8). */
const CRC_TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >>> 1 ^ 0xedb88320 : crc >>> 1;
  return crc;
});

/** The CRC-32 of ISO-HDLC (RFC 1952 §8) over ASCII text. */
function crc32(text: string): number {
  let crc = -1;
  for (let index = 0; index < text.length; index++) {
    crc = crc >>> 8 ^ (CRC_TABLE[(crc ^ text.charCodeAt(index)) & 0xff] as number);
  }
  return ~crc >>> 0;
}

function checksum(stem: string): string {
  let rest = crc32(stem);
  let digits = "";
  for (let count = 0; count < CHECKSUM_LENGTH; count++) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

/**
 * Returns uniformly random characters. Bytes from 248 up would favor the first characters, so they
 * are discarded.
 */
function randomText(length: number): string {
  let text = "";
  while (text.length < length) {
    for (const byte of crypto.getRandomValues(new Uint8Array(length))) {
      if (byte < 248 && text.length < length) text += ALPHABET.charAt(byte % ALPHABET.length);
    }
  }
  return text;
}

/**
 * Makes a key from the runtime's secure random numbers.
 *
 * @param id Its id, if that has the gateway's form. Otherwise a new id is made
 */
export function generateGatewayKey(id = ""): string {
  const stem = `gk_${ID_FORM.test(id) ? id : randomText(ID_LENGTH)}_${randomText(SECRET_LENGTH)}`;
  return `${stem}_${checksum(stem)}`;
}

/**
 * Returns the id inside a key, which is safe to log.
 *
 * @param key A key of the gateway's own form
 * @returns Its id; `undefined` if the form or the checksum is wrong
 */
export function gatewayKeyId(key: string): string | undefined {
  const id = key.length === GATEWAY_KEY_LENGTH ? FORM.exec(key)?.[1] : undefined;
  return id !== undefined &&
      checksum(key.slice(0, -CHECKSUM_LENGTH - 1)) === key.slice(-CHECKSUM_LENGTH)
    ? id
    : undefined;
}

/**
 * Returns whether a text contains a gateway key, even with a wrong checksum, because a tripwire
 * must catch mistyped keys too.
 */
export function holdsGatewayKey(text: string): boolean {
  return text.includes("gk_") && FORM.test(text);
}

/**
 * Returns whether a key must be looked up: a key of the gateway's form with a correct checksum, or
 * an operator's own key of 16 to 512 visible ASCII characters.
 */
export function isPlausibleKey(key: string): boolean {
  return key.startsWith("gk_") ? gatewayKeyId(key) !== undefined : SECRET.test(key);
}
