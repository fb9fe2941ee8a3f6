/**
 * The form of an identity token: a JWT in compact serialization (RFC 7519 §3, RFC 7515 §7.1). Nothing that is read here
 * has been verified.
 *
 * @module
 */
import { decodeJwt, type JWTPayload } from "jose";

/** The longest token that is looked at: as much as a header with a credential may hold. Characters. */
export const MAX_TOKEN_LENGTH = 8192;

/** Three parts in base64url, of which the first two hold JSON objects: `{"`, `{ ` or `{` and the end of a line. */
const FORM = /^e[yw][\w-]+\.e[yw][\w-]+\.[\w-]*$/;

/**
 * Returns whether a credential has the form of an identity token.
 *
 * @param text The credential
 */
export function hasTokenForm(text: string): boolean {
  return text.startsWith("e") && FORM.test(text);
}

/**
 * Reads the claims of a token without verifying it.
 *
 * @param token A token
 * @returns The claims; `undefined` where there are none to read
 */
export function peekClaims(token: string): JWTPayload | undefined {
  try {
    return decodeJwt(token);
  } catch {
    return undefined;
  }
}

/**
 * Reads the claims of everything in a text that may be a token, whatever stands before and after it. Linear in its
 * length.
 *
 * @param text Anything
 * @returns Claims of tokens, which may be of anybody
 */
export function* findClaims(text: string): Generator<JWTPayload> {
  if (!text.includes(".e")) return;
  for (const word of text.split(/[^\w.-]+/)) {
    for (const part of word.split(".").slice(1)) {
      if (part.length > MAX_TOKEN_LENGTH || !/^e[yw]/.test(part)) continue;
      const claims = peekClaims(`e30.${part}.`);
      if (claims !== undefined) yield claims;
    }
  }
}
