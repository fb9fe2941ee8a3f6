/**
 * The setting for issuers of identity tokens (JWT), which are accepted instead of gateway keys.
 *
 * @module
 */
import * as v from "valibot";
import { type LimitSet, LimitSetSchema, type WrittenLimits } from "./limit_set.ts";
import { about, duration, nonEmpty, shortText, strictObject } from "./schema.ts";
import { type SignInConfig, type SignInInput, SignInSchema } from "./sign_in.ts";

/** A signature algorithm (RFC 7518 §3.1, RFC 8037). */
export type TokenAlgorithm =
  | ("RS256" | "RS384" | "RS512")
  | ("PS256" | "PS384" | "PS512")
  | ("ES256" | "ES384" | "ES512")
  | "EdDSA";

/**
 * Signature algorithms that can be accepted. All are asymmetric: no shared secret, and never
 * `none`.
 */
const TOKEN_ALGORITHMS: readonly TokenAlgorithm[] = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
];

/** Source of a value: a claim of the token, or a constant. */
export interface ClaimRule {
  /** Name of the claim, or the path of a nested claim with dots, such as `realm_access.roles`. */
  readonly claim?: string | undefined;
  /**
   * Pairs of a value of the claim and its replacement. The first match counts. Other values count
   * as absent.
   */
  readonly map?: readonly (readonly [from: string, to: string])[] | undefined;
  /** Value if the claim is absent. Without a default the token is refused. */
  readonly default?: string | readonly string[] | undefined;
  /** A constant, instead of a claim. */
  readonly value?: string | readonly string[] | undefined;
}

/** A rule as written in the configuration. */
export interface WrittenRule extends Omit<ClaimRule, "map"> {
  /**
   * Values of the claim, each with its replacement: an object, or pairs. JavaScript sorts names of
   * an object that are whole numbers, so these need pairs if the order matters.
   */
  readonly map?:
    | Readonly<Record<string, string>>
    | readonly (readonly [from: string, to: string])[]
    | undefined;
}

/** Source of a value, as written: the name of a claim, or a rule. */
export type ClaimInput = string | WrittenRule;

/** A setting of a key with a value from a claim. */
export type MappedClaim = "id" | "name" | "team" | "providers" | "models" | "operations" | "limits";

/** Public keys of an issuer (RFC 7517 §5). */
export interface KeySetInput {
  /** The keys, each a JWK. */
  readonly keys: readonly Readonly<Record<string, unknown>>[];
}

/** Operators that an issuer knows. */
export interface OperatorsConfig {
  /** Role at the admin listener. */
  readonly role: ClaimRule;
  /** Claims that an operator's token needs. */
  readonly require: IdentityConfig["require"];
  /** Sign-in to the console; if left out, operators need a token from elsewhere. */
  readonly signIn?: SignInConfig | undefined;
}

/** An issuer of identity tokens. */
export interface IdentityConfig {
  /** Name of the issuer in the ids of its callers, in the log and in metrics. */
  readonly name: string;
  /** `iss` of its tokens. */
  readonly issuer: string;
  /** `aud` of tokens that are for this gateway: one of these. */
  readonly audience: readonly string[];
  /** URL or file of its public keys, or the keys; default: found by OpenID Connect Discovery. */
  readonly jwks?: string | KeySetInput | undefined;
  /** Accepted signature algorithms. */
  readonly algorithms: readonly TokenAlgorithm[];
  /**
   * Claims that a token needs, each with its accepted values, in which `*` matches any characters.
   */
  readonly require: Readonly<Record<string, readonly string[]>>;
  /** Settings of the caller's key, with the claims for them. */
  readonly claims: { readonly [Name in MappedClaim]?: ClaimRule | undefined };
  /** Limits by the names that `claims.limits` yields. */
  readonly plans: Readonly<Record<string, LimitSet>>;
  /** False if its tokens are only for the admin listener. */
  readonly callers: boolean;
  /** Its operators; if left out, its tokens are not accepted at the admin listener. */
  readonly admin?: OperatorsConfig | undefined;
  /** Tolerated difference of clocks, milliseconds. */
  readonly leewayMs: number;
  /** Age from which a token is refused, regardless of its `exp`: milliseconds since its `iat`. */
  readonly maxAgeMs: number;
  /** Age at which public keys are fetched again, milliseconds. */
  readonly refreshMs: number;
}

