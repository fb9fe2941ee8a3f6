/**
 * Lines of the usage file: `["hour", start, key, provider, model, [counts], operation]`, or
 * `"day"`. Lines of identity tokens end with the team and the plan of their claims; one of them can
 * be `null`.
 *
 * Each version reads the files of the others. The first versions wrote no operation and nine
 * counts. A later version can add counts at the end of the list, and kinds of lines. Both are kept
 * unchanged. A version that changes more begins the file with `["version", N]`.
 *
 * @module
 */
import {
  noCounts,
  UNNAMED_OPERATION,
  USAGE_COUNTS,
  type UsageCounts,
  type UsageRow,
  type UsageStep,
} from "./counts.ts";

/** Number of counts that every version has. */
const FIRST_COUNTS = 9;
/** Version of the lines, see above. */
const VERSION = 1;

/** A later version changed the form of the lines. */
export class LaterVersion extends Error {
  override readonly name = "LaterVersion";
}

/** A parsed line: a row, or a line of a kind that only later versions know. */
export type UsageLineRead =
  | { readonly step: UsageStep; readonly row: UsageRow }
  | { readonly step: "unknown"; readonly line: string };

const isNameOrNone = (value: unknown): value is string | null =>
  value === null || typeof value === "string";
const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0;

function readCounts(
  list: readonly number[],
): { counts: UsageCounts; later: readonly number[] | undefined } {
  const counts = noCounts();
  for (const [index, name] of USAGE_COUNTS.entries()) counts[name] = list[index] ?? 0;
  return {
    counts,
    later: list.length > USAGE_COUNTS.length ? list.slice(USAGE_COUNTS.length) : undefined,
  };
}

/**
 * Reads a line without its end.
 *
 * @throws {LaterVersion} If a later version wrote the file
 * @throws {Error} If the line is broken
 */
export function readLine(line: string): UsageLineRead {
  const content: unknown = JSON.parse(line);
  if (!Array.isArray(content) || typeof content[0] !== "string") {
    throw new TypeError("no line of usage");
  }
  const [
    step,
    at,
    key,
    provider,
    model,
    list,
    operation = UNNAMED_OPERATION,
    team = null,
    plan = null,
  ]: unknown[] = content;
  const isLater = isCount(at) && at > VERSION;
  if (step === "version" && isLater) throw new LaterVersion();
  if (step !== "hour" && step !== "day") return { step: "unknown", line };
  const isRow = isCount(at) && typeof key === "string" && typeof provider === "string" &&
    typeof model === "string" && typeof operation === "string" &&
    isNameOrNone(team) && isNameOrNone(plan) &&
    Array.isArray(list) && list.length >= FIRST_COUNTS && list.every(isCount);
  if (!isRow) throw new TypeError("no row of usage");
  const ofToken = { team: team ?? undefined, plan: plan ?? undefined };
  return { step, row: { at, key, provider, model, operation, ...ofToken, ...readCounts(list) } };
}

/**
 * Writes a row as a line without an end. Counts that the first versions did not have are omitted if
 * they are 0, so that those versions can read the line too.
 */
export function toLine(step: UsageStep, row: UsageRow): string {
  const { at, key, provider, model, operation, team, plan, counts, later = [] } = row;
  const list = [...USAGE_COUNTS.map((name) => counts[name]), ...later];
  while (list.length > FIRST_COUNTS && list.at(-1) === 0) list.pop();
  const ofToken = team === undefined && plan === undefined ? [] : [team ?? null, plan ?? null];
  return JSON.stringify([step, at, key, provider, model, list, operation, ...ofToken]);
}
