/**
 * Settings for headers of the calls to a provider: further names to forward, and headers with fixed
 * values. Some headers are never forwarded, regardless of the configuration.
 *
 * @module
 */
import * as v from "valibot";
import { CREDENTIAL_HEADERS } from "./credential.ts";
import { about, strictObject } from "./schema.ts";

/**
 * Headers of the calls to one provider, in addition to the headers that are always forwarded. Names
 * in lower case.
 */
export interface HeadersConfig {
  /**
   * Further headers from callers to the provider: names, or prefixes of names, which end in `*`.
   */
  readonly pass: readonly string[];
  /** Further headers from the provider to callers, in the same form. */
  readonly answer: readonly string[];
  /**
   * Headers that the gateway sets on each call to the provider: name to value, which can be secret.
   */
  readonly set: Readonly<Record<string, string>>;
}

/** Headers of the calls to one provider, as written in the configuration. */
export interface HeadersInput {
  /** Further headers from callers to the provider: names, or prefixes of names such as `x-my-*`. */
  readonly pass?: readonly string[] | undefined;
  /** Further headers from the provider to callers, in the same form. */
  readonly answer?: readonly string[] | undefined;
  /** Headers that the gateway sets on each call to the provider: name to value. */
  readonly set?: Readonly<Record<string, string>> | undefined;
}

/** A list of headers: `pass` to the provider, `answer` to the caller, `set` by the gateway. */
export type HeaderList = keyof HeadersConfig;

/** Names of headers, and prefixes of names, for look-ups. */
export interface NameSet {
  readonly names: ReadonlySet<string>;
  /** Without the `*`. */
  readonly prefixes: readonly string[];
}

/** Sorts names, and prefixes of names, which end in `*`, for look-ups. */
export function toNameSet(patterns: readonly string[]): NameSet {
  return {
    names: new Set(patterns.filter((pattern) => !pattern.endsWith("*"))),
    prefixes: patterns.filter((pattern) => pattern.endsWith("*")).map((pattern) =>
      pattern.slice(0, -1)
    ),
  };
}

/** Headers that are never forwarded, for the same reason. */
export interface Barred {
  /** The reason, as the end of a sentence about one of them. */
  readonly reason: string;
  /** Names, and prefixes of names, which end in `*`. */
  readonly names: readonly string[];
  /** The lists of the configuration that must not contain them. */
  readonly lists: readonly HeaderList[];
  /** True if nearly every message has one, so that withholding it is not reported. */
  readonly isRoutine?: boolean;
}

const ALL: readonly HeaderList[] = ["pass", "answer", "set"];

/** Headers that are never forwarded, regardless of the configuration. */
export const BARRED: readonly Barred[] = [
  {
    reason: "is meant for this gateway alone",
    names: ["gateway-*", "sallyport-*"],
    lists: ALL,
    isRoutine: true,
  },
  {
    reason: "contains a credential, which is handled separately",
    names: CREDENTIAL_HEADERS,
    lists: ALL,
  },
  { reason: "is a cookie", names: ["cookie", "cookie2", "set-cookie", "set-cookie2"], lists: ALL },
  {
    reason: "describes the route of a call",
    names:
      "forwarded x-forwarded-* x-original-forwarded-for x-original-host via cdn-loop cf-visitor"
        .split(" "),
    lists: ALL,
  },
  {
    reason: "states the address of a caller",
    names: (
      "x-real-ip x-client-ip x-cluster-client-ip true-client-ip cf-connecting-ip " +
      "cf-connecting-ipv6 cf-pseudo-ipv4 cf-ipcountry fastly-client-ip fly-client-ip " +
      "x-azure-clientip x-azure-socketip x-envoy-external-address"
    ).split(" "),
    lists: ALL,
  },
  {
    // RFC 9110 §7.6.1, §10.1.1 (Expect), RFC 9113 §8.2.2; fields that Connection names are added at
    // run time
    reason: "is meant for one connection",
    names:
      "connection keep-alive proxy-* te trailer transfer-encoding upgrade http2-settings expect"
        .split(" "),
    lists: ALL,
    isRoutine: true,
  },
  {
    reason: "describes the message, which differs on each side of the gateway",
    names: ["host", "content-length", "content-encoding", "accept-encoding"],
    lists: ALL,
    isRoutine: true,
  },
  { reason: "describes the body of the caller", names: ["content-type"], lists: ["set"] },
  {
    reason: "would turn the checked operation into another one",
    names: [
      "x-http-method",
      "x-http-method-override",
      "x-method-override",
      "x-original-url",
      "x-rewrite-url",
    ],
    lists: ["pass", "set"],
  },
  {
    reason: "is set by the gateway",
    names: (
      "cache-control date ratelimit ratelimit-policy server-timing x-accel-buffering " +
      "x-content-type-options"
    ).split(" "),
    lists: ["answer"],
    isRoutine: true,
  },
  {
    reason: "tells browsers a rule for the whole origin, or redirects them",
    names: (
      "access-control-* alt-svc clear-site-data location nel public-key-pins refresh " +
      "report-to reporting-endpoints strict-transport-security"
    ).split(" "),
    lists: ["answer"],
  },
];

