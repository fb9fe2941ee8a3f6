/**
 * The dimensions of attribution. The console uses this module too.
 *
 * @module
 */

/** A dimension of attribution. */
export type Dimension = "user" | "session" | "agent" | "client" | "project";
/** All dimensions, in the order of columns. */
export const DIMENSIONS: readonly Dimension[] = ["user", "session", "agent", "client", "project"];

/** True if a name is one of a dimension. */
export function isDimension(name: string): name is Dimension {
  return DIMENSIONS.some((each) => each === name);
}

/** Values of a call by dimension. Dimensions without a value are left out. */
export type Attribution = { readonly [Name in Dimension]?: string };
