/**
 * The form of an identity token: a JWT in compact serialization (RFC 7519 §3, RFC 7515 §7.1).
 * Nothing that is read here has been verified.
 *
 * @module
 */
import { decodeJwt } from "jose";
import type { Claims } from "./claims.ts";

/**
 * The longest token that is looked at: as much as a header with a credential may hold. Characters.
 */
export const MAX_TOKEN_LENGTH = 8192;

/**
 * Three parts in base64url, of which the first two hold JSON objects: `{"`, `{ ` or `{` and the end
 * of a line.
 */
const FORM = /^e[yw][\w-]+\.e[yw][\w-]+\.[\w-]*$/;

/** Returns whether a credential has the form of an identity token. */
export function hasTokenForm(text: string): boolean {
  return text.startsWith("e") && FORM.test(text);
}

/**
 * Reads the claims of a token without verifying it.
 *
 * @returns The claims; `undefined` where there are none to read
 */
export function peekClaims(token: string): Claims | undefined {
  try {
    return decodeJwt(token);
  } catch {
    return undefined;
  }
}

/**
 * The number of parts of a text that are decoded at most: a text may be long, and full of what
 * looks like tokens.
 */
const MAX_DECODED = 20;

/**
 * Reads the claims of what in a text may be a token, whatever stands before and after it: of the
 * first ones, if there are many.
 *
 * @returns Claims of tokens, which may be of anybody
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
