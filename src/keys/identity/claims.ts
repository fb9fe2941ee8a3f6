/**
 * Converts the claims of a verified token to permissions: a key for callers, a role for operators.
 *
 * @module
 */
import * as v from "valibot";
import { matchesGlob } from "../../config/glob.ts";
import type { ClaimRule, IdentityConfig, MappedClaim } from "../../config/identity.ts";
import { type KeyConfig, TOKEN_ID_PREFIX } from "../../config/key.ts";
import { GROUPS, type OperationGroup, type WrittenGroup } from "../../config/operation_groups.ts";
import { TeamNameSchema } from "../../config/team.ts";
import type { Digest } from "../key_format.ts";

/** Claims of a token (RFC 7519 §4). */
export interface Claims {
  readonly [name: string]: unknown;
  readonly iss?: string;
  readonly sub?: string;
  readonly aud?: string | string[];
  readonly jti?: string;
  readonly nbf?: number;
  readonly exp?: number;
  readonly iat?: number;
}

/** Role at the admin listener. A viewer can read. An admin can also make changes. */
export type AdminRole = "viewer" | "admin";

/** A token whose claims do not meet the configuration. The message is for the operator. */
export class ClaimsRefused extends Error {
  override readonly name = "ClaimsRefused";
}

/** The longest id of a key, as in the schema of keys. */
const MAX_ID_LENGTH = 64;
/**
 * Characters that stay unchanged in ids: the characters of URLs, mail addresses and subjects of
 * well-known issuers.
 */
const PLAIN = /^[\w.@:/|+=-]+$/;
/**
 * Number of digits of the digest in an id: 80 bits, so that no second subject with the same id can
 * be found.
 */
const DIGEST_DIGITS = 20;
/** The longest display name, as in the schema of keys. */
const MAX_NAME_LENGTH = 256;
/** The most names in one claim. */
const MAX_NAMES = 1000;

/**
 * Makes the id of a caller. Different names never have the same id: the id of a name that is too
 * long, or that has characters not allowed in ids, ends with `~` and a digest. Other ids do not
 * contain `~`.
 *
 * @param name Name of the caller in its tokens
 * @returns An id that no stored key has
 */
export function toTokenId(issuer: string, name: string, digest: Digest): string {
  const prefix = `${TOKEN_ID_PREFIX}${issuer}:`;
  const room = MAX_ID_LENGTH - prefix.length;
  if (name.length <= room && PLAIN.test(name)) return prefix + name;
  const readable = name.replace(/[^\w.@:/|+=-]+/g, "_").slice(0, room - DIGEST_DIGITS - 1);
  return `${prefix}${readable}~${digest(name).slice(0, DIGEST_DIGITS)}`;
}

/**
 * Reads a claim: a top-level claim with this name, or else a nested claim by its path with dots.
 */
function readClaim(claims: Claims, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name];
  let value: unknown = claims;
  for (const step of name.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) {
      return undefined;
    }
    value = (value as Record<string, unknown>)[step];
  }
  return value;
}

/** Returns the texts of a claim. Numbers and booleans are converted to their JSON text. */
function toTexts(value: unknown): string[] {
  return [value].flat().slice(0, MAX_NAMES)
    .filter((each) =>
      typeof each === "string" || typeof each === "number" || typeof each === "boolean"
    )
    .map(String);
}

/** Applies a rule. @returns The values; empty if the claim is absent and has no default */
function apply(rule: ClaimRule, claims: Claims): string[] {
  const { claim, map, value, default: fallback } = rule;
  if (claim === undefined) return toTexts(value);
  const given = toTexts(readClaim(claims, claim)).filter((text) => text !== "");
  const found = map === undefined
    ? given
    : map.filter(([from]) => given.includes(from)).map(([, to]) => to);
  return found.length > 0 || fallback === undefined ? found : toTexts(fallback);
}

