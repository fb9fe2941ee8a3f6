/**
 * Durations, sizes, counts, rates and budgets: converts the text of settings to numbers, and back.
 *
 * @module
 */

/** A limit within a window of time, which begins with the first use. */
export interface Rate {
  /** Maximum in one window. */
  readonly limit: number;
  /** Length of the window. Milliseconds. */
  readonly windowMs: number;
}

/** A limit within a day, a week or a month of the calendar (UTC). */
export interface Budget {
  /** Maximum in one period. */
  readonly limit: number;
  /** Period of the calendar, in UTC. A week begins on Monday (ISO 8601). */
  readonly period: "day" | "week" | "month";
}

/** The periods of budgets. */
export const PERIODS: readonly Budget["period"][] = ["day", "week", "month"];

/** Money within a day, a week or a month of the calendar (UTC). */
export interface MoneyBudget extends Budget {
  /** Maximum in one period, in whole units of 10^-9 of the currency. */
  readonly limit: number;
  /** Currency by its three letters (ISO 4217). */
  readonly currency: string;
}

/** Decimals of the unit in which limits count money. */
const MONEY_DECIMALS = 9;
/** The largest budget of money, in its currency: the count of its units is exact up to here. */
export const MAX_MONEY = 9_000_000;

const DAY_MS = 86_400_000;
const DURATIONS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: DAY_MS,
};
const SIZES: Readonly<Record<string, number>> = { B: 1, KB: 1024, MB: 1024 ** 2, GB: 1024 ** 3 };
const WINDOWS: Readonly<Record<string, number>> = {
  s: 1000,
  min: 60_000,
  h: 3_600_000,
  day: DAY_MS,
};
const COUNTS: Readonly<Record<string, number>> = { k: 1000, M: 1e6, G: 1e9 };

/**
 * Number of digits to which a product is rounded: in binary, 2.3 times 1,000,000 is slightly less
 * than 2,300,000.
 */
