/**
 * The error of a configuration with mistakes.
 *
 * @module
 */
import { formatMistake } from "./issue.ts";

/** One mistake in a configuration. */
export interface ConfigIssue {
  /** Path of the setting, such as `providers.a.upstream`. */
  readonly path: string;
  /**
   * Readable text: the expected value, and the fix. It never contains a value that can be secret.
   */
  readonly message: string;
  /** The file and line, or the variable, of the setting. */
  readonly source?: string | undefined;
}

/** All mistakes of a configuration at once. */
export class ConfigError extends Error {
  /** Name of the error, which identifies it even if two copies of this module are loaded. */
  override readonly name = "ConfigError";
  /** The mistakes, at least one. */
  readonly issues: readonly ConfigIssue[];

  /**
   * The message lists all mistakes, one per line.
   *
   * @param issues The mistakes, at least one
   */
  constructor(issues: readonly ConfigIssue[]) {
    const lines = issues.map((issue) =>
      formatMistake(issue) + (issue.source === undefined ? "" : ` (${issue.source})`)
    );
    super(lines.join("\n"));
    this.issues = issues;
  }
}