/** Claims that a token needs, as written: each with one value, or with several alternatives. */
export type WrittenRequire = Readonly<Record<string, string | readonly string[]>>;

/** An issuer as written in the configuration. */
export interface IdentityInput {
  /** Name of the issuer in ids, log and metrics. Default: the host of `issuer`. */
  readonly name?: string | undefined;
  /** `iss` of its tokens: an https URL. */
  readonly issuer: string;
  /** `aud` of tokens that are for this gateway; one of a list is enough. */
  readonly audience: string | readonly string[];
  /** URL or file of its public keys, or the keys; default: found by OpenID Connect Discovery. */
  readonly jwks?: string | KeySetInput | undefined;
  /** Signature algorithms. Default: all asymmetric ones. */
  readonly algorithms?: readonly TokenAlgorithm[] | undefined;
  /** Claims that a token needs, such as `{ "repository_owner": "my-org" }`. */
  readonly require?: WrittenRequire | undefined;
  /** Settings of the caller's key, with the claims for them. Default of `id`: `sub`. */
  readonly claims?: Readonly<Partial<Record<MappedClaim, ClaimInput>>> | undefined;
  /** Limits by the names that `claims.limits` yields. */
  readonly plans?: Readonly<Record<string, WrittenLimits>> | undefined;
  /** False if its tokens are only for the admin listener. */
  readonly callers?: boolean | undefined;
  /** Roles at the admin listener: `role` yields `viewer` or `admin`. */
  readonly admin?:
    | {
      readonly role: ClaimInput;
      readonly require?: WrittenRequire | undefined;
      /** Sign-in to the console at the issuer. */
      readonly signIn?: SignInInput | undefined;
    }
    | undefined;
  /** Tolerated difference of clocks. Default: `30s`. */
  readonly leeway?: string | undefined;
  /** Age from which a token is refused, regardless of its `exp`. Default: `24h`. */
  readonly maxAge?: string | undefined;
  /** Age at which public keys are fetched again. Default: `5m`. */
  readonly refresh?: string | undefined;
}

/**
 * Issuers that issue tokens for any audience to everyone. Without `require`, all their users would
 * be accepted.
 */
const PUBLIC_ISSUERS =
  /^https:\/\/(?:token\.actions\.githubusercontent\.com|gitlab\.com|accounts\.google\.com)(?:\/|$)/;
const LOOPBACK = /^(?:localhost|127(?:\.\d+){3}|\[::1\])$/;

/** Returns whether keys from an address can be trusted: over https, or on this machine. */
export function isTrustedAddress(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { protocol, hostname, username, password } = new URL(url);
  // A name before the host looks like a host: `http://127.0.0.1:1@evil.example/`.
  if (username + password !== "") return false;
  return protocol === "https:" || (protocol === "http:" && LOOPBACK.test(hostname));
}

const issuerForm = "expected an https URL without query and fragment (http only on this machine)";
const nameForm =
  "expected at most 32 lower-case letters, digits, dots, hyphens and underscores: set name";
const NAME = /^[a-z0-9][a-z0-9._-]{0,31}$/;
const jwksForm = 'expected an https URL, a file, or an object such as { "keys": [ … ] }';

const WHOLE_NUMBER = /^(?:0|[1-9]\d*)$/;
const orderForm = 'expected pairs such as [["10", "ads"], ["9", "search"]]: ' +
  "an object does not keep the order of numbers";
const mapForm = 'expected an object such as { "group-1": "search" }, ' +
  'or pairs such as [["10", "ads"], ["9", "search"]]';
const hasOrder = (map: object): boolean =>
  Array.isArray(map) || Object.keys(map).length < 2 ||
  !Object.keys(map).some((name) => WHOLE_NUMBER.test(name));

/** Builds the schema of a map. @param isOrdered True if the first match decides */
function mapOf(isOrdered: boolean) {
  return v.pipe(
    v.union(
      [v.record(v.string(), shortText), v.array(v.strictTuple([v.string(), shortText]))],
      mapForm,
    ),
    v.check((map) => !isOrdered || hasOrder(map), orderForm),
    v.description(
      "For each value of the claim the value to use instead: an object, or a list of pairs",
    ),
    v.transform((map): readonly (readonly [string, string])[] =>
      Array.isArray(map) ? map : Object.entries(map)
    ),
  );
}

