/**
 * Recent callers with identity tokens, from the stored hours. No store of keys lists these callers.
 *
 * @module
 */
import { TOKEN_ID_PREFIX } from "../config/key.ts";
import { HOUR_MS, ROWS_A_TURN } from "./counts.ts";
import type { UsageReportParts } from "./report.ts";

/** A caller with an identity token. Team and plan are those of its last token in use. */
export interface RecentCaller {
  /** Id of the caller, such as `jwt:corp:ann`. */
  readonly id: string;
  readonly team: string | undefined;
  readonly plan: string;
}

/** A query for callers. */
export interface RecentCallerQuery {
  /** Start of the time, milliseconds since 1970. The whole hour that contains it counts. */
  readonly from: number;
  /** Maximum number of callers. */
  readonly limit: number;
  /** Only callers whose ids sort after this one. */
  readonly after?: string | undefined;
  /** Only the caller with this id. */
  readonly id?: string | undefined;
  /** True if callers with this plan are wanted. */
  readonly isWanted: (id: string, plan: string) => boolean;
}

/** A caller, and the hour of its last use. */
interface Seen extends RecentCaller {
  readonly at: number;
}

function byId(one: Seen, other: Seen): number {
  if (one.id === other.id) return 0;
  return one.id < other.id ? -1 : 1;
}

function startOfHour(time: number): number {
  return Math.floor(time / HOUR_MS) * HOUR_MS;
}

/**
 * Finds callers, in one pass and in turns. The limit bounds the memory, regardless of the number of
 * callers. If a caller used two wanted plans in the same hour, either can be returned.
 *
 * @throws {UsageUnavailable} If usage can't be read
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
  let sinceRest = 0;
  const hours = { from: startOfHour(from), to: startOfHour(now()) + HOUR_MS };
  for await (const rows of usage.read({ step: "hour", ...hours, key: id })) {
    for (const { at, key, team, plan } of rows) {
      if (plan === undefined || !isAsked(key) || !isWanted(key, plan)) continue;
      const before = found.get(key);
      if (before === undefined || at >= before.at) found.set(key, { id: key, team, plan, at });
      // Dropping is safe: each dropped caller has at least `limit` callers before it.
      if (found.size > 2 * limit) found = new Map(first().map((each) => [each.id, each]));
    }
    sinceRest += rows.length;
    if (sinceRest < ROWS_A_TURN) continue;
    sinceRest = 0;
    await rest();
  }
  return first();
}
