/**
 * Imported prices added to a file of prices. A changed price opens new rows from today on. Rows of
 * the past stay, so that history is priced as before.
 *
 * @module
 */
import type { Price, PriceFactor, PriceRow, Prices, RowWhen } from "../../config/prices.ts";
import { rowsOf, toPrice } from "./row_set.ts";

/** The result of an import. */
export interface Merged {
  readonly prices: Prices;
  readonly added: readonly string[];
  readonly changed: readonly string[];
  /** Models that the table no longer has: their prices end today. */
  readonly closed: readonly string[];
  readonly unchanged: readonly string[];
}

type Dated = Pick<RowWhen, "since" | "until">;

const isOver = ({ until }: Dated, today: string): boolean =>
  until !== undefined && Date.parse(until) <= Date.parse(today);
const hasBegun = ({ since }: Dated, today: string): boolean =>
  since === undefined || Date.parse(since) <= Date.parse(today);
/** True for conditions of nothing but a start. */
const isCatchAll = ({ since: _, ...others }: RowWhen): boolean => Object.keys(others).length === 0;

/** Removes a start that has passed. */
function withoutPast<When extends Dated>(when: When, today: string): Omit<When, "since"> {
  const { since, ...others } = when;
  return hasBegun(when, today) ? others : { ...others, since };
}

/** Lists the rows that can apply from today on, without starts that have passed. */
function rowsFrom(price: Price, today: string): PriceRow[] {
  let rows: PriceRow[] = [];
  for (const { when = {}, rates } of rowsOf(price)) {
    if (isOver(when, today)) continue;
    if (isCatchAll(when) && hasBegun(when, today)) rows = []; // no earlier row applies any more
    rows.push({ when: withoutPast(when, today), rates });
  }
  return rows;
}

/** Lists the factors that can apply from today on. */
function factorsFrom({ factors = [] }: Price, today: string): PriceFactor[] {
  return factors.filter(({ when }) => !isOver(when, today)).map(({ when, times }) => ({
    when: withoutPast(when, today),
    times,
  }));
}

/** A replacer of `JSON.stringify` that sorts members. */
function sorted(_name: string, value: unknown): unknown {
  if (typeof value === "number") return String(value);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => one < other ? -1 : 1));
}
const toText = (value: unknown): string => JSON.stringify(value, sorted);

/** True if two prices are the same from today on. */
function isSame(one: Price, other: Price, today: string): boolean {
  const [first, second] = [one, other].map((price) =>
    toText([rowsFrom(price, today), factorsFrom(price, today)])
  );
  return first === second;
}

/** Returns the rows and factors of a price before today. */
function before(price: Price, today: string): { rows: PriceRow[]; factors: PriceFactor[] } {
  const isPast = ({ since }: Dated) => since === undefined || Date.parse(since) < Date.parse(today);
  return {
    rows: rowsOf(price).filter(({ when = {} }) => isPast(when)),
    factors: (price.factors ?? []).filter(({ when }) => isPast(when)),
  };
}

/** Ends at today what has no earlier end. */
const endAt = <When extends Dated>(when: When, today: string): When =>
  isOver(when, today) ? when : { ...when, until: today };
/** Begins at today what has no later start. */
const beginAt = <When extends Dated>(when: When, today: string): When =>
  hasBegun(when, today) ? { ...when, since: today } : when;

/** Adds the rows of a new price, from today on. */
function change(old: Price, next: Price, today: string): Price | undefined {
  const { rows, factors } = before(old, today);
  const kept = toText(factors);
  const added = factorsFrom(next, today);
  const isSameFactors = kept === toText(added);
  return toPrice(
    [
      ...rows,
      ...rowsFrom(next, today).map(({ when = {}, rates }) => ({
        when: beginAt(when, today),
        rates,
      })),
    ],
    isSameFactors ? factors : [
      ...factors.map(({ when, times }) => ({ when: endAt(when, today), times })),
      ...added.map(({ when, times }) => ({ when: beginAt(when, today), times })),
    ],
    next.source ?? "",
  );
}

/** Ends all rows of a price today. */
function close(price: Price, today: string): Price {
  const { rows, factors } = before(price, today);
  const ended = rows.map(({ when = {}, rates }) => ({ when: endAt(when, today), rates }));
  return toPrice(ended, factors, price.source ?? "") ?? price;
}

/**
 * Adds imported prices to the prices of a file.
 *
 * @param found The imported prices
 * @param today The start of today, such as `2026-11-26T00:00:00Z`
 * @param isLost True if a model of the file was imported from the same table and provider, is
 * wanted, and is in the table no more
 */
export function mergePrices(
  old: Prices,
  found: ReadonlyMap<string, Price>,
  today: string,
  isLost: (model: string, price: Price) => boolean,
): Merged {
  const prices: Record<string, Price> = { ...old };
  const lists = { added: [], changed: [], closed: [], unchanged: [] } as Record<
    "added" | "changed" | "closed" | "unchanged",
    string[]
  >;
  for (const [model, next] of found) {
    const known = Object.hasOwn(old, model) ? old[model] : undefined;
    if (known !== undefined && isSame(known, next, today)) {
      lists.unchanged.push(model);
      continue;
    }
    lists[known === undefined ? "added" : "changed"].push(model);
    prices[model] = known === undefined ? next : change(known, next, today) ?? next;
  }
  for (const [model, price] of Object.entries(old)) {
    const isSettled = found.has(model) || rowsFrom(price, today).length === 0;
    if (isSettled || !isLost(model, price)) continue;
    lists.closed.push(model);
    prices[model] = close(price, today);
  }
  return { prices, ...lists };
}
