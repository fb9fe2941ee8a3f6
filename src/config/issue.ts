/**
 * Descriptions of mistakes that a schema finds in a configuration, a body or a file: the path and
 * the expected value.
 *
 * @module
 */
import type * as v from "valibot";

/** The description of one mistake. */
export interface Mistake {
  /** Path of the value, such as `messages[0].role`; empty for the whole. */
  readonly path: string;
  /** The expected value. It never contains the actual value. */
  readonly message: string;
}

/** Writes the path of a setting, such as `keys[0].limits`. */
export function formatPath(keys: readonly unknown[]): string {
  return keys.map((key) => typeof key === "number" ? `[${key}]` : `.${String(key)}`).join("")
    .replace(/^\./, "");
}

/**
 * Describes an issue of a schema in words.
 *
 * @param root Path of the value that the schema checked, such as `keys[0]`
 */
export function describeIssue(issue: v.BaseIssue<unknown>, root = ""): Mistake {
  const { path = [], type, expected, input, received, message } = expandUnion(issue)[0] ?? issue;
  const inner = formatPath(path.map(({ key }) => key));
  const hasDot = root !== "" && inner !== "" && !inner.startsWith("[");
  const place = hasDot ? `${root}.${inner}` : root + inner;
  if (type === "strict_object" && expected === "never") {
    const isDescribed = message.startsWith("unknown setting");
    return { path: place, message: isDescribed ? message : "unknown setting" };
  }
  const isMissing = input === undefined && received === "undefined";
  return { path: place, message: isMissing ? "is missing" : message };
}

/** Joins a mistake's path and its message, such as `keys[0].id: expected a string`. */
export function formatMistake({ path, message }: Mistake): string {
  return path === "" ? message : `${path}: ${message}`;
}

/** Writes a warning about a setting, such as `warning: alerts: has no effect`. */
export function formatWarning(
  { path, message }: { readonly path: readonly unknown[]; readonly message: string },
): string {
  return `warning: ${formatMistake({ path: formatPath(path), message })}`;
}

/**
 * For a value with several allowed forms, returns the mistakes inside the intended form, if that is
 * clear. Otherwise returns the issue unchanged.
 */
export function expandUnion(issue: v.BaseIssue<unknown>): v.BaseIssue<unknown>[] {
  if (issue.type !== "union" || issue.issues === undefined) return [issue];
  const isList = Array.isArray(issue.input);
  const inner = issue.issues.filter(({ type, path }) =>
    path === undefined ? type === "partial_check" : Number.isInteger(path[0].key) === isList
  );
  if (inner.length === 0) return [issue];
  // A wrong name of the form, such as `store`, explains the mistakes in every other form.
  const ofName = inner.filter(({ type, path }) => type === "literal" && path?.length === 1);
  const clearest = ofName.length > 0 ? ofName : inner;
  return clearest.flatMap(expandUnion).map((sub) => ({
    ...sub,
    path: [...issue.path ?? [], ...sub.path ?? []] as never,
  }));
}

/** Converts a path to the form of valibot's issues. */
export function toIssuePath(
  input: unknown,
  keys: readonly (string | number)[],
): [v.IssuePathItem, ...v.IssuePathItem[]] {
  return keys.map((key) => ({
    type: "unknown",
    origin: "value",
    input,
    key,
    value: undefined,
  })) as never;
}
