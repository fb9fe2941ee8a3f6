/**
 * Rows of one price, collected key by key. A table states some rates by tier and threshold; the
 * fees of calls apply to all rows.
 *
 * @module
 */
import type { BillingClass } from "../../exchange/billing.ts";
import { UNIT_CLASSES } from "../../exchange/billing.ts";
import type {
  Decimal,
  HoursOfDays,
  Price,
  PriceFactor,
  PriceRow,
  Rates,
  RowWhen,
} from "../../config/prices.ts";

type MutableRates = { [Name in BillingClass]?: Decimal };

/** Position of a row: later ones apply. */
interface Position {
  /** Threshold in tokens; 0 for none. */
  readonly over: number;
  /** The tier; empty for the standard one. */
  readonly tier: string;
}

const UNITS: readonly BillingClass[] = UNIT_CLASSES;

/** Collects the rows of a price. */
export class RowSet {
  readonly #rates = new Map<string, [Position, MutableRates]>();
  readonly #units: MutableRates = {};
  readonly #asked: [asked: Record<string, string>, rates: MutableRates][] = [];
  readonly #factors: PriceFactor[] = [];
  #hours: [hours: readonly HoursOfDays[], rates: MutableRates] | undefined;
  readonly #isInclusive: boolean;

  /** @param isInclusive True if a threshold is reached by an input of exactly this size */
  constructor(isInclusive = false) {
    this.#isInclusive = isInclusive;
  }

  /** The fees that are not for tokens. */
  get units(): Rates {
    return this.#units;
  }

  /** Sets a rate. Fees of calls have no threshold and no tier. */
  set(name: BillingClass, rate: Decimal | undefined, at: Partial<Position> = {}): void {
    const { over = 0, tier = "" } = at;
    if (rate === undefined) return;
    if (UNITS.includes(name)) {
      this.#units[name] = rate;
      return;
    }
    const key = `${over} ${tier}`;
    const row = this.#rates.get(key) ?? [{ over, tier }, {}];
    row[1][name] = rate;
    this.#rates.set(key, row);
  }

  /** Sets rates for a choice of the caller. */
  ask(asked: Record<string, string>, rates: Rates): void {
    this.#asked.push([asked, { ...rates } as MutableRates]);
  }

  /** Sets rates for some hours. Other classes cost as they do without conditions. */
  during(hours: readonly HoursOfDays[], rates: Rates): void {
    this.#hours = [hours, { ...rates } as MutableRates];
  }

  /** Adds a factor on tokens. */
  multiply(when: PriceFactor["when"], times: Decimal | undefined): void {
    if (times !== undefined) this.#factors.push({ when, times });
  }

  #toWhen({ over, tier }: Position): RowWhen {
    return {
      ...(over > 0 && (this.#isInclusive ? { from: over } : { over })),
      ...(tier !== "" && { tier }),
    };
  }

  /**
   * Lists the rows. Those of a threshold come after all below it: a tier without rates at this
   * threshold has no price there, where a table would use the lower price below it.
   */
  #listRows(): PriceRow[] {
    const found = Array.from(this.#rates.values()).toSorted(([one], [other]) =>
      one.over - other.over || Number(one.tier !== "") - Number(other.tier !== "") ||
      (one.tier < other.tier ? -1 : 1)
    );
    const rows: PriceRow[] = found.map(([position, rates]) => ({
      when: this.#toWhen(position),
      rates: { ...rates, ...this.#units },
    }));
    if (rows.length === 0 && Object.keys(this.#units).length > 0) {
      rows.push({ when: {}, rates: { ...this.#units } });
    }
    if (this.#hours === undefined) return rows;
    const [hours, rates] = this.#hours;
    // Only without conditions: a threshold or a tier with rates keeps them.
    const plain = rows.findIndex(({ when = {} }) => Object.keys(when).length === 0);
    const before = rows[plain]?.rates ?? {};
    rows.splice(plain + 1, 0, { when: { hours }, rates: { ...before, ...rates } });
    return rows;
  }

  /** Builds the price; `undefined` if there are no rates. */
  toPrice(source: string): Price | undefined {
    const rows = this.#listRows().flatMap((row) => [
      row,
      ...this.#asked.map(([asked, rates]) => ({
        when: { ...row.when, asked },
        rates: { ...row.rates, ...rates },
      })),
    ]);
    if (rows.length === 0) {
      rows.push(...this.#asked.map(([asked, rates]) => ({ when: { asked }, rates })));
    }
    return toPrice(rows, this.#factors, source);
  }
}

/** Builds a price from all its rows; the first row without conditions is written without a row. */
export function toPrice(
  all: readonly PriceRow[],
  factors: readonly PriceFactor[],
  source: string,
): Price | undefined {
  const [first, ...others] = all;
  if (first === undefined) return undefined;
  const isFlat = Object.keys(first.when ?? {}).length === 0;
  const rows = isFlat ? others : all;
  return {
    ...(isFlat && first.rates),
    ...(rows.length > 0 && { rows }),
    ...(factors.length > 0 && { factors }),
    source,
  };
}

/** Lists all rows of a price, the rates without conditions first. */
export function rowsOf(price: Price): PriceRow[] {
  const { rows = [], factors: _, source: _source, currency: _currency, cached, ...flat } = price;
  const rates = { ...flat, ...(cached !== undefined && { cacheRead: cached }) };
  return Object.keys(rates).length === 0 ? [...rows] : [{ when: {}, rates }, ...rows];
}
