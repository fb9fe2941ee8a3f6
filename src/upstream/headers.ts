/**
 * The headers that may cross the gateway, in each direction: those of the lists and those that the
 * provider's configuration adds. All others are dropped, among them the caller's cookies, its
 * `Gateway-Auth`, `Host`, forwarding headers and everything meant for one hop (RFC 9110 §7.6.1:
 * `Connection` and what it nominates, `Keep-Alive`, `TE`, `Trailer`, `Transfer-Encoding`,
 * `Upgrade`). Headers with the caller's key at the provider stand on no list: they are decided
 * where credentials are read, and passed in.
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
  FREQUENT_HEADERS,
  type HeaderRow,
  MODEL_HEADER_FORM,
  MODEL_HEADERS,
  REQUEST_HEADERS,
  RESPONSE_HEADERS,
} from "./header_lists.ts";
import type { UpstreamResponse } from "./transport.ts";

/** Headers as they came, of a caller or a provider; names in lower case. */
type HeaderSource = UpstreamResponse["headers"];
/** Headers as they go on: name to value. */
type HeaderFields = Record<string, string>;

/** The headers that may cross in one direction. */
interface Crossing {
  /**
   * Decisions made at the start: name to the name under which a header crosses, or to "" if it does
   * not.
   */
  readonly decided: ReadonlyMap<string, string>;
  /** For all other names: the beginnings of those that may cross. */
  readonly prefixes: readonly string[];
  /** The beginnings of those that never do, even where one of the others matches. */
  readonly barred: readonly string[];
  /** Form of further names that never do; `undefined` if there is none. */
  readonly barredForm: RegExp | undefined;
}

/** The headers that may cross to and from one provider. */
export interface HeaderRules {
  readonly request: Crossing;
  /** `request` for calls in which no header can choose a model. */
  readonly limitedRequest: Crossing;
  readonly response: Crossing;
  /** Headers with fixed values of the calls to the provider. */
  readonly set: Readonly<Record<string, string>>;
}

/** Names of answers that the gateway needs for itself, and the names under which they cross. */
const RENAMED: ReadonlyMap<string, string> = new Map([["x-request-id", "x-upstream-request-id"]]);

const matchesPrefix = (name: string, prefixes: readonly string[]): boolean =>
  prefixes.some((prefix) => name.startsWith(prefix));

const isBarred = (
  name: string,
  { barred, barredForm }: Pick<Crossing, "barred" | "barredForm">,
): boolean => matchesPrefix(name, barred) || barredForm?.test(name) === true;

function decide(name: string, rest: Omit<Crossing, "decided">): string {
  return matchesPrefix(name, rest.prefixes) && !isBarred(name, rest) ? name : "";
}

function toCrossing(
  rows: readonly HeaderRow[],
  added: readonly string[],
  barred: NameSet,
  barredForm?: RegExp,
): Crossing {
  const { names, prefixes } = toNameSet([...rows.flatMap((row) => row.names), ...added]);
  const rest = { prefixes, barred: barred.prefixes, barredForm };
  const decided = new Map(FREQUENT_HEADERS.map((name) => [name, decide(name, rest)]));
  for (const name of names) decided.set(name, isBarred(name, rest) ? "" : name);
  for (const name of barred.names) decided.set(name, "");
  return { ...rest, decided };
}

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
    response: { ...response, decided: new Map([...response.decided, ...RENAMED]) },
    set,
  };
}

// RFC 9110 §5.5 allows visible characters, space, tab and obs-text; anything else could split a
// header. A gateway key is never sent on, wherever it stands.
const UNSAFE_VALUE = new RegExp(
  `[\\x00-\\x08\\x0a-\\x1f\\x7f]|[^\\x00-\\xff]|${GATEWAY_KEY_START}`,
);

/**
 * Copies the headers that may cross. Fields that `Connection` nominates are meant for this hop,
 * whatever they are.
 */
