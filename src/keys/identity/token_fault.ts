/**
 * Faults for which an identity token is refused.
 *
 * @module
 */
import type { Claims } from "./claims.ts";
import type { TokenFault } from "../../errors/outcomes.ts";

/** A fault of a token. */
export class TokenRefused extends Error {
  readonly fault: TokenFault;
  readonly claims: Claims | undefined;

  constructor(fault: TokenFault, claims?: Claims) {
    super(fault);
    this.fault = fault;
    this.claims = claims;
  }
}

/** Faults by the codes of `jose`. */
const FAULTS: Readonly<Record<string, TokenFault>> = {
  ERR_JOSE_ALG_NOT_ALLOWED: "token_algorithm",
  ERR_JOSE_NOT_SUPPORTED: "token_algorithm",
  ERR_JWKS_NO_MATCHING_KEY: "token_key",
  ERR_JWKS_MULTIPLE_MATCHING_KEYS: "token_key",
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: "token_signature",
  ERR_JWS_INVALID: "token_form",
  ERR_JWT_INVALID: "token_form",
  ERR_JWT_EXPIRED: "token_expired",
};
const FAULTS_BY_CLAIM: Readonly<Record<string, TokenFault>> = {
  iss: "token_issuer",
  aud: "token_issuer",
  nbf: "token_early",
  iat: "token_early",
};

/**
 * Returns the fault for which `jose` refused a token. Its other errors are about the key, which is
 * too short or unknown.
 */
export function toRefused(error: unknown): TokenRefused {
  const { code, claim, reason, payload } = Object(error) as Record<string, unknown>;
  const claims = payload as Claims | undefined;
  if (code !== "ERR_JWT_CLAIM_VALIDATION_FAILED") {
    return new TokenRefused(FAULTS[String(code)] ?? "token_key", claims);
  }
  return new TokenRefused(
    reason === "check_failed" ? FAULTS_BY_CLAIM[String(claim)] ?? "token_claims" : "token_claims",
    claims,
  );
}

/** Returns whether the signature of a token does not match its key. */
export const isWrongSignature = (error: unknown): boolean =>
  Object(error).code === "ERR_JWS_SIGNATURE_VERIFICATION_FAILED";

/**
 * Returns the candidate keys of a token that names no key, if several fit; `undefined` for any
 * other error.
 */
export function findCandidates<Key>(error: unknown): AsyncIterable<Key> | undefined {
  return Object(error).code === "ERR_JWKS_MULTIPLE_MATCHING_KEYS"
    ? error as AsyncIterable<Key>
    : undefined;
}

/** Returns whether a token names a key that is not in the set. */
export const isMissingKey = (error: unknown): boolean =>
  Object(error).code === "ERR_JWKS_NO_MATCHING_KEY";
