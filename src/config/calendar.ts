/**
 * Dates of the calendar.
 *
 * @module
 */

/** True if a date such as `2026-02-28` is in the calendar. `Date.parse` accepts February 31. */
export function isDate(text: string): boolean {
  const at = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : NaN;
  return !Number.isNaN(at) && new Date(at).toISOString().startsWith(text);
}
