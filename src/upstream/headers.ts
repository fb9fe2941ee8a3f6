/**
 * The headers that are forwarded, in each direction: the headers of the lists, and headers that the
 * provider's configuration adds. All others are dropped, including the caller's cookies, its
 * `Gateway-Auth`, `Host`, forwarding headers and all hop-by-hop headers (RFC 9110 §7.6.1:
 * `Connection` and the fields that it names, `Keep-Alive`, `TE`, `Trailer`, `Transfer-Encoding`,
 * `Upgrade`). Headers with the caller's key at the provider are on no list, and no family includes
 * names that look like credentials. The module that reads credentials decides about them, and
 * passes them in.
 *
 * @module
 */
import {
  BARRED,
  barredFrom,
  type HeadersConfig,
  type NameSet,
  toNameSet,
} from "../config/headers.ts";
import { PROVIDER_KEY } from "../config/key.ts";
import { GATEWAY_KEY_START } from "../config/schema.ts";
import {
  CREDENTIAL_FORM,
  FREQUENT_HEADERS,
  type HeaderRow,
  MODEL_HEADER_FORM,
  MODEL_HEADERS,
  PAYER_HEADER_FORM,
  REQUEST_HEADERS,
  RESPONSE_HEADERS,
} from "./header_lists.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Received headers, of a caller or a provider. Names in lower case. */
type HeaderSource = UpstreamResponse["headers"];
/** Headers to send: name to value. */
type HeaderFields = Record<string, string>;

/** Stands for the forwarded name of a header that is not forwarded. */
const WITHHELD = "";

/** The headers that are forwarded in one direction. */
interface Crossing {
  /** Decisions made at the start: from a name to the forwarded name, or to {@link WITHHELD}. */
  readonly decided: ReadonlyMap<string, string>;
  /** Prefixes of other names that are forwarded, unless they look like credentials. */
  readonly prefixes: readonly string[];
  /** Prefixes of the configuration, whose names are forwarded even then. */
  readonly addedPrefixes: readonly string[];
  /** Prefixes of names that are never forwarded, even if a prefix above matches. */
  readonly barred: readonly string[];
  /** Form of further names that are never forwarded; `undefined` if there is none. */
  readonly barredForm: RegExp | undefined;
}

/** The headers that are forwarded to and from one provider. */
export interface HeaderRules {
  readonly request: Crossing;
  /** `request` for calls in which no header can choose a model. */
  readonly limitedRequest: Crossing;
  /** `limitedRequest` for calls with a key of the gateway: no header can choose who pays either. */
  readonly heldKeyRequest: Crossing;
  readonly response: Crossing;
  /** Headers with fixed values for calls to the provider. */
  readonly set: Readonly<Record<string, string>>;
}

/**
 * Names of answer headers that the gateway sets itself, and the names under which the provider's
 * values are forwarded.
 */
const RENAMED: ReadonlyMap<string, string> = new Map([["x-request-id", "x-upstream-request-id"]]);

const matchesPrefix = (name: string, prefixes: readonly string[]): boolean =>
  prefixes.some((prefix) => name.startsWith(prefix));

const isBarred = (
  name: string,
  { barred, barredForm }: Pick<Crossing, "barred" | "barredForm">,
): boolean => matchesPrefix(name, barred) || barredForm?.test(name) === true;

function decide(name: string, rest: Omit<Crossing, "decided">): string {
  const isListed = matchesPrefix(name, rest.addedPrefixes) ||
    (matchesPrefix(name, rest.prefixes) && !CREDENTIAL_FORM.test(name));
  return isListed && !isBarred(name, rest) ? name : WITHHELD;
}

function toCrossing(
  rows: readonly HeaderRow[],
  added: readonly string[],
  barred: NameSet,
  barredForm?: RegExp,
): Crossing {
  const listed = toNameSet(rows.flatMap((row) => row.names));
  const further = toNameSet(added);
  const rest = {
    prefixes: listed.prefixes,
    addedPrefixes: further.prefixes,
    barred: barred.prefixes,
    barredForm,
  };
  const decided = new Map(FREQUENT_HEADERS.map((name) => [name, decide(name, rest)]));
  for (const name of [...listed.names, ...further.names]) {
    decided.set(name, isBarred(name, rest) ? WITHHELD : name);
  }
  for (const name of barred.names) decided.set(name, WITHHELD);
  return { ...rest, decided };
}

/** Form of names that are never forwarded with a key of the gateway. */
const HELD_KEY_FORM = new RegExp(`${MODEL_HEADER_FORM.source}|${PAYER_HEADER_FORM.source}`);

/** Makes the rules for a provider, once for all calls. */
export function createHeaderRules(
  { pass = [], answer = [], set = {} }: Partial<HeadersConfig> = {},
): HeaderRules {
  const response = toCrossing(RESPONSE_HEADERS, answer, barredFrom("answer"));
  const barred = barredFrom("pass");
  const choosing = toNameSet(MODEL_HEADERS);
  const barredLimited = {
    names: new Set([...barred.names, ...choosing.names]),
    prefixes: [...barred.prefixes, ...choosing.prefixes],
  };
  return {
    request: toCrossing(REQUEST_HEADERS, pass, barred),
    limitedRequest: toCrossing(REQUEST_HEADERS, pass, barredLimited, MODEL_HEADER_FORM),
    heldKeyRequest: toCrossing(REQUEST_HEADERS, pass, barredLimited, HELD_KEY_FORM),
    response: { ...response, decided: new Map([...response.decided, ...RENAMED]) },
    set,
  };
}

