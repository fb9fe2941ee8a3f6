/**
 * The filter of the exchanges view. The page's address contains it:
 * `#exchanges?outcome=errors&key=team-x`. The admin API uses the same names.
 *
 * @module
 */
import { type Dimension, DIMENSIONS } from "../../config/dimensions.ts";
import {
  END_KINDS,
  type ExchangeFilter,
  readDuration,
} from "../../observe/live/exchange_filter.ts";
import { toAddress } from "./address.ts";

type FilterName =
  | Dimension
  | "search"
  | "id"
  | "outcome"
  | "stream"
  | "key"
  | "run"
  | "team"
  | "provider"
  | "model"
  | "operation"
  | "code"
  | "status"
  | "minDuration"
  | "minFirstToken";
const FILTER_NAMES: readonly FilterName[] = [
  ...DIMENSIONS,
  "search",
  "id",
  "outcome",
  "stream",
  "key",
  "run",
  "team",
  "provider",
  "model",
  "operation",
  "code",
  "status",
  "minDuration",
  "minFirstToken",
];

/** The parts as typed. A missing or empty part matches all exchanges. */
export type FilterTexts = Readonly<Partial<Record<FilterName, string>>>;

/** Returns the usable parts: without empty ones, and without ones that are still incomplete. */
export function toUsable(texts: FilterTexts): FilterTexts {
  const { minDuration, minFirstToken, status, ...rest } = texts;
  const usable = {
    ...rest,
    ...(readDuration(minDuration) !== undefined && { minDuration }),
    ...(readDuration(minFirstToken) !== undefined && { minFirstToken }),
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
    minDurationMs: readDuration(minDuration),
    minFirstTokenMs: readDuration(minFirstToken),
  };
}

/** Returns the address of the view with a filter, from the hash on. */
export const toExchanges = (texts: FilterTexts): string => toAddress("exchanges", texts);

/** The names of the parts of the view's address: the filter, and the open exchange. */
export const PART_NAMES: readonly (keyof FilterTexts | "open")[] = [...FILTER_NAMES, "open"];
