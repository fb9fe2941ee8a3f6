/**
 * Verification of identity tokens: signature, issuer, audience and times, then the permissions from
 * its claims. A verified token is remembered by its digest, so that its next use needs no signature
 * check.
 *
 * @module
 */
import type { ReportEvent } from "../../exchange/reported_event.ts";
import {
  type CryptoKey,
  errors,
  jwtVerify,
  type JWTVerifyGetKey,
  type JWTVerifyOptions,
  type JWTVerifyResult,
} from "jose";
import type { IdentityConfig } from "../../config/identity.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { TokenFault } from "../../errors/outcomes.ts";
import { addCount } from "../../exchange/count_map.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { Digest } from "../key_format.ts";
import { RecentMap } from "../../exchange/recent_map.ts";
import {
  type AdminRole,
  type Claims,
  ClaimsRefused,
  type KnownNames,
  type TokenKey,
} from "./claims.ts";
import { toIdOf, toRole, toTokenKey } from "./claims.ts";
import type { IssuerKeys, KeySet, KeySetHealth } from "./key_set.ts";
import type { RevocableToken, RevocationRegistry } from "./revocations.ts";
import {
  findCandidates,
  isMissingKey,
  isWrongSignature,
  TokenRefused,
  toRefused,
} from "./token_fault.ts";
import { findClaims, hasTokenForm, MAX_TOKEN_LENGTH, peekClaims } from "./token_form.ts";

/** Maximum number of remembered tokens, of about a kilobyte each. */
const MAX_CACHED = 10_000;
/**
 * Media types of tokens that identify a bearer (RFC 7519 §5.1, RFC 9068 §2.1). The type is
 * optional.
 */
const TYPES: readonly unknown[] = [undefined, "jwt", "at+jwt"];
/**
 * Minimum interval between two messages about the same fault of an issuer's tokens. Milliseconds.
 */
const COMPLAINT_EVERY_MS = 60_000;

/** The result for a caller's token: its key, or the reason for its refusal. */
export type ResolvedToken =
  | TokenKey & { readonly fault?: undefined }
  | { readonly fault: TokenFault; readonly keyId: string | undefined };

/** An operator that was signed in with a token. */
export interface TokenOperator {
  /** Id of the subject, with the name of its issuer. */
  readonly id: string;
  readonly role: AdminRole;
}

/** Counts of tokens by issuer and result, for metrics. They outlive a configuration. */
export type TokenCounts = Map<string, Map<string, number>>;

/** Parts of a {@link TokenVerifier}. */
export interface VerifierParts extends KnownNames {
  /** Returns the public keys of an issuer. */
  readonly keysOf: (config: IdentityConfig) => IssuerKeys;
  readonly revocations: Pick<RevocationRegistry, "isReady" | "isRevoked">;
  readonly digest: Digest;
  readonly clock: Clock;
  readonly counts?: TokenCounts | undefined;
  /** Receives one line for the operator about tokens whose claims do not fit. */
  readonly report?: ReportEvent | undefined;
  /** Closes the parts that only this verifier uses. */
  readonly close?: (() => void) | undefined;
}

/** An issuer with the parts that verify its tokens. */
interface Issuer {
  readonly config: IdentityConfig;
  readonly keys: IssuerKeys;
  readonly options: JWTVerifyOptions;
}

/**
 * A token with a valid signature. Only the claims that the gateway needs are kept, because the
 * others can be large.
 */
interface Verified extends RevocableToken {
  readonly source: Issuer;
  /** The set of keys with which it was verified. If the set changes, it is verified again. */
  readonly by: KeySet;
  /** Time from which it is refused, milliseconds since 1970. */
  readonly expiresAt: number;
  /** The caller's key, or a fault if its claims yield none. */
  readonly resolved: ResolvedToken;
  /** The operator's role; `undefined` if its claims yield none. */
  readonly role: AdminRole | undefined;
}

/** Verifies the tokens of the configured issuers. */
export class TokenVerifier {
  readonly #issuers: readonly Issuer[];
  readonly #parts: VerifierParts;
  readonly #verified = new RecentMap<Verified>(MAX_CACHED / 2);
  readonly #complainedAt = new Map<string, number>();