const texts = v.union([shortText, v.array(shortText)], "expected a string or an array of strings");
const ruleForm = "expected the name of a claim, " +
  'or an object such as { "claim": "groups", "map": { "…": "search" } }';

/** Builds the schema of a rule. @param isOrdered True if the first match of its map decides */
function ruleOf(isOrdered: boolean): v.GenericSchema<ClaimInput, ClaimRule> {
  return v.union([
    v.pipe(shortText, v.transform((claim) => ({ claim }))),
    v.pipe(
      strictObject({
        claim: v.optional(
          about(shortText, "Name of the claim. For a nested claim all names, joined by dots"),
        ),
        map: v.optional(mapOf(isOrdered)),
        default: v.optional(
          about(
            texts,
            "Value if the claim is missing. Left out: such a token is refused, unless the claim is for `name`",
          ),
        ),
        value: v.optional(about(texts, "A constant instead of a claim")),
      }, ruleForm),
      v.check(
        ({ claim, value }) => (claim === undefined) !== (value === undefined),
        "expected either claim or value",
      ),
      v.check(
        ({ value, map, default: fallback }) =>
          value === undefined || (map === undefined && fallback === undefined),
        "expected value without map and default: they apply to a claim",
      ),
    ),
  ], ruleForm) as v.GenericSchema<ClaimInput, ClaimRule>;
}

/** A rule for one value: the first match decides. */
const first = ruleOf(true);
/** A rule for a list, in which the order does not matter. */
const rule = ruleOf(false);

const requireForm = 'expected an object such as { "repository_owner": "my-org" }';
const require = v.optional(
  v.pipe(
    about(
      v.record(
        v.string(),
        v.pipe(
          texts,
          v.check((values) => values.length > 0, "expected at least one value: no token would fit"),
        ),
        requireForm,
      ),
      "Claims that a token needs, each with one accepted value or several; `*` for any characters",
    ),
    v.transform((all) =>
      Object.fromEntries(Object.entries(all).map(([name, values]) => [name, [values].flat()]))
    ),
  ),
  {},
);

const claimsForm =
  "expected an object with some of id, name, team, providers, models, operations, limits";
const claims = strictObject({
  id: v.optional(
    about(
      first,
      "Id of the caller. Limits, log and metrics name the caller `jwt:<name of the issuer>:<id>`",
    ),
    "sub",
  ),
  name: v.optional(about(first, "A name of the caller for people")),
  team: v.optional(about(first, "Name of the caller's team")),
  providers: v.optional(about(rule, "Names of the providers that the caller can use")),
  models: v.optional(about(rule, "Models that the caller can use")),
  operations: v.optional(about(rule, "Groups of operations that the caller can use")),
  limits: v.optional(
    about(first, "Name of one of the `plans`. A number in a token is never a limit"),
  ),
}, claimsForm);

const algorithmForm = `expected one of ${TOKEN_ALGORITHMS.join(", ")}: asymmetric ones only`;