const SOUND_DIGITS = 15;
/** A number with its unit, such as `1.5M`. */
const MEASURE = /^([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)$/;
/** A rate, such as `600/min` or `5/10s`. */
const RATE = /^([^/]+)\/([1-9][0-9]{0,3})?(s|min|h|day)$/;
/** An amount of money, such as `0.5 EUR`. */
const MONEY = /^([0-9]{1,7})(?:\.([0-9]{1,9}))? ([A-Z]{3})$/;
const MAX_WINDOW_MS = 31 * DAY_MS;

/**
 * Parses a number with one of the units; `NaN`, which no schema accepts as a number, for other
 * text.
 */
function measure(text: string, units: Readonly<Record<string, number>>): number {
  const [, amount, unit = ""] = MEASURE.exec(text) ?? [];
  const factor = Object.hasOwn(units, unit) ? units[unit] : undefined;
  if (factor === undefined) return NaN;
  const product = Number(amount) * factor;
  return Number(product.toPrecision(SOUND_DIGITS));
}

/** Reads a duration such as `5s`, `500ms` or `90d`. Milliseconds; `NaN` for other text. */
export function parseDuration(text: string): number {
  return Math.floor(measure(text, DURATIONS));
}

/** Reads a size such as `32MB`. Bytes; `NaN` for other text. */
export function parseSize(text: string): number {
  return Math.floor(measure(text, SIZES));
}

/**
 * Reads a count such as `600`, `100k` or `1.5M`: a whole number from 1 to 10^15; `NaN` for other
 * text.
 */
export function parseCount(text: string): number {
  const count = /^[0-9]{1,16}$/.test(text) ? Number(text) : measure(text, COUNTS);
  const isInRange = count >= 1 && count <= 1e15;
  return Number.isInteger(count) && isInRange ? count : NaN;
}

/** Reads a rate such as `600/min`, `100k/h` or `5/10s`; `undefined` for other text. */
export function parseRate(text: string): Rate | undefined {
  const [, count = "", times = "1", unit = ""] = RATE.exec(text) ?? [];
  const limit = parseCount(count);
  const unitMs = WINDOWS[unit];
  if (Number.isNaN(limit) || unitMs === undefined) return undefined;
  const windowMs = Number(times) * unitMs;
  return windowMs <= MAX_WINDOW_MS ? { limit, windowMs } : undefined;
}

const isPeriod = (text: string | undefined): text is Budget["period"] =>
  PERIODS.some((period) => period === text);

/** Reads a budget such as `5M/month` or `100k/day`; `undefined` for other text. */
export function parseBudget(text: string): Budget | undefined {
  const [count = "", period, ...rest] = text.split("/");
  const limit = parseCount(count);
  if (!isPeriod(period) || Number.isNaN(limit) || rest.length > 0) return undefined;
  return { limit, period };
}

/** Reads a budget of money such as `50 USD/month` or `0.5 EUR/day`; `undefined` for other text. */
export function parseMoneyBudget(text: string): MoneyBudget | undefined {
  const [written = "", period, ...rest] = text.split("/");
  const money = parseMoney(written);
  if (money === undefined || !isPeriod(period) || rest.length > 0) return undefined;
  return { limit: money.amount, period, currency: money.currency };
}

/** An amount of money. */
export interface Money {
  /** Whole units of 10^-9 of the currency. */
  readonly amount: number;
  /** Currency by its three letters (ISO 4217). */
  readonly currency: string;
}

/** Reads money such as `50 USD` or `0.5 EUR`; `undefined` for other text. */
export function parseMoney(text: string): Money | undefined {
  const [, whole = "", decimals = "", currency = ""] = MONEY.exec(text) ?? [];
  const amount = Number(whole + decimals.padEnd(MONEY_DECIMALS, "0"));
  const isInRange = amount >= 1 && amount <= MAX_MONEY * 10 ** MONEY_DECIMALS;
  return currency !== "" && isInRange ? { amount, currency } : undefined;
}

/** Writes an amount in units of 10^-9 of a currency exactly, such as `0.5`. */
export function formatMoney(amount: number): string {
  const digits = String(Math.max(0, Math.round(amount))).padStart(MONEY_DECIMALS + 1, "0");
  const decimals = digits.slice(-MONEY_DECIMALS).replace(/0+$/, "");
  return digits.slice(0, -MONEY_DECIMALS) + (decimals === "" ? "" : `.${decimals}`);
}

/** Writes a whole number in its shortest exact form, such as `100k`. */
export function formatCount(count: number): string {
  for (const [unit, factor] of Object.entries(COUNTS).reverse()) {
    if (count >= factor && count % (factor / 10) === 0) return `${count / factor}${unit}`;
  }
  return String(count);
}

/** Writes a size for messages, exact to the byte, such as `32 MB`. */
export function formatSize(bytes: number): string {
  for (const [unit, factor] of Object.entries(SIZES).reverse()) {
    if (bytes >= factor && (bytes * 10) % factor === 0) return `${bytes / factor} ${unit}`;
  }
  return `${bytes} B`;
}

/** Writes a duration in the form that {@link parseDuration} reads. */
export function formatDuration(ms: number): string {
  for (const [unit, factor] of Object.entries(DURATIONS).reverse()) {
    if (ms >= factor && ms % factor === 0) return `${ms / factor}${unit}`;
  }
  return `${ms}ms`;
}

/** Writes a rate in the form that {@link parseRate} reads. */
export function formatRate({ limit, windowMs }: Rate): string {
  for (const [unit, factor] of Object.entries(WINDOWS).reverse()) {
    const times = windowMs / factor;
    if (Number.isInteger(times)) return `${formatCount(limit)}/${times === 1 ? "" : times}${unit}`;
  }
  return `${formatCount(limit)}/${windowMs}ms`;
}

/** Writes a budget in the form that {@link parseBudget} reads. */
export function formatBudget({ limit, period }: Budget): string {
  return `${formatCount(limit)}/${period}`;
}

/** Writes a budget of money in the form that {@link parseMoneyBudget} reads. */
export function formatMoneyBudget({ limit, period, currency }: MoneyBudget): string {
  return `${formatMoney(limit)} ${currency}/${period}`;
}

/** Returns the weekday of a day since 1970, which began on a Thursday: 0 for Monday. */
const weekdayOf = (day: number): number => (((day + 3) % 7) + 7) % 7;

/** Returns the start of a budget's period of the calendar (UTC), as {@link periodEnd} its end. */
export function periodStart(period: Budget["period"], now: number): number {
  const day = Math.floor(now / DAY_MS);
  if (period === "day") return day * DAY_MS;
  if (period === "week") return (day - weekdayOf(day)) * DAY_MS;
  const date = new Date(now);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
}

/**
 * Returns the end of a budget's period of the calendar (UTC), when the next one begins.
 * Milliseconds since 1970, like `now`.
 */
export function periodEnd(period: Budget["period"], now: number): number {
  if (period === "day") return periodStart(period, now) + DAY_MS;
  if (period === "week") return periodStart(period, now) + 7 * DAY_MS;
  const date = new Date(now);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
}
