/**
 * Pages of settled exchanges, the newest first, and the merge of several processes' pages.
 *
 * @module
 */
import type { ExchangeFilter } from "./exchange_filter.ts";
import type { LiveExchange } from "./live_report.ts";

/** Position in the order of exchanges: by the time at which they settled, then by their id. */
export type ExchangeCursor = Pick<LiveExchange, "settledAt" | "id">;

/** A query for a page. */
export interface ExchangeQuery {
  readonly filter: ExchangeFilter;
  /** Maximum number of exchanges. */
  readonly limit: number;
  /** Only exchanges older than this position. */
  readonly before?: ExchangeCursor | undefined;
}

/** A page. */
export interface ExchangePage {
  /** The newest first. */
  readonly exchanges: readonly LiveExchange[];
  /** Position where the next page starts; `undefined` if no older exchanges are stored. */
  readonly reached?: ExchangeCursor | undefined;
}

/** Compares positions: negative if the first one is newer. */
export function compareCursors(one: ExchangeCursor, other: ExchangeCursor): number {
  if (one.settledAt !== other.settledAt) return other.settledAt - one.settledAt;
  if (one.id === other.id) return 0;
  return one.id < other.id ? 1 : -1;
}

/**
 * Merges pages of several processes that answer the same query. Processes can have examined
 * different spans of time. Exchanges older than the newest `reached` are left for the next page.
 */
export function mergePages(pages: readonly ExchangePage[], limit: number): ExchangePage {
  const nearest = pages.flatMap(({ reached }) => reached ?? []).sort(compareCursors)[0];
  const all = pages.flatMap(({ exchanges }) => exchanges)
    .filter((exchange) => nearest === undefined || compareCursors(exchange, nearest) <= 0)
    .sort(compareCursors);
  if (all.length <= limit) return { exchanges: all, reached: nearest };
  const exchanges = all.slice(0, limit);
  const last = exchanges.at(-1);
  return { exchanges, reached: last && { settledAt: last.settledAt, id: last.id } };
}
