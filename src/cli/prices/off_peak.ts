/**
 * Hours of off-peak prices in LiteLLM's table. Its days of the week are those of a time zone, its
 * hours are UTC.
 *
 * @module
 */
import type { HoursOfDays } from "../../config/prices.ts";
import { isObject } from "./findings.ts";

const DAY_MIN = 24 * 60;
const ALL_DAYS: readonly number[] = [0, 1, 2, 3, 4, 5, 6];
const NAMES: readonly string[] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/** Days on which a zone with summer time has different offsets. */
const PROBES = ["2026-01-15T00:00:00Z", "2026-07-15T00:00:00Z"].map((text) => Date.parse(text));

const asList = (value: unknown): readonly unknown[] => Array.isArray(value) ? value : [value];

/** Reads `16:30-00:30` as minutes of a day. An end at or before the start is on the next day. */
function readRange(value: unknown): [from: number, to: number] | undefined {
  const match = /^(\d\d):(\d\d)-(\d\d):(\d\d)$/.exec(String(value));
  if (match === null) return undefined;
  const [fromHour = 0, fromMinute = 0, toHour = 0, toMinute = 0] = match.slice(1).map(Number);
  const from = fromHour * 60 + fromMinute;
  const to = toHour * 60 + toMinute;
  if (from >= DAY_MIN || to > DAY_MIN) return undefined;
  return [from, to <= from ? to + DAY_MIN : to];
}

/** Reads a day: 1 to 7 from Monday, or a name such as `mon`. */
function readDay(value: unknown): number | undefined {
  if (typeof value === "number") {
    return Number.isInteger(value) && value >= 1 && value <= 7 ? value % 7 : undefined;
  }
  const index = NAMES.indexOf(String(value).slice(0, 3).toLowerCase());
  return index === -1 ? undefined : index;
}

/** Returns the minutes that a zone is ahead of UTC; `undefined` if they change in a year. */
function offsetOf(zone: unknown): number | undefined {
  if (zone === undefined || zone === "UTC") return 0;
  try {
    const format = new Intl.DateTimeFormat("en", {
      timeZone: String(zone),
      timeZoneName: "longOffset",
    });
    const [first, second] = PROBES.map((at) =>
      format.formatToParts(at).find(({ type }) => type === "timeZoneName")?.value
    );
    if (first === undefined || first !== second) return undefined;
    const match = /^GMT(?:([+-])(\d\d):(\d\d))?$/.exec(first);
    if (match === null) return undefined;
    const [, sign = "+", hours = "0", minutes = "0"] = match;
    return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
  } catch {
    return undefined; // an unknown zone
  }
}

const toMinute = (minute: number): string =>
  `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;

/** Splits a range where a day begins, in UTC and in the zone of its days. */
function* split(
  [from, to]: readonly [number, number],
  days: readonly number[],
  offset: number,
): Generator<HoursOfDays> {
  const border = (DAY_MIN - offset % DAY_MIN) % DAY_MIN;
  const cuts = [border, DAY_MIN, border + DAY_MIN].filter((cut) => cut > from && cut < to);
  const ends = [...new Set([...cuts, to])].toSorted((one, other) => one - other);
  let start = from;
  for (const end of ends) {
    const begin = start % DAY_MIN;
    const shift = Math.floor((begin + offset) / DAY_MIN);
    const inUtc = days.map((day) => (day - shift + 7) % 7).toSorted();
    yield { days: inUtc, from: toMinute(begin), to: toMinute(begin + end - start) };
    start = end;
  }
}

/**
 * Reads the hours of off-peak prices.
 *
 * @returns `undefined` if a part of them was not understood
 */
export function readOffPeakHours(
  { hours_utc: always, windows = [], weekday_timezone: zone }: Readonly<Record<string, unknown>>,
): HoursOfDays[] | undefined {
  const offset = offsetOf(zone);
  if (offset === undefined || !Array.isArray(windows)) return undefined;
  const hours: HoursOfDays[] = [];
  const all = always === undefined ? windows : [...windows, { hours_utc: always }];
  for (const window of all) {
    if (!isObject(window)) return undefined;
    const { hours_utc: ranges, weekdays } = window;
    const read = weekdays === undefined ? ALL_DAYS : asList(weekdays).map(readDay);
    const days = read.filter((day) => day !== undefined);
    if (days.length < read.length || days.length === 0) return undefined;
    for (const text of asList(ranges)) {
      const range = readRange(text);
      if (range === undefined) return undefined;
      hours.push(...split(range, days, offset));
    }
  }
  return hours.length === 0 ? undefined : hours;
}
