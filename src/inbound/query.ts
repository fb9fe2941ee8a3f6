/**
 * Parameters of a query that an interface reads before its operation: keys, another method, and
 * other forms of the answer.
 *
 * @module
 */
import type { ProviderConfig } from "../config/provider.ts";
import { SHAPE_SETTINGS, type ShapeName } from "../config/shape.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { lenientName } from "../http/field_name.ts";

/** Reads the parameters of a URL, with their names as lenient parsers read them. */
export function readParameters(url: string): readonly (readonly [name: string, value: string])[] {
  const at = url.indexOf("?");
  if (at === -1) return [];
  // Some servers also separate parameters with semicolons.
  const query = new URLSearchParams(url.slice(at).replaceAll(";", "&"));
  return Array.from(query, ([name, value]) => [lenientName(name), value] as const);
}

/** The parameters that a shape refuses. */
type Refused = Pick<typeof SHAPE_SETTINGS[ShapeName], "queryKeys" | "queryMethods">;

/**
 * Refuses a key for the provider in the query of a URL, because servers and proxies on the way write
 * URLs to their logs. Also refuses a parameter that replaces the method, because the cost and the
 * permission of a call depend on it.
 *
 * @throws {GatewayError} `invalid_upstream_auth`, `ambiguous_path`
 */
export function assertSafeQuery(
  url: string,
  { credential, shape }: Pick<ProviderConfig, "credential" | "shape">,
): void {
  const settings = SHAPE_SETTINGS[shape];
  if (settings.queryKeys !== undefined) assertNoneRefused(url, settings, credential);
}

function assertNoneRefused(
  url: string,
  { queryKeys = [], queryMethods = [] }: Refused,
  credential: string,
): void {
  for (const [name] of readParameters(url)) {
    if (queryKeys.includes(name)) {
      const detail = `send ${credential}: <key> in place of ?${name}=, because URLs reach logs`;
      throw new GatewayError("invalid_upstream_auth", { param: name, detail });
    }
    if (queryMethods.includes(name)) {
      const detail = `and without ?${name}=, which replaces the method`;
      throw new GatewayError("ambiguous_path", { param: name, detail });
    }
  }
}

/** Values of `alt` with which Google answers in JSON, which states usage. */
const READABLE_ALT = /^(?:sse|json)(?:;|$)/;

/**
 * Finds a parameter that removes usage from the answer, or changes its form such that usage cannot
 * be read.
 *
 * @returns Its name; `undefined` if there is none
 */
export function findUsageParameter(url: string, shape: ShapeName): string | undefined {
  const { answerParameters } = SHAPE_SETTINGS[shape];
  return answerParameters && findHiding(url, answerParameters);
}

function findHiding(url: string, names: readonly string[]): string | undefined {
  const hides = ([name, value]: readonly [string, string]) =>
    names.includes(name) && !(name === "alt" && READABLE_ALT.test(value));
  return readParameters(url).find(hides)?.[0];
}
