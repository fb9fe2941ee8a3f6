/**
 * The list of the exchanges view: streamed exchanges, and older ones from the admin API. The list
 * can be paused, so that rows do not move while they are read.
 *
 * @module
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { createTest } from "../../observe/live/exchange_filter.ts";
import type { LiveExchange } from "../../observe/live/live_report.ts";
import type { ExchangeList as Page } from "../api/exchanges.ts";
import { call } from "./client.ts";
import { type FilterTexts, toFilter, toUsable } from "./exchange_filter.ts";
import type { Scope } from "./fleet_switch.tsx";
import type { Snapshot } from "./store.ts";

/** Exchanges without a gap, the newest first; `gaps` changes when the list starts over. */
export type Streamed = Pick<Snapshot, "exchanges" | "gaps">;

/** Control that pauses the streamed rows. */
export interface Pause {
  readonly streamed: Streamed;
  readonly isPaused: boolean;
  /**
   * Number of exchanges that ended since the pause began; `undefined` if there are too many to know.
   */
  readonly missed: number | undefined;
  /** Pauses the rows. `isAsked` is true if the reader asked for it, false for an automatic pause. */
  pause(isAsked: boolean): void;
  /** Ends the pause. With `isAsked` false, only an automatic pause ends. */
  resume(isAsked: boolean): void;
}

/** Counts the exchanges that ended since the pause began; `undefined` if there are too many. */
function countMissed(paused: Streamed | undefined, { exchanges }: Streamed): number | undefined {
  if (paused === undefined) return 0;
  const [newest] = paused.exchanges;
  if (newest === undefined) return exchanges.length;
  const since = exchanges.findIndex(({ id }) => id === newest.id);
  return since < 0 ? undefined : since;
}

/** Creates the pause of the streamed rows of the page's store. */
export function usePause({ exchanges, gaps }: Snapshot): Pause {
  const [paused, setPaused] = useState<Streamed & { readonly isAsked: boolean } | undefined>(
    undefined,
  );
  const latest = useRef<Streamed>({ exchanges, gaps }); // a listener keeps its first functions
  latest.current = { exchanges, gaps };
  return {
    streamed: paused ?? { exchanges, gaps },
    isPaused: paused !== undefined,
    missed: countMissed(paused, latest.current),
    pause: (isAsked) =>
      setPaused((before) => ({
        ...(before ?? latest.current),
        isAsked: isAsked || before?.isAsked === true,
      })),
    resume: (isAsked) =>
      setPaused((before) => before?.isAsked === true && !isAsked ? before : undefined),
  };
}

/** Older exchanges from the API. */
interface Older {
  /** The filter of the query, and the number of gaps at that time. */
  readonly key: string;
  readonly gaps: number;
  readonly exchanges: readonly LiveExchange[];
  /** Exchanges from before the last gap. They are kept until the missing ones have been read. */
  readonly rest: readonly LiveExchange[];
  /** Place where the next page starts; `null` if no older exchanges are stored. */
  readonly next: string | null;
  /** Names of the gateways that did not answer the last query. */
  readonly missing: readonly string[];
}

/** Number of exchanges in one page. */
const PAGE = 200;
/** Pause after typing, and between two queries if gaps occur faster. Milliseconds. */
const TYPING_MS = 250;
const GAP_MS = 2000;

/**
 * Reads the next page.
 *
 * @param from Place where the page starts; the newest exchange if left out
 * @param before The older exchanges that were already read
 */
async function askForOlder(
  texts: FilterTexts,
  scope: Scope,
  from: string | undefined,
  before: Omit<Older, "next" | "missing">,
): Promise<Older> {
  const query = new URLSearchParams({
    ...texts,
    limit: String(PAGE),
    ...(from !== undefined && { after: from }),
    ...(scope !== "" && { gateway: scope }),
  });
  const { exchanges, next, missing = [] } = await call<Page>("GET", `v1/exchanges?${query}`);
  const reached = next === null ? -Infinity : Number.parseFloat(next);
  return {
    ...before,
    exchanges: [...before.exchanges, ...exchanges],
    rest: before.rest.filter(({ settledAt }) => settledAt < reached),
    next,
    missing,
  };
}

/** Exchanges that match the filter. */
export interface ExchangeList {
  readonly found: readonly LiveExchange[];
  readonly isLoading: boolean;
  /** True if no older exchange is stored. */
  readonly isAll: boolean;
  readonly error: unknown;
  /** Names of the gateways that did not answer: their older exchanges are missing. */
  readonly missing: readonly string[];
  /** Repeats the query after an error. */
  retry(): void;
}

function everyOlder(older: Older | undefined): readonly LiveExchange[] {
  return older === undefined ? [] : [...older.exchanges, ...older.rest];
}

/** Returns the pause before the next query, milliseconds. */
function pauseBefore(
  fitting: Older | undefined,
  current: Older | undefined,
  askedAt: number,
): number {
  if (fitting === undefined) return TYPING_MS;
  return current === undefined ? Math.max(0, askedAt + GAP_MS - Date.now()) : 0;
}

/**
 * Lists the exchanges that match a filter. If too few have streamed in, reads older ones from the
 * API.
 *
 * @param wanted Maximum number of shown exchanges
 */
export function useExchangeList(
  streamed: Streamed,
  texts: FilterTexts,
  wanted: number,
  scope: Scope,
): ExchangeList {
  const usable = toUsable(texts);
  const key = JSON.stringify(usable);
  const passes = useMemo(() => createTest(toFilter(usable)), [key]);
  const [older, setOlder] = useState<Older | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  const [isLoading, setLoading] = useState(false);
  const latestKey = useRef(key);
  latestKey.current = key;
  const askedAt = useRef(0);
  const fitting = older?.key === key ? older : undefined;
  const current = fitting?.gaps === streamed.gaps ? fitting : undefined;
  const matched = streamed.exchanges.filter(passes);
  const ids = new Set(matched.map(({ id }) => id));
  // An exchange from the API can have streamed in since.
  const hasNotStreamed = ({ id }: LiveExchange) => !ids.has(id);
  const found = [...matched, ...everyOlder(fitting).filter(hasNotStreamed)];
  const isAll = current?.next === null;
  const others = current?.exchanges.filter(hasNotStreamed) ?? [];
  const isShort = matched.length + others.length < wanted;
  const load = async () => {
    const last = streamed.exchanges.at(-1);
    const from = current?.next ?? (last && `${last.settledAt}_${last.id}`);
    const rest = everyOlder(fitting);
    const before = current ?? { key, gaps: streamed.gaps, exchanges: [], rest };
    setLoading(true);
    askedAt.current = Date.now();
    try {
      const got = await askForOlder(usable, scope, from, before);
      if (latestKey.current === key) setOlder(got);
    } catch (thrown) {
      setError(thrown);
    }
    setLoading(false);
  };
  useEffect(() => setError(undefined), [key]);
  useEffect(() => {
    if (!isShort || isAll || isLoading || error !== undefined) return;
    const timer = setTimeout(load, pauseBefore(fitting, current, askedAt.current));
    return () => clearTimeout(timer);
  });
  return {
    found,
    isLoading,
    isAll,
    error,
    missing: current?.missing ?? [],
    retry: () => setError(undefined),
  };
}