function copyCrossing(from: HeaderSource, to: HeaderFields, crossing: Crossing): HeaderFields {
  const nominated = from.get("connection")?.toLowerCase().split(",").map((name) => name.trim());
  from.forEach((value, name) => {
    const target = crossing.decided.get(name) ?? decide(name, crossing);
    if (target === "" || UNSAFE_VALUE.test(value)) return;
    if (nominated?.includes(name) !== true) to[target] = value;
  });
  return to;
}

let ownPseudonym: string | undefined;
/**
 * Returns the name of this process in a `Via` field (RFC 9110 §7.6.3): a random pseudonym, which
 * reveals nothing and is unique. Created on first use: Workers have no random numbers before the
 * first request.
 */
const pseudonym = (): string => ownPseudonym ??= `sallyport-${crypto.randomUUID().slice(0, 8)}`;
/** Number of gateways of this kind in a row that is taken for a loop through several of them. */
const MAX_HOPS = 8;

/**
 * Detects a loop: a request that has come through this gateway before, or through too many of its
 * kind. An upstream that leads back here would otherwise be called forever.
 */
export function hasLooped(headers: { get(name: string): string | null }): boolean {
  const via = headers.get("via");
  if (via === null) return false;
  return via.includes(pseudonym()) || via.split("sallyport-").length > MAX_HOPS;
}

/**
 * Builds the headers of the call to the provider.
 *
 * @param isModelBound Whether no header can choose another model: the key is limited to models, or
 * to an amount of money
 * @returns The headers, names in lower case
 */
export function toUpstreamHeaders(
  headers: HeaderSource,
  { request, limitedRequest, set }: HeaderRules,
  credentials: Readonly<HeaderFields>,
  isModelBound = false,
): HeaderFields {
  const forwarded: HeaderFields = {
    ...credentials,
    // If it is not set, each runtime's fetch fills in a value that differs.
    accept: "*/*",
    "user-agent": "sallyport",
    "accept-encoding": "identity", // the relay reads what it passes on
    "via": `1.1 ${pseudonym()}`,
  };
  const via = headers.get("via");
  // Only our own kind: the rest of the way the request took is none of the provider's business.
  const hops = via?.match(/1\.1 sallyport-[0-9a-f]{8}/g)?.slice(0, MAX_HOPS) ?? [];
  if (hops.length > 0) forwarded.via = `${hops.join(", ")}, ${forwarded.via}`;
  return Object.assign(
    copyCrossing(headers, forwarded, isModelBound ? limitedRequest : request),
    set,
  );
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
  if (isEventStream) relayed["x-accel-buffering"] = "no"; // nginx: do not collect the stream
  return copyCrossing(headers, relayed, response);
}

const ROUTINE = toNameSet(
  BARRED.filter(({ isRoutine }) => isRoutine).flatMap(({ names }) => names),
);
/** The largest number of names that are listed, and the longest that is. */
const MAX_NAMES = 20;
// RFC 9110 §5.6.2: the form of a name.
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9a-z]{1,64}$/i;
/** A key in the place of a name is a mistake at a command line; names arrive in lower case. */
const isTellable = (name: string) =>
  TOKEN.test(name) && !PROVIDER_KEY.test(name) && !name.includes("gk_");

/**
 * Lists the headers that did not cross, for an operator who misses one. Names alone: of values
 * nothing is told. Those that never cross and that nearly every message has, such as `Host`, are
 * left out.
 *
 * @returns Their names, and the number of those that are too many, too long or no names
 */
export function listWithheld(
  headers: HeaderSource,
  crossed: Readonly<HeaderFields>,
): readonly string[] {
  const names = new Set<string>();
  headers.forEach((_value, name) => {
    const isRoutine = ROUTINE.names.has(name) || matchesPrefix(name, ROUTINE.prefixes);
    const hasCrossed = Object.hasOwn(crossed, name) ||
      Object.hasOwn(crossed, RENAMED.get(name) ?? name);
    if (!isRoutine && !hasCrossed) names.add(name);
  });
  const told = Array.from(names).filter(isTellable).slice(0, MAX_NAMES);
  const others = names.size - told.length;
  return others === 0 ? told : [...told, `and ${others} more`];
}
