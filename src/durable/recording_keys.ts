/**
 * Keys of recordings, derived from both credentials of their owner: a caller that lacks one of them
 * cannot find, recognize or read a recording, and neither can the operator.
 *
 * @module
 */
import { expand, extract } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { utf8ToBytes } from "@noble/hashes/utils.js";
import { type SealedEntry, toBase64Url } from "./recording_store.ts";

/** The credentials of a caller, and the provider that it calls. */
export interface Owner {
  /**
   * The gateway key in plain text. For a caller with an identity token, its id, because its tokens
   * change.
   */
  readonly gatewayKey: string;
  /** The upstream credentials: header names and values. */
  readonly credentials: Readonly<Record<string, string>>;
  readonly provider: string;
}

/** Domain of all keys that are derived here, as the salt of HKDF's first step (RFC 5869 §3.1). */
const DOMAIN = utf8ToBytes("sallyport recordings 1");
/** Size of an initialization vector of AES-GCM (NIST SP 800-38D §5.2.1.1). Bytes. */
const IV_BYTES = 12;
const KEY_BYTES = 32;

/** Keys of the recordings of one owner. */
export class OwnerKeys {
  readonly #root: Uint8Array;

  constructor({ gatewayKey, credentials, provider }: Owner) {
    // JSON separates the parts, so that different parts never produce the same text.
    const parts = JSON.stringify([gatewayKey, Object.entries(credentials).sort(), provider]);
    this.#root = extract(sha256, utf8ToBytes(parts), DOMAIN);
  }

  /**
   * Returns a tag that reveals nothing without both credentials.
   *
   * @returns 256 bits in base64url
   */
  tag(...parts: readonly string[]): string {
    return toBase64Url(this.#derive(parts));
  }

  /** Returns the tag that identifies the owner of a recording. */
  ownerTag(id: string): string {
    return this.tag("owner", id);
  }

  /** Imports the key that seals the entries of a recording. */
  async cipher(id: string): Promise<EntryCipher> {
    const bytes = new Uint8Array(this.#derive(["entries", id]));
    return new EntryCipher(
      await crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]),
    );
  }

  #derive(parts: readonly string[]): Uint8Array {
    return expand(sha256, this.#root, utf8ToBytes(JSON.stringify(parts)), KEY_BYTES);
  }
}

/**
 * The position of an entry in its recording. It is the initialization vector, so an entry that was
 * moved cannot be opened.
 */
type EntryPosition = Pick<SealedEntry, "kind" | "offset" | "epoch">;

/** Seals and opens the entries of one recording by AES-256-GCM. See {@link OwnerKeys.cipher}. */
export class EntryCipher {
  readonly #key: CryptoKey;

  constructor(key: CryptoKey) {
    this.#key = key;
  }

  /**
   * Seals the content of an entry. An epoch never has two entries of the same kind at the same
   * offset, so no vector repeats.
   */
  async seal(position: EntryPosition, content: Uint8Array<ArrayBuffer>): Promise<SealedEntry> {
    const params = { name: "AES-GCM", iv: toVector(position) };
    return {
      ...position,
      sealed: new Uint8Array(await crypto.subtle.encrypt(params, this.#key, content)),
    };
  }

  /** Opens an entry. @throws For an entry that was changed, moved or sealed with another key */
  async open(entry: SealedEntry): Promise<Uint8Array<ArrayBuffer>> {
    const params = { name: "AES-GCM", iv: toVector(entry) };
    return new Uint8Array(await crypto.subtle.decrypt(params, this.#key, entry.sealed));
  }
}

/** Returns the initialization vector of an entry: its epoch, its kind and its offset (48 bits). */
function toVector({ epoch, kind, offset }: EntryPosition): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(IV_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, epoch);
  view.setUint16(4, kind);
  view.setUint16(6, Math.floor(offset / 2 ** 32));
  view.setUint32(8, offset % 2 ** 32);
  return bytes;
}

/** Compares two tags in constant time. */
export function isSameTag(left: string, right: string): boolean {
  let difference = left.length ^ right.length;
  for (let index = 0; index < left.length; index++) {
    difference |= left.charCodeAt(index) ^ right.charCodeAt(index);
  }
  return difference === 0;
}
