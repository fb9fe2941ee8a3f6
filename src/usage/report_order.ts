/**
 * The order of a report's rows, and the cursor of its pages: the place of a row in that order.
 *
 * @module
 */
import { isTimeDimension, type UsageDimension, type UsageQuery, UsageRefusal } from "./query.ts";
import { type Group, newGroup, tokensOf, valueOf } from "./sums.ts";

/** The part of a report's query that determines the order of the rows. */
type Ordering = Pick<UsageQuery, "by" | "sort">;

function compareTexts(one = "", other = ""): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}

/** Returns the order of rows: by time, then those with the largest sum first. */
export function compareGroups({ by, sort }: Ordering): (one: Group, other: Group) => number {
  const time = by.findIndex(isTimeDimension);
  return (one, other) => {
    const inTime = time < 0 ? 0 : compareTexts(one.names[time], other.names[time]);
    if (inTime !== 0) return inTime;
    const first = valueOf(one, sort);
    const second = valueOf(other, sort);
    if (first !== second) return first > second ? -1 : 1;
    const inTokens = tokensOf(other.counts) - tokensOf(one.counts);
    if (inTokens !== 0) return inTokens;
    const inRequests = other.counts.requests - one.counts.requests;
    if (inRequests !== 0) return inRequests;
    return compareTexts(one.names.join("\n"), other.names.join("\n"));
  };
}

/** Writes the place of a group in the order as a cursor for the next page. */
export function toCursor(group: Group, { sort }: Ordering): string {
  const { names, counts } = group;
  const value = sort === "tokens" ? [] : [String(valueOf(group, sort))];
  return JSON.stringify([tokensOf(counts), counts.requests, ...names, ...value]);
}

const isText = (value: unknown): value is string => typeof value === "string";

/** Creates a group for a place in the order. The report does not contain it. */
function toGroup(
  tokens: number,
  requests: number,
  names: readonly string[],
  { sort }: Ordering,
  value: string,
): Group {
  const group = newGroup(names);
  const { counts } = group;
  counts.requests = requests;
  if (sort === "cost") group.cost = BigInt(value);
  else if (sort === "unpriced") group.unpriced = Number(value);
  else if (sort !== "tokens") counts[sort] = Number(value);
  counts.other = tokens - counts.input - counts.output;
  return group;
}

/**
 * Reads the place that a page begins after.
 *
 * @returns The place as a group; `undefined` for the first page
 * @throws {UsageRefusal} If the cursor is from another report
 */
export function readCursor(query: Ordering & Pick<UsageQuery, "after">): Group | undefined {
  const { after, by, sort } = query;
  if (after === undefined) return undefined;
  const wrong = new UsageRefusal(
    "after",
    "expected the next of a report by the same dimensions and in the same order",
  );
  let place: unknown;
  try {
    place = JSON.parse(after);
  } catch {
    throw wrong;
  }
  if (!Array.isArray(place)) throw wrong;
  const [tokens, requests, ...texts]: unknown[] = place;
  if (typeof tokens !== "number" || typeof requests !== "number") throw wrong;
  if (!texts.every(isText)) throw wrong;
  const value = sort === "tokens" ? "0" : texts.pop();
  if (value === undefined || !/^[0-9]{1,40}$/.test(value)) throw wrong;
  if (texts.length !== by.length) throw wrong;
  return toGroup(tokens, requests, texts, query, value);
}

/** Returns the names of a group without its time. */
export function withoutTime(by: readonly UsageDimension[], { names }: Group): readonly string[] {
  return names.filter((_, index) => {
    const part = by[index];
    return part !== undefined && !isTimeDimension(part);
  });
}
