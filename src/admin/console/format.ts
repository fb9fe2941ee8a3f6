/**
 * Numbers and times, formatted for people.
 *
 * @module
 */

/** Formats a number without trailing zeros. */
const fixed = (value: number, digits: number): string => String(Number(value.toFixed(digits)));

/** Formats milliseconds, such as `85 µs`, `12 ms`, `3.4 s`, `9 d 13 h`; a dash for nothing. */
export function duration(ms: number | undefined | null): string {
  if (ms === undefined || ms === null) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${fixed(ms, ms < 10 ? 1 : 0)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${fixed(seconds, seconds < 10 ? 2 : 1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86_400) {
    return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  }
  return `${Math.floor(seconds / 86_400)} d ${Math.floor(seconds % 86_400 / 3600)} h`;
}

/** Units of {@link span} in seconds, the largest first. */
const UNITS: readonly [unit: string, seconds: number][] = [["day", 86_400], ["hour", 3600], [
  "minute",
  60,
]];

/** Formats a time in one unit, such as `9 days`, `1 hour`, `45 seconds`. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  // A unit is used from 1.5 of it on: 90 minutes are shown as 2 hours, 80 as 80 minutes.
  const [unit, length] = UNITS.find(([, each]) => seconds >= each * 1.5) ?? ["second", 1];
  return plural(Math.round(seconds / length), unit);
}

/** Formats a number with its noun, such as `1 key`, `12 keys`. */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Units of rates. */
const WINDOWS: Readonly<Record<string, string>> = {
  ms: "millisecond",
  s: "second",
  min: "minute",
  h: "hour",
  d: "day",
};

/** Formats a rate such as `600/min` in words: `600 per minute`, or `5 per 10 seconds`. */
export function rate(written: string): string {
  const [, limit, count, unit = ""] = /^(\S+?)\/(\d*)([a-z]+)$/.exec(written) ?? [];
  const noun = WINDOWS[unit];
  if (limit === undefined || noun === undefined) return written;
  return `${limit} per ${count === "" ? noun : plural(Number(count), noun)}`;
}

/** Formats a day, such as `2027-01-31`. */
export function day(time: string): string {
  return time.slice(0, 10);
}

/** Formats an amount, such as `0.4`, `12`, `3.4k`, `5.1M`. */
export function amount(value: number): string {
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  if (value >= 10 || Number.isInteger(value)) return String(Math.round(value));
  return value.toFixed(1);
}

/** Formats a number of bytes, such as `4.2 kB`. */
export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;
}

/** Formats an amount of money without its currency, such as `12.40`, `0.0031`. */
export function money(value: number): string {
  return value.toFixed(value === 0 || value >= 0.1 ? 2 : 4);
}

/** Formats a share as `0.4 %`. */
export function percent(share: number): string {
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** Formats the time of day, such as `14:03:59`. */
export function clock(ms: number): string {
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
}

/** Formats the time since then, such as `3 min ago`. */
export function ago(time: string | undefined, now: number): string {
  if (time === undefined) return "never";
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** Formats a code such as `rate_limit_exceeded` as words. */
export function words(code: string): string {
  return code.replaceAll("_", " ");
}