/**
 * Returns the headers that are never forwarded in one direction.
 *
 * @param list The list of the configuration for that direction
 */
export function barredFrom(list: HeaderList): NameSet {
  return toNameSet(
    BARRED.filter(({ lists }) => lists.includes(list)).flatMap(({ names }) => names),
  );
}

/** Returns whether a name or a pattern of the configuration matches only a barred header. */
function means(pattern: string, barred: string): boolean {
  const stem = pattern.replace(/\*$/, "");
  const whole = pattern === stem ? stem : stem.replace(/-$/, "");
  if (!barred.endsWith("*")) return whole === barred;
  return stem.startsWith(barred.slice(0, -1)) || (pattern !== stem && `${whole}-*` === barred);
}

/** Returns the reason why a list must not contain a name or a pattern; `undefined` if it can. */
export function reasonToBar(pattern: string, list: HeaderList = "pass"): string | undefined {
  return BARRED.find(({ names, lists }) =>
    lists.includes(list) && names.some((name) => means(pattern, name))
  )?.reason;
}

/**
 * Form of a name (RFC 9110 §5.6.2), in lower case, without `*`, which no name in use contains, and
 * with a letter, because valibot accepts an array as a record.
 */
export const TOKEN: RegExp = /^(?=.*[a-z])[!#$%&'+\-.^_`|~0-9a-z]{1,128}$/;
const PATTERN = /^[!#$%&'+\-.^_`|~0-9a-z]{0,128}\*$|^[!#$%&'+\-.^_`|~0-9a-z]{1,128}$/;

/** Builds the schema of a name or a pattern in one of the lists. */
function nameIn(list: HeaderList, form: RegExp, message: string): v.GenericSchema<string> {
  return v.pipe(
    v.string(message),
    v.toLowerCase(),
    v.regex(form, message),
    v.check(
      (name) => reasonToBar(name, list) === undefined,
      ({ input }) => `expected a header that can cross: this one ${reasonToBar(input, list)}`,
    ),
  );
}

const patternForm = 'expected the name of a header, or its beginning with *, such as "x-my-*"';
const patternsIn = (list: HeaderList) =>
  v.optional(v.array(nameIn(list, PATTERN, patternForm), "expected an array of names"), []);

const valueForm = "expected 1 to 8192 visible ASCII characters, with spaces between them at most";
const namesOnce = v.check(
  (entries: Readonly<Record<string, string>>) =>
    new Set(Object.keys(entries).map((name) => name.toLowerCase())).size ===
      Object.keys(entries).length,
  "expected each name once",
);
const setForm = 'expected names and values, such as { "x-team": "blue" }';
const set = v.pipe(
  v.record(v.string(), v.string("expected a string"), setForm),
  namesOnce,
  v.record(
    nameIn("set", TOKEN, "expected the name of a header"),
    v.pipe(v.string(), v.regex(/^[\x21-\x7e](?:[\t\x20-\x7e]{0,8190}[\x21-\x7e])?$/, valueForm)),
  ),
);

/** @internal The headers of a provider's calls. */
export const HeadersSchema: v.GenericSchema<HeadersInput, HeadersConfig> = strictObject({
  pass: about(
    patternsIn("pass"),
    "More headers to forward to the provider: names, or beginnings of names such as `x-my-*`",
  ),
  answer: about(patternsIn("answer"), "More headers to return to callers, in the same form"),
  set: about(
    v.optional(set, {}),
    "Headers to set on each call to the provider, by name; `check` masks the values",
  ),
}, "expected an object");
