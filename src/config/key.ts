/**
 * The written form of a gateway key: in the configuration, in a key file, in Redis and in the admin
 * API.
 *
 * @module
 */
import * as v from "valibot";
import {
  type DurableConfig,
  type DurableInput,
  KeyDurableSchema,
  toDurableJson,
} from "./durable.ts";
import {
  LimitPatchSchema,
  type LimitSet,
  LimitSetSchema,
  toLimitsJson,
  type WrittenLimits,
} from "./limit_set.ts";
import { OperationsSchema, type WrittenGroup } from "./operation_groups.ts";
import {
  about,
  type EntriesOf,
  nonEmpty,
  patchOf,
  secret,
  shortText,
  strictObject,
} from "./schema.ts";
import { TeamNameSchema } from "./team.ts";

/**
 * One checked gateway key. In the configuration it has the key in plain text or, better, its
 * digest. From an embedder's function or an identity token it has neither.
 */
export interface KeyConfig extends Omit<ResolvedKey, "limits" | "durable" | "expires"> {
  /** The key itself. */
  readonly key?: string | undefined;
  /** SHA-256 of the key, 64 hexadecimal digits in lower case. */
  readonly digest?: string | undefined;
  /** The secret before the last rotation, valid until it expires. */
  readonly previous?: { readonly digest: string; readonly expiresAt: number } | undefined;
  /** Limits of the key. */
  readonly limits?: LimitSet | undefined;
  /**
   * Durable exchanges, instead of the settings of its provider. `false`: none. Default: the
   * settings of the provider.
   */
  readonly durable?: DurableConfig | false | undefined;
  /** Time from which it is refused, milliseconds since 1970. */
  readonly expiresAt?: number | undefined;
  /** Time at which it was permanently revoked, milliseconds since 1970. */
  readonly revokedAt?: number | undefined;
  /** Time of its creation, milliseconds since 1970. */
  readonly createdAt?: number | undefined;
}

