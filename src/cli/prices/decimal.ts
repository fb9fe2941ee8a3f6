/**
 * Exact decimals of imported tables. A number of JSON is read by its shortest text, such as
 * `1.25e-7`, and never multiplied in binary.
 *
 * @module
 */
import type { Decimal } from "../../config/prices.ts";

/** A decimal: `digits` times ten to the power of `exponent`. */
interface Exact {
  readonly digits: bigint;
  readonly exponent: number;
}

/** The largest exponent of a double. Larger ones in a text need too much memory. */
const MAX_EXPONENT = 400;

/** Reads a number of JSON, or a text with one. @returns `undefined` for anything else */
function read(value: unknown): Exact | undefined {
  if (typeof value !== "number" && typeof value !== "string") return undefined;
  const match = /^(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(String(value));
  if (match === null) return undefined;
  const [, whole = "", decimals = "", exponent = "0"] = match;
  if (Math.abs(Number(exponent)) > MAX_EXPONENT) return undefined;
  return { digits: BigInt(whole + decimals), exponent: Number(exponent) - decimals.length };
}

/** Writes a decimal without an exponent and without final zeros. */
function write({ digits, exponent }: Exact): string {
  if (exponent >= 0) return String(digits * 10n ** BigInt(exponent));
  const text = String(digits).padStart(1 - exponent, "0");
  return text.slice(0, exponent) + `.${text.slice(exponent)}`.replace(/\.?0+$/, "");
}

/**
 * Multiplies a number of a table with a whole number, exactly.
 *
 * @returns A decimal without an exponent; `undefined` if the value is no number from 0
 */
export function multiplyExactly(value: unknown, times: number): string | undefined {
  const exact = read(value);
  if (exact === undefined) return undefined;
  return write({ digits: exact.digits * BigInt(times), exponent: exact.exponent });
}

/** Returns the number of decimals of a text from {@link multiplyExactly}. */
export const decimalsOf = (text: string): number => text.split(".")[1]?.length ?? 0;

/** Returns a decimal as a number if JSON writes the number in the same way, else as text. */
export const toDecimal = (text: string): Decimal =>
  String(Number(text)) === text ? Number(text) : text;
