/**
 * Placeholders for variables in a configuration file, such as `${NAME}`. Other programs replace
 * them. Here each would be a value, even a key that is easy to guess, so they are mistakes.
 *
 * @module
 */
import type { ConfigIssue } from "./config.ts";
import { findVariable } from "./environment.ts";
import { formatPath } from "./issue.ts";

const PLACEHOLDER = /^\$\{[A-Za-z_]\w*\}$/;

/** Finds the values that are placeholders. @param content The content of the file */
export function* findPlaceholders(
  content: unknown,
  path: readonly (string | number)[] = [],
): Generator<ConfigIssue> {
  if (typeof content === "string" && PLACEHOLDER.test(content)) {
    const variable = findVariable(path);
    const instead = variable === undefined
      ? ""
      : `. Leave it out, and set the environment variable ${variable}`;
    const message = `expected the value itself, because \${…} is not replaced here${instead}`;
    yield { path: formatPath(path), message };
  } else if (Array.isArray(content)) {
    for (const [index, item] of content.entries()) yield* findPlaceholders(item, [...path, index]);
  } else if (typeof content === "object" && content !== null) {
    for (const [name, value] of Object.entries(content)) {
      yield* findPlaceholders(value, [...path, name]);
    }
  }
}