/** The owner of a key and the owner's permissions, as an embedder's own store returns them. */
export interface ResolvedKey {
  /** Name of the owner in logs, metrics and limits. Not the key. At most 64 characters. */
  readonly id: string;
  /** Display name. */
  readonly name?: string | undefined;
  /** Names of the providers that it can use. Default: all. */
  readonly providers?: readonly string[] | undefined;
  /** Models that it can use, each a name with `*` for any characters. Default: all. */
  readonly models?: readonly string[] | undefined;
  /** Groups of operations that it can use. Default: all that the provider allows. */
  readonly operations?: readonly WrittenGroup[] | undefined;
  /** Name of its team, whose limits apply to it too. */
  readonly team?: string | undefined;
  /** Limits of the key, counted by {@link id}. */
  readonly limits?: WrittenLimits | undefined;
  /**
   * Durable exchanges, instead of the settings of its provider. `false`: none. Default: the
   * settings of the provider.
   */
  readonly durable?: DurableInput | false | undefined;
  /** Date and time from which it is refused, such as `2027-01-31T00:00:00Z`. */
  readonly expires?: string | undefined;
  /** True to refuse the key. */
  readonly disabled?: boolean | undefined;
  /**
   * True if its callers can use provider keys that the gateway holds, and send none. Default: as its
   * team.
   */
  readonly heldKeys?: boolean | undefined;
  /** Notes of the operator or embedder, which the gateway does not read. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** One gateway key as written in the configuration. */
export interface KeyInput extends ResolvedKey {
  /** The key itself: 16 to 512 visible ASCII characters. */
  readonly key?: string | undefined;
  /** Instead of the key: its SHA-256, 64 hexadecimal digits. */
  readonly digest?: string | undefined;
  /** The secret before the last rotation: its digest, and the time until which it is valid. */
  readonly previous?: { readonly digest: string; readonly expires: string } | undefined;
  /** Date and time at which it was permanently revoked. */
  readonly revoked?: string | undefined;
  /** Date and time of its creation. */
  readonly created?: string | undefined;
}

/** Settings of a new key. */
export type KeyPolicy = Omit<
  KeyConfig,
  "id" | "key" | "digest" | "previous" | "revokedAt" | "createdAt"
>;

/** Checks that the day exists in its month: `Date.parse` accepts a 30th of February. */
function isRealDay(text: string): boolean {
  const [year = 0, month = 0, day = 0] = text.slice(0, 10).split("-").map(Number);
  return day <= new Date(Date.UTC(year, month, 0)).getUTCDate();
}

const timeForm = "expected a date and time such as 2027-01-31T00:00:00Z";
const time = v.pipe(
  v.string(timeForm),
  v.isoTimestamp(timeForm),
  // Of the forms of ISO 8601, only those in RFC 3339, because only some runtimes' `Date.parse`
  // reads an offset such as +01.
  v.regex(/T.*(?:Z|[+-][0-9]{2}:[0-9]{2})$/, timeForm),
  v.check(isRealDay, timeForm),
  v.transform((text) => Date.parse(text)),
);

const digestForm = "expected SHA-256 as 64 hexadecimal digits";
const digest = v.pipe(
  v.string("expected a string"),
  v.toLowerCase(),
  v.regex(/^[0-9a-f]{64}$/, digestForm),
);

/**
 * Prefix of the ids of callers with identity tokens. No key has such an id, so no token counts as a
 * key.
 */
export const TOKEN_ID_PREFIX = "jwt:";

const form = "expected an object";
/**
 * Names in reports for the sum of other keys, and for calls without a key. No key has them as its
 * id.
 */
const REPORT_NAMES: readonly string[] = ["(other)", "(none)"];
const id = v.pipe(
  nonEmpty,
  v.maxLength(64, "expected at most 64 characters"),
  v.check(
    (text) => !text.startsWith(TOKEN_ID_PREFIX),
    'expected another id: ids that begin with "jwt:" are for identity tokens',
  ),
  v.check(
    (text) => !REPORT_NAMES.includes(text),
    "expected another id: reports use (other) and (none)",
  ),
  v.description("Id of the key, for logs and metrics"),
);

/** Settings of a key that operators choose, shared by all schemas of keys. */
const policy = {
  name: v.optional(about(shortText, "A name for people")),
  providers: v.optional(about(
    v.array(shortText, "expected an array of provider names"),
    "Names of the providers that it can use. Left out: all",
  )),
  models: v.optional(about(
    v.array(shortText, "expected an array of model names"),
    "Models that it can use, each a name with `*` for any characters. Left out: all",
  )),
  operations: v.optional(about(
    OperationsSchema,
    "Groups of operations that it can use. Left out: all that the provider allows",
  )),
  team: v.optional(about(TeamNameSchema, "Name of its team, whose limits apply to it too")),
  limits: v.optional(about(LimitSetSchema, "Limits of its use")),
  durable: v.optional(about(
    KeyDurableSchema,
    "Records answers for callers that ask for it. Replaces the setting of the provider; " +
      "`false` for never",
  )),
  heldKeys: v.optional(about(
    v.boolean("expected true or false"),
    "With `true`, its callers can use provider keys that the gateway holds. Left out: the setting of its team",
  )),
  metadata: v.optional(
    about(
      v.record(v.string(), shortText, "expected an object of texts"),
      "The operator's own notes",
    ),
  ),
  disabled: v.optional(
    about(v.boolean("expected true or false"), "With `true`, the key is refused"),
  ),
  expires: about(v.optional(time), "Time from which it is refused, such as 2027-01-31T00:00:00Z"),
};

/** @internal The settings of a key that operators choose, as written. */
export const PolicyEntries: EntriesOf<Omit<ResolvedKey, "id">> = policy;

/** Renames `expires`, which the schema has converted to milliseconds since 1970. */
const toPolicy = <Given extends { readonly expires?: number | undefined }>(
  { expires, ...rest }: Given,
) => ({
  ...rest,
  expiresAt: expires,
});

/** @internal The body of a call that creates a key. */
export const KeyPolicySchema: v.GenericSchema<Omit<ResolvedKey, "id">, KeyPolicy> = v.pipe(
  strictObject(policy, form),
  v.transform(toPolicy),
);

type WrittenPatch = Omit<Partial<KeyPolicy>, "expiresAt"> & {
  readonly expires?: number | undefined;
};

/**
 * @internal The body of a call that changes a key: `null` removes a setting, or one of the limits.
 */
export const KeyPatchSchema: v.GenericSchema<unknown, Partial<KeyPolicy>> = v.pipe(
  patchOf<WrittenPatch>({ ...policy, limits: LimitPatchSchema }, form),
  v.transform((patch) => "expires" in patch ? toPolicy(patch) : patch),
);

/** @internal The schema of {@link ResolvedKey}. */
export const ResolvedKeySchema: v.GenericSchema<ResolvedKey, KeyConfig> = v.pipe(
  strictObject({ ...policy, id }, form),
  v.transform(toPolicy),
);

/**
 * Prefixes of providers' keys: of OpenAI, Anthropic (`sk-ant-`) and similar ones, Groq, xAI and
 * Google. No gateway key can begin with them. Callers that send such a key are refused.
 */
export const PROVIDER_KEY: RegExp = /^(?:(?:sk|gsk|xai)[-_]|AIza)/;

/** @internal One key as written. */
export const KeySchema: v.GenericSchema<KeyInput, KeyConfig> = v.pipe(
  strictObject({
    ...policy,
    id,
    key: v.optional(v.pipe(
      secret,
      v.check(
        (key) => !PROVIDER_KEY.test(key),
        "expected a gateway key: this looks like a provider's",
      ),
      v.description("The key itself: 16 to 512 visible ASCII characters"),
    )),
    digest: v.optional(about(digest, "Instead of the key: its SHA-256, 64 hexadecimal digits")),
    previous: about(
      v.optional(v.pipe(
        strictObject({ digest, expires: time }, "expected an object with digest and expires"),
        v.transform(({ digest, expires }) => ({ digest, expiresAt: expires })),
      )),
      "The secret before the last rotation: its `digest`, and `expires`, the end of its validity",
    ),
    revoked: about(v.optional(time), "When it was revoked"),
    created: about(v.optional(time), "When it was created"),
  }, form),
  v.check(
    ({ key, digest }) => (key === undefined) !== (digest === undefined),
    "expected either key or digest",
  ),
  v.transform(({ revoked, created, ...rest }) => ({
    ...toPolicy(rest),
    ...(revoked !== undefined && { revokedAt: revoked }),
    ...(created !== undefined && { createdAt: created }),
  })),
);

const toTime = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString();

/**
 * Writes a key as JSON that {@link KeySchema} reads as the same key. Fields without a value are
 * `undefined`, which JSON leaves out.
 */
export function toKeyJson(key: KeyConfig): KeyInput & Record<string, unknown> {
  const { limits, durable, previous, expiresAt, revokedAt, createdAt, ...rest } = key;
  return {
    ...rest,
    limits: limits && toLimitsJson(limits),
    durable: durable === undefined ? undefined : toDurableJson(durable),
    previous: previous && {
      digest: previous.digest,
      expires: new Date(previous.expiresAt).toISOString(),
    },
    expires: toTime(expiresAt),
    revoked: toTime(revokedAt),
    created: toTime(createdAt),
  };
}
