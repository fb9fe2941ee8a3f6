/**
 * Traffic from Redis, checked. A gateway of another version, or anyone with access to that Redis,
 * can have written it. Values of an unknown form are dropped or replaced by empty ones, so that
 * they cannot break a merge or a page.
 *
 * @module
 */
import { OUTCOMES } from "../../errors/outcomes.ts";
import type { Tariff, TokenUsage, UsagePart } from "../../exchange/billing.ts";
import type {
  Durations,
  LiveExchange,
  LivePart,
  LiveReplica,
  LiveSecond,
  ProviderTimes,
} from "../live/live_report.ts";

/** An unchecked value that can have the form of `T`. */
export type Unknown<T> = { readonly [Name in keyof T]?: unknown };

/** Limit of a text. A model's name has at most 256 characters, but an address can be longer. */
const MAX_TEXT = 2000;
/** A cost that a provider stated. */
const DECIMAL = /^\d{1,30}(?:\.\d{1,100})?$/;
/** The latest time of a `Date`. Milliseconds since 1970. */
const MAX_TIME = 8.64e15;

export const list = (value: unknown): readonly unknown[] => Array.isArray(value) ? value : [];
export const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null;
const isCount = (value: unknown): value is number =>
  typeof value === "number" && value >= 0 && value <= MAX_TIME;
export const count = (value: unknown): number => isCount(value) ? value : 0;
const isText = (value: unknown): value is string =>
  typeof value === "string" && value.length <= MAX_TEXT;
const isFlag = (value: unknown): value is boolean => typeof value === "boolean";

/** Reads an object by names. Invalid entries are dropped. */
function readEntries<T>(
  value: unknown,
  read: (entry: unknown) => T | undefined,
): Record<string, T> {
  const found = Object.entries(isObject(value) ? value : {}).map(([name, entry]) =>
    [name, read(entry)] as const
  );
  return Object.fromEntries(
    found.filter((entry): entry is [string, T] => isText(entry[0]) && entry[1] !== undefined),
  );
}

const readCount = (value: unknown): number | undefined => isCount(value) ? value : undefined;
const readCounts = (value: unknown): Record<string, number> => readEntries(value, readCount);

function readDurations(value: unknown): Durations {
  const all = list(value);
  return all.every(isCount) ? all : [];
}

function readPair(value: unknown): readonly [number, number] | undefined {
  const [one, other] = list(value);
  return isCount(one) && isCount(other) ? [one, other] : undefined;
}

function readTimes(value: unknown): ProviderTimes | undefined {
  if (!isObject(value)) return undefined;
  const { duration, firstToken }: Unknown<ProviderTimes> = value;
  return { duration: readDurations(duration), firstToken: readDurations(firstToken) };
}

function readSecond(value: unknown): LiveSecond | undefined {
  if (!isObject(value)) return undefined;
  const second: Unknown<LiveSecond> = value;
  if (!isCount(second.at)) return undefined;
  return {
    at: second.at,
    exchanges: count(second.exchanges),
    errors: readCounts(second.errors),
    callers: readCounts(second.callers),
    tokens: count(second.tokens),
    estimatedTokens: count(second.estimatedTokens),
    outputTokens: count(second.outputTokens),
    duration: readDurations(second.duration),
    firstToken: readDurations(second.firstToken),
    overhead: readDurations(second.overhead),
    providers: readEntries(second.providers, readPair),
    times: readEntries(second.times, readTimes),
  };
}

type Test = (value: unknown) => boolean;

/** Required facts of an exchange. */
const NEEDED: readonly (readonly [name: keyof LiveExchange, test: Test])[] = [
  ["id", isText],
  ["outcome", (value) => isText(value) && Object.hasOwn(OUTCOMES, value)],
  ...([
    "startedAt",
    "settledAt",
    "durationMs",
    "overheadMs",
    "status",
    "bytesIn",
    "bytesOut",
    "retries",
  ] as const)
    .map((name) => [name, isCount] as const),
];

function isTariff(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { tier = "", geo = "", context, asked = {} }: Unknown<Tariff> = value;
  return isText(tier) && isText(geo) && isCount(context) && isObject(asked) &&
    Object.values(asked).every(isText);
}

function isUsagePart(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { model = "", classes, tariff }: Unknown<UsagePart> = value;
  return isText(model) && isObject(classes) && Object.values(classes).every(isCount) &&
    isTariff(tariff);
}

function isAttribution(value: unknown): boolean {
  return isObject(value) && Object.values(value).every(isText);
}

function isUsage(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { parts = [], statedCost = "0", ...counts }: Unknown<TokenUsage> = value;
  return isCount(counts.total) && Object.values(counts).every(isCount) &&
    Array.isArray(parts) && parts.every(isUsagePart) && isText(statedCost) &&
    DECIMAL.test(statedCost);
}

/** Optional facts of an exchange. A fact of another form is dropped. */
const ALLOWED: readonly (readonly [name: keyof LiveExchange, test: Test])[] = [
  ...([
    "code",
    "cause",
    "retryCause",
    "provider",
    "keyId",
    "keyName",
    "team",
    "operation",
    "run",
    "genAi",
    "model",
  ] as const)
    .map((name) => [name, isText] as const),
  ...(["limit", "observedLimit"] as const).map((name) => [name, isText] as const),
  ...(["calledMs", "firstByteMs", "firstTokenMs", "replica", "repeats"] as const)
    .map((name) => [name, isCount] as const),
  ...(["isMetered", "isEstimated", "stream", "usesHeldKey"] as const).map((name) =>
    [name, isFlag] as const
  ),
  ["attribution", isAttribution],
  ["usage", isUsage],
];

/** Reads an exchange. Returns `undefined` for an invalid value. */
export function readExchange(value: unknown): LiveExchange | undefined {
  if (!isObject(value)) return undefined;
  const given: Unknown<LiveExchange> = value;
  if (!NEEDED.every(([name, test]) => test(given[name]))) return undefined;
  const kept = [...NEEDED, ...ALLOWED].filter(([name, test]) => test(given[name]));
  const tested: unknown = Object.fromEntries(kept.map(([name]) => [name, given[name]]));
  return tested as LiveExchange;
}

function readReplica(value: unknown): LiveReplica | undefined {
  if (!isObject(value)) return undefined;
  const { url, inService, ejected, ejectedMs, failures }: Unknown<LiveReplica> = value;
  if (!isText(url)) return undefined;
  return {
    url,
    inService: count(inService),
    ejected: count(ejected),
    ejectedMs: count(ejectedMs),
    failures: count(failures),
  };
}

function readProvider(value: unknown): LivePart["providers"][number] | undefined {
  if (!isObject(value)) return undefined;
  const { name, hosts, replicas }: Unknown<LivePart["providers"][number]> = value;
  if (!isText(name) || !Array.isArray(replicas)) return undefined;
  return {
    name,
    hosts: list(hosts).filter(isText),
    replicas: replicas.flatMap((each) => readReplica(each) ?? []),
  };
}

/** Reads the traffic of a gateway. */
export function readPart(part: Unknown<LivePart>): LivePart {
  return {
    since: count(part.since),
    openExchanges: count(part.openExchanges),
    openStreams: count(part.openStreams),
    providers: list(part.providers).flatMap((each) => readProvider(each) ?? []),
    seconds: list(part.seconds).flatMap((each) => readSecond(each) ?? []),
    exchanges: list(part.exchanges).flatMap((each) => readExchange(each) ?? []),
  };
}
