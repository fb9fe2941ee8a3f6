/**
 * The attribution of a row of usage: one text with the dimensions that are counted, such as
 * `client=claude-code&user=u-17` in the order of {@link DIMENSIONS}, values escaped as in a query.
 *
 * @module
 */
import { type Attribution, type Dimension, DIMENSIONS } from "../config/dimensions.ts";
import { OTHER_NAME } from "./counts.ts";

/** Value of a dimension that a row does not have. */
export const UNATTRIBUTED = "(none)";

/**
 * Writes the counted dimensions of a call.
 *
 * @returns `undefined` if the call has none of them
 */
export function writeAttribution(
  attribution: Attribution | undefined,
  counted: ReadonlySet<Dimension>,
): string | undefined {
  if (attribution === undefined || counted.size === 0) return undefined;
  const fields = new URLSearchParams();
  for (const name of DIMENSIONS) {
    const value = attribution[name];
    if (value !== undefined && counted.has(name)) fields.set(name, value);
  }
  return fields.size === 0 ? undefined : fields.toString();
}

/** Returns the value of a dimension in a row: {@link UNATTRIBUTED} if it has none. */
export function valueOfDimension(text: string | undefined, dimension: Dimension): string {
  if (text === undefined) return UNATTRIBUTED;
  if (text === OTHER_NAME) return OTHER_NAME;
  return new URLSearchParams(text).get(dimension) ?? UNATTRIBUTED;
}

/** Returns the values of a row. */
export function readAttributed(text: string | undefined): Attribution {
  if (text === undefined) return {};
  const all = DIMENSIONS.map((name) => [name, valueOfDimension(text, name)] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== UNATTRIBUTED));
}
