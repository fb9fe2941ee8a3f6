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
const UNITS: readonly [unit: string, seconds: number][] = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

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
  day: "day",
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

/** Units of {@link amount}, and the smallest amount that each is used for, the largest first. */
const SCALES: readonly [unit: string, size: number, from: number][] = [
  ["G", 1e9, 999.95e6],
  ["M", 1e6, 999.95e3],
  ["k", 1e3, 1e4],
];

/** Formats a date in UTC, such as `Nov 28`, with the time of day if it is near. */
export function when(time: string, now: number): string {
  const isNear = Date.parse(time) - now < 2 * 86_400_000;
  return new Date(time).toLocaleString("en", {
    month: "short",
    day: "numeric",
    timeZone: "UTC",
    ...(isNear && { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
  });
}

/** Formats an amount, such as `0.4`, `12`, `3.4k`, `5M`. */
export function amount(value: number): string {
  const [unit, size] = SCALES.find(([, , from]) => value >= from) ?? [];
  if (unit !== undefined && size !== undefined) return `${fixed(value / size, 1)}${unit}`;
  if (value > 0 && value < 0.05) return "<0.1";
  return fixed(value, value >= 10 ? 0 : 1);
}

/** The mark of an amount that includes estimates of the gateway. */
export const ESTIMATED = "≈";

/** Formats an amount that may include estimates, such as `≈ 12`. */
export function estimated(text: string, isEstimated: boolean): string {
  return isEstimated ? `${ESTIMATED} ${text}` : text;
}

/** Formats a number of bytes, such as `4.2 kB`. */
export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;
}

/** Formats used money without its currency. An amount above zero is never shown as zero. */
export function cost(value: number): string {
  if (value > 0 && value < 0.0001) return "<0.0001";
  const digits = value === 0 || value >= 1 ? 2 : 4;
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** Formats a limit of money without its currency, to the last digit, such as `50` or `0.00005`. */
export function exactCost(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: 9 });
}

/** Share from which on a multiple says more than percent. */
const MULTIPLE = 10;

/**
 * Formats a share, such as `0.4 %`, `12 %` or `1800 times`. A share above zero is never shown as
 * zero, and one below a whole never as a whole.
 */
export function percent(share: number): string {
  if (share >= MULTIPLE) return `${amount(share)} times`;
  if (share > 0 && share < 0.0005) return "<0.1 %";
  if (share >= 0.995 && share < 1) return ">99 %";
  return `${fixed(share * 100, share < 0.1 ? 1 : 0)} %`;
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
