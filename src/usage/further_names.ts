/**
 * Names of a row that most rows do not have, as the usage file and Redis store them: a list that
 * ends at the last of them, with `null` for those before it that are missing.
 *
 * @module
 */
import type { UsageNames } from "./counts.ts";

/** In the order of the list. A later version must add names at the end only. */
const NAMES = ["team", "plan", "tariff", "attribution", "payer"] as const;
type FurtherNames = Pick<UsageNames, typeof NAMES[number]>;

/** Writes the list. */
export function writeFurther(names: FurtherNames): (string | null)[] {
  const list = NAMES.map((name) => names[name] ?? null);
  while (list.at(-1) === null) list.pop();
  if (list.length === 1) list.push(null); // every version writes both of team and plan, or none
  return list;
}

/** Reads the list. Returns `undefined` if one of the known names is no text. */
export function readFurther(list: readonly unknown[]): FurtherNames | undefined {
  const known = list.slice(0, NAMES.length);
  if (!known.every((value) => value === null || typeof value === "string")) return undefined;
  const [team, plan, tariff, attribution, payer] = known;
  return {
    team: team ?? undefined,
    plan: plan ?? undefined,
    tariff: tariff || undefined,
    attribution: attribution || undefined,
    payer: payer === "gateway" ? payer : undefined,
  };
}
