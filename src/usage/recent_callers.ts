/**
 * Callers with identity tokens that were in use recently, from the hours that are kept: no store of
 * keys lists them.
 *
 * @module
 */
import { TOKEN_ID_PREFIX } from "../config/key.ts";
import { HOUR_MS, ROWS_A_TURN } from "./counts.ts";
import type { UsageReportParts } from "./report.ts";

/**
 * A caller with an identity token, as its claims named its team and its plan when it was last in
 * use.
 */
export interface RecentCaller {
  /** Id of the caller, such as `jwt:corp:ann`. */
  readonly id: string;
  readonly team: string | undefined;
  readonly plan: string;
}

/** A query for callers. */
export interface RecentCallerQuery {
  /**
   * Start of the time that counts, milliseconds since 1970; the whole hour counts in which it lies.
   */
  readonly from: number;
  /** Number of callers at most. */
  readonly limit: number;
  /** Only those whose ids come after this one. */
  readonly after?: string | undefined;
  /** Only the one with this id. */
  readonly id?: string | undefined;
  /** Tells whether a caller with this plan is asked for. */
  readonly isWanted: (id: string, plan: string) => boolean;
}

/** A caller, and the hour in which it was last in use. */
interface Seen extends RecentCaller {
  readonly at: number;
}

function byId(one: Seen, other: Seen): number {
  if (one.id === other.id) return 0;
  return one.id < other.id ? -1 : 1;
}

/**
 * Finds callers, in one pass and in turns. Memory is bounded by the limit, however many callers
 * there are. Of two plans that are asked for, and were in use in the same hour, either may be told.
 *
 * @throws {UsageUnavailable} When usage can't be read
 */
export async function readRecentCallers(
  query: RecentCallerQuery,
  { usage, now, rest }: Pick<UsageReportParts, "usage" | "now" | "rest">,
): Promise<readonly RecentCaller[]> {
  const { from, limit, after = TOKEN_ID_PREFIX, id, isWanted } = query;
  const isAsked = (key: string) =>
    key.startsWith(TOKEN_ID_PREFIX) && key > after && (id === undefined || key === id);
  let found = new Map<string, Seen>();
  const first = () => Array.from(found.values()).sort(byId).slice(0, limit);
  const hourOf = (time: number) => Math.floor(time / HOUR_MS) * HOUR_MS;
  let sinceRest = 0;
  const hours = { from: hourOf(from), to: hourOf(now()) + HOUR_MS };
  for await (const rows of usage.read({ step: "hour", ...hours, key: id })) {
    for (const { at, key, team, plan } of rows) {
      if (plan === undefined || !isAsked(key) || !isWanted(key, plan)) continue;
      if (at >= (found.get(key)?.at ?? 0)) found.set(key, { id: key, team, plan, at });
      // The first ones stay among the first: each caller left out here has enough others before it.
      if (found.size > 2 * limit) found = new Map(first().map((each) => [each.id, each]));
    }
    sinceRest += rows.length;
    if (sinceRest < ROWS_A_TURN) continue;
    sinceRest = 0;
    await rest();
  }
  return first();
}
