/**
 * Comma-separated values (RFC 4180), safe to open in a spreadsheet. The console uses this module
 * too.
 *
 * @module
 */

/**
 * Formats one field of a CSV (RFC 4180 §2). A value that a spreadsheet would run as a formula
 * becomes a text.
 */
function toField(value: unknown): string {
  const text = String(value ?? "").replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, "\ufffd");
  const safe = /^[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) ? `'${text}` : text;
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Formats one line of a CSV, with its end. */
export function toCsvLine(values: readonly unknown[]): string {
  return `${values.map(toField).join(",")}\r\n`;
}
