/**
 * Lines of the usage file: `["hour", start, key, provider, model, [counts], operation]`, or
 * `"day"`. In lines of identity tokens, the team and the plan of their claims follow; one of them
 * can be `null`. The tenth element is the tariff; without one, it is the standard tariff. The
 * eleventh is the attribution, and the twelfth the payer. Elements without a value are `null`, or
 * missing at the end.
 *
 * Each version reads the files of the others. The first versions wrote no operation and nine
 * counts. A later version can add counts at the end of the list, and kinds of lines. Both are kept
 * unchanged. A version that changes more begins the file with `["version", N]`. Version 2 has
 * tariffs: version 1 would add up rows of different tariffs. Version 3 has attribution, version 4
 * has payers. A file has the first version that can read it, and none for version 1.
 *
 * @module
 */
import {
  readCounts,
  UNNAMED_OPERATION,
  USAGE_COUNTS,
  type UsageNames,
  type UsageRow,
  type UsageStep,
} from "./counts.ts";
import { readFurther, writeFurther } from "./further_names.ts";

/** Number of counts that every version has. */
const FIRST_COUNTS = 9;
/** The last version. */
const VERSION = 4;

/** Returns the first version that can read a row, see above. */
export function versionOf({ tariff, attribution, payer }: UsageNames): number {
  if (payer !== undefined) return VERSION;
  if (attribution !== undefined) return 3;
  return tariff === undefined ? 1 : 2;
}

/** Returns the first line of a file; `undefined` if every version can read it. */
export function toFirstLine({ version }: { readonly version: number }): string | undefined {
  return version === 1 ? undefined : JSON.stringify(["version", version]);
}

/** A later version changed the form of the lines. */
export class LaterVersion extends Error {
  override readonly name = "LaterVersion";
}

/** A parsed line: a row, the version, or a line of a kind that only later versions know. */
export type UsageLineRead =
  | { readonly step: UsageStep; readonly row: UsageRow }
  | { readonly step: "version" }
  | { readonly step: "unknown"; readonly line: string };

const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0;

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
    ...furtherNames
  ]: unknown[] = content;
  if (step === "version" && isCount(at)) {
    if (at > VERSION) throw new LaterVersion();
    return { step: "version" };
  }
  if (step !== "hour" && step !== "day") return { step: "unknown", line };
  const further = readFurther(furtherNames);
  const isRow = isCount(at) && typeof key === "string" && typeof provider === "string" &&
    typeof model === "string" && typeof operation === "string" &&
    further !== undefined &&
    Array.isArray(list) && list.length >= FIRST_COUNTS && list.every(isCount);
  if (!isRow) throw new TypeError("no row of usage");
  return { step, row: { at, key, provider, model, operation, ...further, ...readCounts(list) } };
}

/** A sum is negative if an estimate was subtracted after its row has expired. */
const notNegative = (count: number): number => Math.max(0, count);

/**
 * Writes a row as a line without an end. Counts that the first versions did not have are omitted if
 * they are 0, so that those versions can read the line too.
 */
export function toLine(step: UsageStep, row: UsageRow): string {
  const { at, key, provider, model, operation, counts, more = [] } = row;
  const list = [...USAGE_COUNTS.map((name) => counts[name]), ...more].map(notNegative);
  while (list.length > FIRST_COUNTS && list.at(-1) === 0) list.pop();
  return JSON.stringify([step, at, key, provider, model, list, operation, ...writeFurther(row)]);
}