/** Checks the claims that the configuration requires. @throws {ClaimsRefused} */
function assertRequired(claims: Claims, required: IdentityConfig["require"]): void {
  for (const [name, accepted] of Object.entries(required)) {
    const given = toTexts(readClaim(claims, name));
    if (given.some((text) => accepted.some((pattern) => matchesGlob(text, pattern)))) continue;
    throw new ClaimsRefused(`${name} has none of the values that the configuration requires`);
  }
}

const isGroup = (name: string): name is WrittenGroup =>
  name === "all" || name === "default" || Object.hasOwn(GROUPS, name as OperationGroup);

/** Names in the configuration. */
export interface KnownNames {
  readonly teams: Readonly<Record<string, unknown>>;
  /** True if there can be further teams, which are looked up at each call. */
  readonly hasStoredTeams?: boolean | undefined;
}

/** A caller's key, and the plan with its limits. */
export interface TokenKey {
  readonly key: KeyConfig;
  readonly plan: string | undefined;
}

/**
 * Makes the key of a caller. A token without a claim that a setting needs is refused, because
 * leaving out the setting would mean that everything is allowed.
 *
 * @returns The key, without an expiry, and its plan
 * @throws {ClaimsRefused} If a claim is missing, or contains a name that is not configured
 */
export function toTokenKey(
  claims: Claims,
  config: IdentityConfig,
  { digest, teams, hasStoredTeams = false }: { readonly digest: Digest } & KnownNames,
): TokenKey {
  const { plans, claims: rules } = config;
  assertRequired(claims, config.require);
  const list = (name: MappedClaim): string[] | undefined => {
    const rule = rules[name];
    if (rule === undefined) return undefined;
    const found = apply(rule, claims);
    if (found.length === 0) {
      throw new ClaimsRefused(`claims.${name} yields nothing, and has no default`);
    }
    return found;
  };
  const id = toOneName(claims, config);
  const [team] = list("team") ?? [];
  const isPossible = team === undefined || Object.hasOwn(teams, team) ||
    (hasStoredTeams && v.is(TeamNameSchema, team));
  if (!isPossible) {
    throw new ClaimsRefused("claims.team yields an unknown team");
  }
  const [plan] = list("limits") ?? [];
  if (plan !== undefined && !Object.hasOwn(plans, plan)) {
    throw new ClaimsRefused("claims.limits yields no plan");
  }
  const [name] = rules.name === undefined ? [] : apply(rules.name, claims);
  const key: KeyConfig = {
    id: toTokenId(config.name, id, digest),
    name: name?.slice(0, MAX_NAME_LENGTH),
    providers: list("providers"),
    models: list("models"),
    operations: list("operations")?.filter(isGroup),
    team,
    limits: plan === undefined ? undefined : plans[plan],
  };
  return { key, plan };
}

/** Returns the name of a caller in a token. @throws {ClaimsRefused} If it is missing */
function toOneName(claims: Claims, config: IdentityConfig): string {
  const { id: rule = { claim: "sub" } } = config.claims;
  const [id] = apply(rule, claims);
  if (id === undefined) throw new ClaimsRefused("claims.id yields nothing");
  return id;
}

/**
 * Makes the id of a caller, even if its token is refused for another reason.
 *
 * @returns The id; `undefined` if the claims yield none
 */
export function toIdOf(claims: Claims, config: IdentityConfig, digest: Digest): string | undefined {
  try {
    return toTokenId(config.name, toOneName(claims, config), digest);
  } catch {
    return undefined;
  }
}

const RoleSchema = v.picklist(["viewer", "admin"]);

/**
 * Finds the role of an operator.
 *
 * @returns Its highest role; `undefined` if it has none
 */
export function toRole(claims: Claims, { require, admin }: IdentityConfig): AdminRole | undefined {
  if (admin === undefined) return undefined;
  try {
    assertRequired(claims, require);
    assertRequired(claims, admin.require);
  } catch {
    return undefined;
  }
  const roles = apply(admin.role, claims).filter((role): role is AdminRole =>
    v.is(RoleSchema, role)
  );
  return roles.includes("admin") ? "admin" : roles[0];
}
