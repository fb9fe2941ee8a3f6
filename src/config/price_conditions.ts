/**
 * Conditions of prices, and their plain form: conditions that are met alike have the same one.
 *
 * @module
 */
import * as v from "valibot";

/** Hours of some days of the week, UTC. */
export interface HoursOfDays {
  /** Days of the week, 0 for Sunday. */
  readonly days: readonly number[];
  /** First minute, such as `01:00`. */
  readonly from: string;
  /** The minute after the last one, such as `04:00`; `24:00` for the end of the day. */
  readonly to: string;
}

/** Conditions of a factor. All of them must be true. */
export interface FactorWhen {
  /** The tier that served the call, as the answer names it. */
  readonly tier?: string | undefined;
  /** The region that served the call, as the answer or the provider's `region` names it. */
  readonly geo?: string | undefined;
  /** First time, ISO 8601 with its time zone. */
  readonly since?: string | undefined;
  /** The time after the last one, ISO 8601 with its time zone. */
  readonly until?: string | undefined;
}

/** Conditions of a row. All of them must be true. */
export interface RowWhen extends FactorWhen {
  /** The input has more tokens than this, caches included. */
  readonly over?: number | undefined;
  /** The input has at least this number of tokens, caches included. */
  readonly from?: number | undefined;
  /** The call ended in one of these hours. */
  readonly hours?: readonly HoursOfDays[] | undefined;
  /** Values of fields of the request, such as `quality` and `size` of an image. */
  readonly asked?: Readonly<Record<string, string>> | undefined;
}

/** Names of the standard tier. An answer without a tier was served by it, too. */
const STANDARD_TIERS: ReadonlySet<string> = new Set(["default", "standard", "auto", "on_demand"]);
/** Names of no particular region. */
const STANDARD_GEOS: ReadonlySet<string> = new Set(["global", "not_available"]);

/** Returns the name of a tier; the empty text for the standard tier, whatever its name. */
export function tierOf(name: string = ""): string {
  return STANDARD_TIERS.has(name) ? "" : name;
}

/** Returns the name of a region; the empty text for no particular region, whatever its name. */
export function geoOf(name: string = ""): string {
  return STANDARD_GEOS.has(name) ? "" : name;
}

/** Lists hours day by day, each once and in order. */
const toDays = (hours: readonly HoursOfDays[]): string[] =>
  [...new Set(hours.flatMap(({ days, from, to }) => days.map((day) => `${day} ${from} ${to}`)))]
    .toSorted();

/** Writes conditions that are met alike in the same way: `from: 10` is `over: 9`. */
function toPlainWhen(when: RowWhen): [name: string, value: unknown][] {
  const { tier, geo, over, from, since, until, hours, asked = {} } = when;
  const fields = Object.entries(asked).sort();
  const plain = {
    tier: tier && tierOf(tier),
    geo: geo && geoOf(geo),
    over: from === undefined ? over : from - 1,
    since: since && Date.parse(since),
    until: until && Date.parse(until),
    hours: hours && toDays(hours),
    asked: fields.length === 0 ? undefined : fields,
  };
  return Object.entries(plain).filter(([, value]) => value !== undefined);
}

/** True if conditions are always met. */
export const isAlwaysMet = (when: RowWhen): boolean => toPlainWhen(when).length === 0;

/** Returns the index of the first entry whose conditions are those of an earlier one; else -1. */
function findRepeated(entries: readonly { readonly when?: RowWhen | undefined }[]): number {
  const seen = new Set<string>();
  return entries.findIndex(({ when = {} }) => {
    const size = seen.size;
    return seen.add(JSON.stringify(toPlainWhen(when))).size === size;
  });
}

/** @internal Refuses two entries with the same conditions. */
export function distinct<Entry extends { readonly when?: RowWhen | undefined }>(
  what: string,
): v.RawCheckAction<Entry[]> {
  return v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    const index = findRepeated(dataset.value);
    if (index === -1) return;
    addIssue({
      message: `expected different conditions: an earlier ${what} has the same`,
      path: [{
        type: "array",
        origin: "value",
        input: dataset.value,
        key: index,
        value: undefined,
      }],
    });
  });
}

/** True if a period has an end after its start, or one of them is not set. */
export const hasOrder = ({ since, until }: Pick<RowWhen, "since" | "until">): boolean =>
  since === undefined || until === undefined || Date.parse(since) < Date.parse(until);