const entries = {
  name: v.optional(
    about(v.string(nameForm), "Name of the issuer in ids, log and metrics. Left out: its host"),
  ),
  issuer: about(
    v.pipe(nonEmpty, v.check((url) => isTrustedAddress(url) && !/[?#]/.test(url), issuerForm)),
    "`iss` of its tokens, compared exactly",
  ),
  audience: about(
    texts,
    "`aud` of tokens for this gateway. If it is a list, a token needs one of them",
  ),
  jwks: v.optional(about(
    v.union([
      v.pipe(
        nonEmpty,
        v.check(
          (text) => !/^[a-z][a-z0-9+.-]*:\/\//i.test(text) || isTrustedAddress(text),
          jwksForm,
        ),
      ),
      strictObject({
        keys: about(v.array(v.record(v.string(), v.unknown())), "Public keys, each a JWK"),
      }, jwksForm),
    ], jwksForm),
    "Public keys of the issuer: a URL, a file, or the keys themselves. Left out: OpenID Connect Discovery finds them",
  )),
  algorithms: v.optional(
    about(
      v.pipe(
        v.array(v.picklist(TOKEN_ALGORITHMS, algorithmForm)),
        v.nonEmpty("expected at least one"),
      ),
      "Signature algorithms that are accepted, such as `ES256`. Left out: all asymmetric ones",
    ),
    TOKEN_ALGORITHMS,
  ),
  require,
  claims: v.optional(
    about(
      claims,
      "Rules that read the settings of a caller from its token. Each has the form of `claims.id`, or is only the name of a claim",
    ),
    {},
  ),
  plans: v.optional(
    about(
      v.record(shortText, LimitSetSchema, "expected limits by name"),
      "Limits by the name of a plan. The rule `claims.limits` selects the plan of a caller",
    ),
    {},
  ),
  callers: v.optional(
    about(
      v.boolean("expected true or false"),
      "With `false`, tokens of this issuer are accepted only at the admin listener",
    ),
    true,
  ),
  admin: v.optional(about(
    strictObject(
      {
        role: about(
          rule,
          "Rule for the role of an operator, `viewer` or `admin`. It has the form of `claims.id`",
        ),
        require,
        signIn: v.optional(SignInSchema),
      },
      "expected an object with role",
    ),
    "Which tokens are accepted at the admin listener, and with which role",
  )),
  leeway: about(
    duration("30s"),
    "Largest difference between the clocks of the issuer and the gateway that is tolerated",
  ),
  maxAge: about(duration("24h"), "Age from which a token is refused, regardless of its `exp`"),
  refresh: about(duration("5m"), "Time after which the public keys are fetched again"),
};

const MAX_LEEWAY_MS = 300_000;

const one = v.pipe(
  strictObject(entries, "expected an object with issuer and audience"),
  v.transform((input): IdentityConfig => {
    const { leeway, maxAge, refresh, audience, name, ...rest } = input;
    return {
      ...rest,
      name: name ?? (URL.canParse(rest.issuer) ? new URL(rest.issuer).hostname : ""),
      audience: [audience].flat(),
      leewayMs: leeway,
      maxAgeMs: maxAge,
      refreshMs: refresh,
    };
  }),
  v.check(({ name }) => NAME.test(name), nameForm),
  v.check(
    ({ plans, claims }) => Object.keys(plans).length === 0 || claims.limits !== undefined,
    "expected claims.limits, which names one of the plans: " +
      "without it no plan applies, and callers have no limit",
  ),
  v.check(
    ({ callers, admin }) => callers || admin !== undefined,
    "expected admin: with callers false, and without it, " +
      "no token of this issuer is accepted anywhere",
  ),
  v.check(
    ({ audience, admin }) =>
      admin?.signIn?.token !== "id" || audience.includes(admin.signIn.clientId),
    "expected admin.signIn.clientId in audience: it is the audience of id tokens",
  ),
  v.check(({ audience }) => audience.length > 0, "audience: expected at least one"),
  v.check(({ leewayMs }) => leewayMs <= MAX_LEEWAY_MS, "leeway: expected at most 5m"),
  v.check(({ refreshMs }) => refreshMs >= 1000, "refresh: expected at least 1s"),
  v.check(
    ({ issuer, require }) => !PUBLIC_ISSUERS.test(issuer) || Object.keys(require).length > 0,
    "expected require: everybody can get a token of this issuer. " +
      'Such as { "repository_owner": "my-org" }',
  ),
);

/** @internal The issuers of identity tokens. */
export const IdentitySchema: v.GenericSchema<readonly IdentityInput[], readonly IdentityConfig[]> =
  v.pipe(
    v.array(one, 'expected an array such as [{ "issuer": "https://…", "audience": "…" }]'),
    v.check(
      (all) => new Set(all.map(({ name }) => name)).size === all.length,
      "expected names that differ: set name where two have the same host",
    ),
    v.check(
      (all) => {
        const pairs = all.flatMap(({ issuer, audience }) =>
          audience.map((each) => `${issuer} ${each}`)
        );
        return new Set(pairs).size === pairs.length;
      },
      "expected audiences that differ where two have the same issuer: " +
        "only the first one would be asked",
    ),
    v.description(
      "Issuers of identity tokens (JWT) that are accepted instead of gateway keys",
    ),
  ) as v.GenericSchema<readonly IdentityInput[], readonly IdentityConfig[]>;
