/**
 * The tariff of a row as a short text, such as `priority,us,272k`, so that prices of any date can be
 * applied to stored usage: the tier, the region and the context, then further facts.
 *
 * - The context is a lower end. `200k` is more than 200,000 tokens, and `200000` is exactly that
 *   number, up to the next end: prices can begin at a number of tokens, or beyond it.
 * - `quality=high` is a choice of the caller that a row of the model's price names.
 * - `@16:00` is the first time of the day that the price distinguishes: a day has one row for each
 *   part of it.
 * - `stated` marks calls whose cost was stated, so that a provider's statements can have precedence.
 *
 * Fields at the end are left out if they are empty, so the standard tariff is the empty text.
 *
 * @module
 */
import { contextEndsOf } from "../config/context_ends.ts";
import { geoOf, tierOf } from "../config/price_conditions.ts";
import type { Price } from "../config/prices.ts";
import type { Tariff } from "../exchange/billing.ts";
import { DAY_MS } from "./counts.ts";

/** Name of a tier or region whose own name is too long: it has no price. */
const UNNAMED = "(other)";
const MAX_NAME = 64;
const MINUTE_MS = 60_000;
const MAX_READ = 1000;

/** The facts that a price distinguishes. */
interface Distinctions {
  /** Lower ends of contexts, in ascending order. */
  readonly contexts: readonly number[];
  /** Times of each day, milliseconds since its start. */
  readonly times: readonly number[];
  /** Times that are not the start of a day, milliseconds since 1970. */
  readonly moments: readonly number[];
  /** Values of fields of requests. */
  readonly asked: ReadonlyMap<string, ReadonlySet<string>>;
  /** True if neither times nor fields of requests are distinguished. */
  readonly isPlain: boolean;
}

function toTime(text: string): number {
  const [hours = 0, minutes = 0, seconds = 0] = text.split(":").map(Number);
  return ((hours * 60 + minutes) * 60 + seconds) * 1000;
}

const ascending = (values: Iterable<number>): number[] =>
  [...new Set(values)].sort((one, other) => one - other);

/** Lists what a price distinguishes. */
function toDistinctions(price: Pick<Price, "rows" | "factors">): Distinctions {
  const { rows = [], factors = [] } = price;
  const times: number[] = [];
  const moments: number[] = [];
  const asked = new Map<string, Set<string>>();
  for (const { when } of rows) {
    for (const { from, to } of when?.hours ?? []) times.push(toTime(from), toTime(to) % DAY_MS);
    for (const [name, value] of Object.entries(when?.asked ?? {})) {
      asked.set(name, (asked.get(name) ?? new Set()).add(value));
    }
  }
  for (const { when } of [...rows, ...factors]) {
    for (const time of [when?.since, when?.until]) {
      if (time !== undefined && Date.parse(time) % DAY_MS !== 0) moments.push(Date.parse(time));
    }
  }
  return {
    contexts: contextEndsOf(price),
    times: ascending(times),
    moments: ascending(moments),
    asked,
    isPlain: times.length + moments.length + asked.size === 0,
  };
}

const STANDARD = toDistinctions({});
const known = new WeakMap<Price, Distinctions>();

function distinctionsOf(price: Price | undefined): Distinctions {
  if (price === undefined) return STANDARD;
  let found = known.get(price);
  if (found === undefined) known.set(price, found = toDistinctions(price));
  return found;
}