// RFC 9110 §5.5 allows visible characters, space, tab and obs-text; other characters could split a
// header. A gateway key is never forwarded in any header.
const UNSAFE_VALUE = new RegExp(
  `[\\x00-\\x08\\x0a-\\x1f\\x7f]|[^\\x00-\\xff]|${GATEWAY_KEY_START}`,
);

/** Copies the headers that are forwarded. All fields that `Connection` names are hop-by-hop. */
function copyCrossing(from: HeaderSource, to: HeaderFields, crossing: Crossing): HeaderFields {
  const connection = from.get("connection") ?? "close";
  // A list costs 0.3 µs more in each direction (Node).
  const isOrdinary = connection === "keep-alive" || connection === "close";
  const nominated = isOrdinary
    ? undefined
    : connection.toLowerCase().split(",").map((name) => name.trim());
  from.forEach((value, name) => {
    const target = crossing.decided.get(name) ?? decide(name, crossing);
    if (target === WITHHELD || UNSAFE_VALUE.test(value)) return;
    if (nominated === undefined || !nominated.includes(name)) to[target] = value;
  });
  return to;
}

let ownPseudonym: string | undefined;
/**
 * Returns the name of this process in a `Via` field (RFC 9110 §7.6.3): a random, unique pseudonym
 * that reveals nothing. Created on first use, because Workers have no random numbers before the
 * first request.
 */
const pseudonym = (): string => ownPseudonym ??= `sallyport-${crypto.randomUUID().slice(0, 8)}`;
/** Number of Sallyport gateways in a row that counts as a loop through several of them. */
const MAX_HOPS = 8;

/**
 * Detects a loop: a request that has passed this gateway before, or too many Sallyport gateways.
 * Without this check, an upstream that leads back here would be called forever.
 */
export function hasLooped(headers: { get(name: string): string | null }): boolean {
  const via = headers.get("via");
  if (via === null) return false;
  return via.includes(pseudonym()) || via.split("sallyport-").length > MAX_HOPS;
}

/**
 * Builds the headers of the call to the provider.
 *
 * @param isModelBound True if no header is allowed to choose another model, because the key has
 * restricted models, or a budget of money
 * @param usesHeldKey True if no header is allowed to choose a model, an address or who pays, because
 * the key is the gateway's
 * @returns The headers, names in lower case
 */
export function toUpstreamHeaders(
  headers: HeaderSource,
  { request, limitedRequest, heldKeyRequest, set }: HeaderRules,
  credentials: Readonly<HeaderFields>,
  isModelBound = false,
  usesHeldKey = false,
): HeaderFields {
  const forwarded: HeaderFields = {
    ...credentials,
    // If it is not set, the fetch of each runtime sets a different value.
    accept: "*/*",
    "user-agent": "sallyport",
    "accept-encoding": "identity", // the relay reads the bytes that it forwards
    "via": `1.1 ${pseudonym()}`,
  };
  const via = headers.get("via");
  // Only entries of Sallyport. The rest of the route is hidden from the provider.
  const hops = via?.match(/1\.1 sallyport-[0-9a-f]{8}/g)?.slice(0, MAX_HOPS) ?? [];
  if (hops.length > 0) forwarded.via = `${hops.join(", ")}, ${forwarded.via}`;
  const ofCaller = isModelBound ? limitedRequest : request;
  const crossing = usesHeldKey ? heldKeyRequest : ofCaller;
  return Object.assign(copyCrossing(headers, forwarded, crossing), set);
}

/**
 * Builds the headers of the response to the caller.
 *
 * @param headers The upstream's headers, names in lower case
 * @returns The headers, names in lower case
 */
export function toCallerHeaders(
  headers: HeaderSource,
  isEventStream: boolean,
  { response }: HeaderRules,
): HeaderFields {
  const relayed: HeaderFields = {
    "cache-control": isEventStream ? "no-cache, no-transform" : "no-store",
    "x-content-type-options": "nosniff",
  };
  if (isEventStream) relayed["x-accel-buffering"] = "no"; // turns off buffering in nginx
  return copyCrossing(headers, relayed, response);
}

const ROUTINE = toNameSet(
  BARRED.filter(({ isRoutine }) => isRoutine).flatMap(({ names }) => names),
);
/** The largest number of listed names, and the length of the longest one. */
const MAX_NAMES = 20;
// RFC 9110 §5.6.2: the form of a name.
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9a-z]{1,64}$/i;
/** A mistake on a command line can put a key where a name belongs. Names arrive in lower case. */
const isShowable = (name: string) =>
  TOKEN.test(name) && !PROVIDER_KEY.test(name) && !name.includes("gk_");

/**
 * Lists the headers that were withheld, for an operator that misses one. It lists only names, never
 * values. Headers that are always withheld and that nearly every message has, such as `Host`, are
 * left out.
 *
 * @returns Their names, and the number of names left out because they are too many, too long or
 * invalid
 */
export function listWithheld(
  headers: HeaderSource,
  forwarded: Readonly<HeaderFields>,
): readonly string[] {
  const names = new Set<string>();
  headers.forEach((_value, name) => {
    const isRoutine = ROUTINE.names.has(name) || matchesPrefix(name, ROUTINE.prefixes);
    const isForwarded = Object.hasOwn(forwarded, name) ||
      Object.hasOwn(forwarded, RENAMED.get(name) ?? name);
    if (!isRoutine && !isForwarded) names.add(name);
  });
  const shown = Array.from(names).filter(isShowable).slice(0, MAX_NAMES);
  const others = names.size - shown.length;
  return others === 0 ? shown : [...shown, `and ${others} more`];
}