  constructor(configs: readonly IdentityConfig[], parts: VerifierParts) {
    this.#parts = parts;
    this.#issuers = configs.map((config) => ({
      config,
      keys: parts.keysOf(config),
      options: {
        algorithms: [...config.algorithms],
        issuer: config.issuer,
        audience: [...config.audience],
        clockTolerance: config.leewayMs / 1000,
        maxTokenAge: config.maxAgeMs / 1000,
        requiredClaims: ["exp"],
      },
    }));
  }

  /** True if tokens of any issuer can sign operators in. */
  get hasOperators(): boolean {
    return this.#issuers.some(({ config }) => config.admin !== undefined);
  }

  /** Counts of callers' tokens by issuer and result. */
  get counts(): TokenCounts | undefined {
    return this.#parts.counts;
  }

  /** The state of the public keys of each issuer. */
  get health(): readonly ({ readonly name: string } & KeySetHealth)[] {
    return this.#issuers.map(({ config, keys }) => ({ name: config.name, ...keys.health }));
  }

  /** Ends the fetches of public keys, unless they are shared. */
  close(): void {
    this.#parts.close?.();
  }

  /** Returns whether a credential has the form of a token. */
  isToken(credential: string): boolean {
    return hasTokenForm(credential);
  }

  /**
   * Returns whether a text contains a token for this gateway, valid or not. Tokens of the same
   * issuer for other audiences, such as a provider, do not count.
   */
  isHeldIn(text: string): boolean {
    for (const claims of findClaims(text)) if (this.#find(claims) !== undefined) return true;
    return false;
  }

  /**
   * Finds the key of a caller's token.
   *
   * @returns The key, or the fault; a promise if a signature must be checked
   * @throws {GatewayError} `key_store_unavailable` if its issuer's keys or the revocations were
   * never read
   */
  resolve(token: string): ResolvedToken | Promise<ResolvedToken> {
    const cached = this.#recall(token);
    if (cached !== undefined) return this.#judge(cached, "remembered");
    return this.#verify(token).then(
      (verified) => this.#judge(verified, "verified"),
      (thrown) => this.#refuse(thrown, token),
    );
  }

  /**
   * Finds the operator of a token.
   *
   * @returns The operator; `undefined` for a valid token without a role
   * @throws {TokenRefused} For any other token
   * @throws {GatewayError} `key_store_unavailable`
   */
  async findOperator(token: string): Promise<TokenOperator | undefined> {
    if (!hasTokenForm(token)) throw new TokenRefused("token_form");
    const verified = this.#recall(token) ?? await this.#verify(token);
    const { id, role } = verified;
    if (id === undefined || role === undefined) return undefined;
    if (this.#isRevoked(verified)) throw new TokenRefused("token_revoked");
    return { id, role };
  }

  /**
   * Finds the operator that a token signs in.
   *
   * @returns The operator; `undefined` for any other token
   * @throws {GatewayError} `key_store_unavailable`
   */
  async signIn(token: string): Promise<TokenOperator | undefined> {
    if (!this.hasOperators || !hasTokenForm(token)) return undefined;
    try {
      return await this.findOperator(token);
    } catch (thrown) {
      if (thrown instanceof TokenRefused) return undefined;
      throw thrown;
    }
  }

  /** Returns a verified token, if it is still valid. */
  #recall(token: string): Verified | undefined {
    const { digest, clock } = this.#parts;
    const cached = this.#verified.get(digest(token));
    if (cached === undefined || cached.source.keys.current !== cached.by) return undefined;
    return clock.now() < cached.expiresAt ? cached : undefined;
  }

  #isRevoked(token: Verified): boolean {
    const { revocations } = this.#parts;
    if (!revocations.isReady) {
      throw new GatewayError("key_store_unavailable", {
        cause: new Error("Cannot read which tokens are revoked"),
      });
    }
    return revocations.isRevoked(token);
  }

  #judge(verified: Verified, result: "remembered" | "verified"): ResolvedToken {
    const { source: { config: { name, callers } }, id, resolved } = verified;
    let fault = resolved.fault;
    if (this.#isRevoked(verified)) fault = "token_revoked";
    else if (!callers) fault = "token_issuer";
    this.#count(name, fault ?? result);
    return fault === undefined ? resolved : { fault, keyId: id };
  }

  #refuse(thrown: unknown, token: string): ResolvedToken {
    if (!(thrown instanceof TokenRefused)) throw thrown;
    const { fault, claims } = thrown;
    const config = this.#find(peekClaims(token))?.config;
    this.#count(config?.name ?? "unknown", fault);
    if (claims === undefined || config === undefined) return { fault, keyId: undefined };
    return { fault, keyId: toIdOf(claims, config, this.#parts.digest) };
  }

  #count(name: string, result: string): void {
    const { counts } = this.#parts;
    if (counts === undefined) return;
    const own = counts.get(name) ?? new Map<string, number>();
    addCount(own, result);
    counts.set(name, own);
  }

  /** Finds the issuer of claims with an audience of this gateway. */
  #find(claims: Claims | undefined): Issuer | undefined {
    const audiences = [claims?.aud].flat();
    return this.#issuers.find(({ config }) =>
      claims?.iss === config.issuer && config.audience.some((each) => audiences.includes(each))
    );
  }

  async #verify(token: string): Promise<Verified> {
    if (token.length > MAX_TOKEN_LENGTH) throw new TokenRefused("token_form");
    const source = this.#find(peekClaims(token)) ?? refuseIssuer();
    const { keys } = source;
    const by = keys.current ?? await keys.first();
    try {
      return await this.#check(token, source, by);
    } catch (error) {
      if (!isMissingKey(error)) throw error instanceof TokenRefused ? error : toRefused(error);
    }
    const newer = await keys.newer(by);
    if (newer === undefined) throw new TokenRefused("token_key");
    return await this.#check(token, source, newer).catch((error) => {
      throw error instanceof TokenRefused ? error : toRefused(error);
    });
  }

  async #check(token: string, source: Issuer, by: KeySet): Promise<Verified> {
    const { digest, clock } = this.#parts;
    const { config, options } = source;
    const currentDate = new Date(clock.now());
    const { payload: claims, protectedHeader: { typ } } = await verifySignature(token, by, {
      ...options,
      currentDate,
    });
    if (!TYPES.includes(typ?.toLowerCase().replace(/^application\//, ""))) {
      throw new TokenRefused("token_form", claims);
    }
    const { exp = 0, iat = 0, jti, sub } = claims;
    const verified: Verified = {
      source,
      by,
      issuer: config.issuer,
      jti: typeof jti === "string" ? jti : undefined,
      subject: typeof sub === "string" ? sub : undefined,
      id: toIdOf(claims, config, digest),
      issuedAt: iat * 1000,
      leewayMs: config.leewayMs,
      expiresAt: Math.min(exp * 1000, iat * 1000 + config.maxAgeMs) + config.leewayMs,
      resolved: this.#toResolved(claims, config),
      role: toRole(claims, config),
    };
    this.#verified.set(digest(token), verified);
    return verified;
  }

  #toResolved(claims: Claims, config: IdentityConfig): ResolvedToken {
    try {
      return toTokenKey(claims, config, this.#parts);
    } catch (error) {
      if (!(error instanceof ClaimsRefused)) throw error;
      if (config.callers) this.#complain(config.name, error.message);
      return { fault: "token_claims", keyId: undefined };
    }
  }

  /** Reports claims that do not fit to the operator, each at most once a minute. */
  #complain(name: string, why: string): void {
    const { clock, report } = this.#parts;
    const now = clock.monotonic();
    const text = `a token of ${name} is refused: ${why}`;
    if (now - (this.#complainedAt.get(text) ?? -Infinity) < COMPLAINT_EVERY_MS) return;
    this.#complainedAt.set(text, now); // bounded, because the messages name only settings
    report?.(text, { event: "identity_refused", identity: name });
  }
}

/** The part of a verifier for callers. */
export type CallerTokens = Pick<TokenVerifier, "isToken" | "isHeldIn" | "resolve" | "close">;

/**
 * Verifies a token with the key that its header names. If it names none, each key that fits its
 * algorithm is tried (RFC 7515 §4.1.4: `kid` is a hint, and optional).
 */
async function verifySignature(
  token: string,
  by: KeySet,
  options: JWTVerifyOptions,
): Promise<JWTVerifyResult> {
  const find = by.find as JWTVerifyGetKey; // as createLocalJWKSet made it
  try {
    return await jwtVerify(token, find, options);
  } catch (error) {
    const candidates = findCandidates<CryptoKey>(error);
    if (candidates === undefined) throw error;
    for await (const key of candidates) {
      const result = await jwtVerify(token, key, options).catch((failure) => {
        if (!isWrongSignature(failure)) throw failure;
      });
      if (result !== undefined) return result;
    }
    // No key fits. The issuer can have published another one since.
    throw new errors.JWKSNoMatchingKey();
  }
}

function refuseIssuer(): never {
  throw new TokenRefused("token_issuer");
}