/** Writes a name that a provider stated. */
function toName(name: string): string {
  if (name.length > MAX_NAME) return UNNAMED;
  return name.replace(
    /[^A-Za-z0-9_.:-]/g,
    (character) => `%${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const readName = (text: string): string =>
  text.replace(/%([0-9a-f]{4})/g, (_, code: string) => String.fromCharCode(parseInt(code, 16)));

function toContext(context: number, ends: readonly number[]): string {
  const end = ends.findLast((each) => each <= context);
  if (end === undefined || end === 0) return "";
  return (end - 1) % 1000 === 0 ? `${(end - 1) / 1000}k` : String(end);
}

function toTimeOfDay(at: number, { times, moments }: Distinctions): string {
  if (times.length === 0 && moments.length === 0) return "";
  const day = at - at % DAY_MS;
  const lastTime = times.findLast((time) => day + time <= at);
  const lastMoment = moments.findLast((moment) => moment <= at);
  const last = Math.max(lastTime ?? 0, lastMoment === undefined ? 0 : lastMoment - day);
  if (last <= 0) return "";
  const text = new Date(last).toISOString();
  return `@${text.slice(11, last % MINUTE_MS === 0 ? 16 : 19)}`;
}

/** A tariff, and the facts that are stored with it. */
export interface TariffFacts {
  readonly tariff: Tariff;
  /** Time at which the call ended, milliseconds since 1970. */
  readonly at: number;
  /** True if the provider stated the cost. */
  readonly isStated: boolean;
  /** The price of the model, which names the facts to keep. */
  readonly price: Price | undefined;
}

function writeFields({ tariff, at, isStated }: TariffFacts, distinctions: Distinctions): string {
  const fields = [
    toName(tierOf(tariff.tier)),
    toName(geoOf(tariff.geo)),
    toContext(tariff.context, distinctions.contexts),
  ];
  for (const [name, values] of distinctions.asked) {
    const value = tariff.asked?.[name];
    if (value !== undefined && values.has(value)) fields.push(`${toName(name)}=${toName(value)}`);
  }
  const time = toTimeOfDay(at, distinctions);
  if (time !== "") fields.push(time);
  if (isStated) fields.push("stated");
  return fields.join(",").replace(/,+$/, "");
}

/** Writes a tariff. Returns `undefined` for the standard tariff. */
export function writeTariff(facts: TariffFacts): string | undefined {
  const { tariff, isStated, price } = facts;
  const distinctions = distinctionsOf(price);
  const isShort = tariff.context < (distinctions.contexts[0] ?? Infinity);
  const isUsual = tierOf(tariff.tier) === "" && geoOf(tariff.geo) === "";
  if (distinctions.isPlain && isShort && isUsual && !isStated) return undefined; // most calls
  return writeFields(facts, distinctions) || undefined;
}

/** A stored tariff. */
export interface StoredTariff {
  readonly tariff: Tariff;
  /** The first time of its day, milliseconds since the start of the day. */
  readonly time: number;
  readonly isStated: boolean;
}

const readContext = (text: string): number =>
  text.endsWith("k") ? 1000 * Number(text.slice(0, -1)) + 1 : Number(text);

function readFields(text: string): StoredTariff {
  const [tier = "", geo = "", context = "", ...further] = text.split(",");
  const asked: Record<string, string> = {};
  let time = 0;
  let isStated = false;
  let isKnown = /^\d*k?$/.test(context);
  for (const field of further) {
    const [name = "", value] = field.split("=");
    if (field === "stated") isStated = true;
    else if (/^@\d\d:\d\d(:\d\d)?$/.test(field)) time = toTime(field.slice(1));
    else if (value !== undefined) asked[readName(name)] = readName(value);
    else isKnown = false;
  }
  // A fact that only a later version knows makes the tariff one without a price.
  const tariff = {
    tier: isKnown ? readName(tier) || undefined : text,
    geo: readName(geo) || undefined,
    context: isKnown ? readContext(context) : 0,
    asked,
  };
  return { tariff, time, isStated };
}

const read = new Map<string, StoredTariff>();

/** Reads a tariff. Each text is read once. */
export function readTariff(text: string = ""): StoredTariff {
  let found = read.get(text);
  if (found === undefined) {
    if (read.size >= MAX_READ) read.clear();
    read.set(text, found = readFields(text));
  }
  return found;
}

/**
 * Returns the time at which a row is priced: the start of its hour or day, or of its part.
 *
 * @param at Start of the hour or day, milliseconds since 1970
 */
export function timeOf(at: number, { time }: StoredTariff): number {
  return Math.max(at, at - at % DAY_MS + time);
}
