/**
 * Comma-separated values (RFC 4180), in a form that a spreadsheet takes for what they are. The
 * console uses it too.
 *
 * @module
 */

/**
 * Formats one field of a CSV (RFC 4180 §2). A value that a spreadsheet would take for a formula is
 * made a text.
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
