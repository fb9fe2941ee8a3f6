/**
 * The form of an identity token: a JWT in compact serialization (RFC 7519 §3, RFC 7515 §7.1). All
 * values that are read here are unverified.
 *
 * @module
 */
import { decodeJwt } from "jose";
import type { Claims } from "./claims.ts";

/** The longest token that is read: the longest allowed header with a credential. Characters. */
export const MAX_TOKEN_LENGTH = 8192;

/**
 * Three parts in base64url. The first two contain JSON objects: `{"`, `{ ` or `{` and the end of a
 * line.
 */
const FORM = /^e[yw][\w-]+\.e[yw][\w-]+\.[\w-]*$/;

/** Returns whether a credential has the form of an identity token. */
export function hasTokenForm(text: string): boolean {
  return text.startsWith("e") && FORM.test(text);
}

/**
 * Reads the claims of a token without verifying it.
 *
 * @returns The claims; `undefined` if there are none
 */
export function peekClaims(token: string): Claims | undefined {
  try {
    return decodeJwt(token);
  } catch {
    return undefined;
  }
}

/**
 * The most parts of a text that are decoded, because a text can be long and full of parts that look
 * like tokens.
 */
const MAX_DECODED = 20;

/**
 * Reads the claims of possible tokens within a text. If there are many, only of the first ones.
 *
 * @returns Claims of tokens, of any issuer
 */
export function* findClaims(text: string): Generator<Claims> {
  let decoded = 0;
  for (const [, part = ""] of text.matchAll(/\.(e[yw][\w-]*)/g)) {
    if (part.length > MAX_TOKEN_LENGTH) continue;
    if (decoded++ === MAX_DECODED) return;
    const claims = peekClaims(`e30.${part}.`);
    if (claims !== undefined) yield claims;
  }
}
