/**
 * A gateway key as it is written down: in the configuration, in a key file, in Redis and at the admin API.
 *
 * @module
 */
import * as v from "valibot";
import { about } from "./schema.ts";
import { type Budget, formatBudget, formatRate, parseBudget, parseRate, type Rate } from "./units.ts";

/** Limits of a key or a provider. A limit that is left out does not apply. */
export interface LimitSet {
  /** Requests in a window. */
  readonly requests?: Rate | undefined;
  /** Tokens in a window, as the provider states them. */
  readonly tokens?: Rate | undefined;
  /** Exchanges that are open at once. */
  readonly concurrency?: number | undefined;
  /** Tokens in a day or month. */
  readonly budget?: Budget | undefined;
  /** `observe` counts without refusing; `enforce` if left out. */
  readonly mode?: "enforce" | "observe" | undefined;
}

/** One gateway key: in plain text or, better, as its digest. */
export interface KeyConfig {
  /** Names the key in logs and metrics. */
  readonly id: string;
  /** Name for people. */
  readonly name?: string | undefined;
  /** The key itself. */
  readonly key?: string | undefined;
  /** SHA-256 of the key, 64 hexadecimal digits in lower case. */
  readonly digest?: string | undefined;
  /** The secret before the last rotation, good until it expires. */
  readonly previous?: { readonly digest: string; readonly expiresAt: number } | undefined;
  /** Names of the providers it may use; left out, all. */
  readonly providers?: readonly string[] | undefined;
  /** Models it may use, each a name with `*` for any characters; left out, all. */
  readonly models?: readonly string[] | undefined;
  /** Limits of the key. */
  readonly limits?: LimitSet | undefined;
  /** Milliseconds since 1970 from which on it is refused. */
  readonly expiresAt?: number | undefined;
  /** Refused as long as this is true. */
  readonly disabled?: boolean | undefined;
  /** Milliseconds since 1970 at which it was revoked, for good. */
  readonly revokedAt?: number | undefined;
  /** Time of its creation, milliseconds since 1970. */
  readonly createdAt?: number | undefined;
  /** The operator's own notes. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

const nonEmpty = v.pipe(
  v.string("expected a string"),
  v.nonEmpty("expected a non-empty string"),
  v.maxLength(256, "expected at most 256 characters"),
);

/** Checks that the day exists in its month: `Date.parse` accepts a 30th of February. */
function isRealDay(text: string): boolean {
  const [year = 0, month = 0, day = 0] = text.slice(0, 10).split("-").map(Number);
  return day <= new Date(Date.UTC(year, month, 0)).getUTCDate();
}

const timeForm = "expected a date and time such as 2027-01-31T00:00:00Z";
const time = v.pipe(
  v.string(timeForm),
  v.isoTimestamp(timeForm),
  // Of all that ISO 8601 allows, what RFC 3339 has: `Date.parse` reads an offset such as +01 in some runtimes only.
  v.regex(/T.*(?:Z|[+-][0-9]{2}:[0-9]{2})$/, timeForm),
  v.check(isRealDay, timeForm),
  v.transform((text) => Date.parse(text)),
);

const digestForm = "expected SHA-256 as 64 hexadecimal digits";
const digest = v.pipe(v.string("expected a string"), v.toLowerCase(), v.regex(/^[0-9a-f]{64}$/, digestForm));

const rateForm = 'expected a rate such as "600/min", "100k/h" or "5/10s"';
const rate = v.pipe(
  v.string(rateForm),
  v.rawTransform(({ dataset, addIssue, NEVER }): Rate => {
    const parsed = parseRate(dataset.value);
    if (parsed === undefined) addIssue({ message: rateForm });
    return parsed ?? NEVER;
  }),
);
const budgetForm = 'expected a budget such as "5M/month" or "100k/day"';
const budget = v.pipe(
  v.string(budgetForm),
  v.rawTransform(({ dataset, addIssue, NEVER }): Budget => {
    const parsed = parseBudget(dataset.value);
    if (parsed === undefined) addIssue({ message: budgetForm });
    return parsed ?? NEVER;
  }),
);
const countForm = "expected a whole number from 1 to 1000000";

const limitForm = 'expected an object such as { requests: "600/min" }';
const limitSet = {
  requests: about(v.optional(rate), "Requests in a window, such as 600/min, 100k/h or 5/10s"),
  tokens: about(v.optional(rate), "Tokens in a window, such as 100k/min"),
  concurrency: v.optional(about(
    v.pipe(v.number(countForm), v.integer(countForm), v.minValue(1, countForm), v.maxValue(1e6, countForm)),
    "Exchanges that are open at once",
  )),
  budget: about(v.optional(budget), "Tokens in a day or month (UTC), such as 5M/month or 100k/day"),
  mode: v.optional(about(
    v.picklist(["enforce", "observe"], 'expected "enforce" or "observe"'),
    "`observe` counts without refusing; `enforce` if left out",
  )),
};

/** @internal Limits as they are written. */
export const LimitSetSchema: v.GenericSchema<unknown, LimitSet> = v.strictObject(limitSet, limitForm);

/** Settings of a key that people decide on, shared by all schemas of keys. */
const policy = {
  name: v.optional(about(nonEmpty, "For people")),
  providers: v.optional(about(
    v.array(nonEmpty, "expected an array of provider names"),
    "Names of the providers it may use; left out, all",
  )),
  models: v.optional(about(
    v.array(nonEmpty, "expected an array of model names"),
    "Models it may use, each a name with `*` for any characters; left out, all",
  )),
  limits: v.optional(about(LimitSetSchema, "How much it may take")),
  metadata: v.optional(
    about(v.record(v.string(), nonEmpty, "expected an object of texts"), "The operator's own notes"),
  ),
  disabled: v.optional(about(v.boolean("expected true or false"), "Refused as long as this is true")),
  expires: about(v.optional(time), "From then on it is refused; such as 2027-01-31T00:00:00Z"),
};

/** Settings with which a new key is requested. */
export type KeyPolicy = Omit<KeyConfig, "id" | "key" | "digest" | "previous" | "revokedAt" | "createdAt">;

/** @internal The body of a call that creates a key. */
export const KeyPolicySchema: v.GenericSchema<unknown, KeyPolicy> = v.pipe(
  v.strictObject(policy, "expected an object"),
  v.transform(({ expires, ...rest }) => ({ ...rest, expiresAt: expires })),
);

/** Limits as people write them. A limit that is left out does not apply. */
export interface WrittenLimits {
  /** Requests in a window, such as `600/min`. */
  readonly requests?: string | undefined;
  /** Tokens in a window, as the provider states them, such as `100k/h`. */
  readonly tokens?: string | undefined;
  /** Exchanges that are open at once. */
  readonly concurrency?: number | undefined;
  /** Tokens in a day or month (UTC), such as `5M/month`. */
  readonly budget?: string | undefined;
  /** `observe` counts without refusing; `enforce` if left out. */
  readonly mode?: "enforce" | "observe" | undefined;
}

/** The owner of a key and what the owner may do, as an embedder's own store returns it. */
export interface OwnKey {
  /** Names the owner in logs, metrics and limits: not the key. At most 64 characters. */
  readonly id: string;
  /** Name for people. */
  readonly name?: string | undefined;
  /** Names of the providers it may use; left out, all. */
  readonly providers?: readonly string[] | undefined;
  /** Models it may use, each a name with `*` for any characters; left out, all. */
  readonly models?: readonly string[] | undefined;
  /** Limits of the key, counted by {@link id}. */
  readonly limits?: WrittenLimits | undefined;
  /** Date and time from which on it is refused, such as `2027-01-31T00:00:00Z`. */
  readonly expires?: string | undefined;
  /** Refused as long as this is true. */
  readonly disabled?: boolean | undefined;
  /** The embedder's own notes. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** @internal The schema of {@link OwnKey}. */
export const OwnKeySchema: v.GenericSchema<unknown, KeyConfig> = v.pipe(
  v.strictObject(
    { ...policy, id: v.pipe(nonEmpty, v.maxLength(64, "expected at most 64 characters")) },
    "expected an object",
  ),
  v.transform(({ expires, ...rest }) => ({ ...rest, expiresAt: expires })),
);

/** Builds the schema of a change: each entry may be `null`, which becomes `undefined` and so removes the setting. */
function patchOf(entries: v.ObjectEntries, message: string) {
  const nullish = Object.entries(entries).map(([name, entry]) => [name, v.nullish(entry)]);
  return v.pipe(
    v.strictObject(Object.fromEntries(nullish) as v.ObjectEntries, message),
    v.transform((given) =>
      Object.fromEntries(
        Object.entries(given).map(([name, value]) => [name === "expires" ? "expiresAt" : name, value ?? undefined]),
      )
    ),
  );
}

/** @internal The body of a call that changes a key: `null` removes a setting, or one of the limits. */
export const KeyPatchSchema = patchOf(
  { ...policy, limits: patchOf(limitSet, limitForm) },
  "expected an object",
) as v.GenericSchema<unknown, Partial<KeyPolicy>>; // its entries are those of KeyPolicySchema

// `inbound/credentials.ts` refuses these before any look-up: such a key would never be let in.
const PROVIDER_KEY = /^(?:sk|gsk|xai)[-_]/;

/** @internal One key as it is written. */
export const KeySchema: v.GenericSchema<unknown, KeyConfig> = v.pipe(
  v.strictObject({
    ...policy,
    id: v.pipe(
      nonEmpty,
      v.maxLength(64, "expected at most 64 characters"),
      v.description("Names the key in logs and metrics"),
    ),
    key: v.optional(v.pipe(
      v.string("expected a string"),
      v.regex(/^[\x21-\x7e]{16,512}$/, "expected 16 to 512 visible ASCII characters"),
      v.check((key) => !PROVIDER_KEY.test(key), "expected a gateway key: this looks like a provider's"),
      v.description("The key itself: 16 to 512 visible ASCII characters"),
    )),
    digest: v.optional(about(digest, "Instead of the key: its SHA-256, 64 hexadecimal digits")),
    previous: about(
      v.optional(v.pipe(
        v.strictObject({ digest, expires: time }, "expected an object with digest and expires"),
        v.transform(({ digest, expires }) => ({ digest, expiresAt: expires })),
      )),
      "The secret before the last rotation: its digest, and until when it is good",
    ),
    revoked: about(v.optional(time), "When it was revoked, for good"),
    created: about(v.optional(time), "When it was made"),
  }, "expected an object"),
  v.check(({ key, digest }) => (key === undefined) !== (digest === undefined), "expected either key or digest"),
  v.transform(({ expires, revoked, created, ...rest }) => ({
    ...rest,
    expiresAt: expires,
    ...(revoked !== undefined && { revokedAt: revoked }),
    ...(created !== undefined && { createdAt: created }),
  })),
);

const toTime = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString();

/**
 * Writes limits as people write them.
 *
 * @param limits The limits
 * @returns What {@link LimitSetSchema} reads as the same limits
 */
export function toLimitsJson({ requests, tokens, concurrency, budget, mode }: LimitSet): Record<string, unknown> {
  return {
    requests: requests && formatRate(requests),
    tokens: tokens && formatRate(tokens),
    concurrency,
    budget: budget && formatBudget(budget),
    mode,
  };
}

/**
 * Writes a key as JSON; fields without a value are `undefined`, which JSON leaves out.
 *
 * @param key The key
 * @returns What {@link KeySchema} reads as the same key
 */
export function toKeyJson(key: KeyConfig): Record<string, unknown> {
  const { limits, previous, expiresAt, revokedAt, createdAt, ...rest } = key;
  return {
    ...rest,
    limits: limits && toLimitsJson(limits),
    previous: previous && { digest: previous.digest, expires: toTime(previous.expiresAt) },
    expires: toTime(expiresAt),
    revoked: toTime(revokedAt),
    created: toTime(createdAt),
  };
}
