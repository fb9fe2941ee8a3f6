/**
 * Errors of the system and of the runtime, as operators read them.
 *
 * @module
 */

/** Returns the code of an error, such as `EADDRINUSE`, or its name if it has no code. */
export function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  return "code" in error ? String(error.code) : error.name;
}
