/**
 * The filter of the exchanges view. The page's address contains it:
 * `#exchanges?outcome=errors&key=team-x`. The admin API uses the same names.
 *
 * @module
 */
import { useEffect, useState } from "preact/hooks";
import {
  END_KINDS,
  type ExchangeFilter,
  readDuration,
} from "../../observe/live/exchange_filter.ts";

const FILTER_NAMES = [
  "search",
  "id",
  "outcome",
  "stream",
  "key",
  "team",
  "provider",
  "model",
  "operation",
  "code",
  "status",
  "minDuration",
  "minFirstToken",
] as const;

/** The parts as typed. A missing or empty part matches all exchanges. */
export type FilterTexts = Readonly<Partial<Record<typeof FILTER_NAMES[number], string>>>;

/** Returns the usable parts: without empty ones, and without ones that are still incomplete. */
export function toUsable(texts: FilterTexts): FilterTexts {
  const { minDuration, minFirstToken, status, ...rest } = texts;
  const usable = {
    ...rest,
    ...(readDuration(minDuration ?? "") !== undefined && { minDuration }),
    ...(readDuration(minFirstToken ?? "") !== undefined && { minFirstToken }),
    ...(/^[1-5][0-9x]{0,2}$/.test(status ?? "") && { status }),
  };
  return Object.fromEntries(
    Object.entries(usable).map(([name, text]) => [name, text?.trim() ?? ""]).filter(([, text]) =>
      text !== ""
    ),
  );
}

/** Returns the filter of usable parts, for exchanges in the page. */
export function toFilter(given: FilterTexts): ExchangeFilter {
  const { minDuration, minFirstToken, stream, outcome, ...texts } = given;
  return {
    ...texts,
    outcome: END_KINDS.find((kind) => kind === outcome),
    stream: stream === undefined ? undefined : stream === "true",
    minDurationMs: readDuration(minDuration ?? ""),
    minFirstTokenMs: readDuration(minFirstToken ?? ""),
  };
}

/** Returns the address of the view with a filter, from the hash on. */
export function toAddress(texts: FilterTexts): string {
  const set = Object.entries(texts).filter(([, text]) => text !== "");
  return set.length === 0 ? "#exchanges" : `#exchanges?${new URLSearchParams(set)}`;
}

function readAddress(): FilterTexts {
  const [, query = ""] = location.hash.split("?");
  const given = new URLSearchParams(query);
  const texts = FILTER_NAMES.map((name) => [name, given.get(name) ?? ""]).filter(([, text]) =>
    text !== ""
  );
  return Object.fromEntries(texts);
}

/**
 * The filter in the page's address, and a function that changes it. Typing adds no entries to the
 * browser's history.
 */
export function useFilter(): [FilterTexts, (texts: FilterTexts) => void] {
  const [texts, setTexts] = useState(readAddress);
  useEffect(() => {
    const onChange = () => setTexts(readAddress());
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return [texts, (changed) => {
    history.replaceState(null, "", toAddress(changed));
    setTexts(changed);
  }];
}
