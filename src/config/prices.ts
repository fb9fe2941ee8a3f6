/**
 * Prices as settings: rows of rates by billing class, and factors.
 *
 * @module
 */
import * as v from "valibot";
import { BILLING_CLASSES, type BillingClass } from "../exchange/billing.ts";
import { isDate } from "./calendar.ts";
import { matchesGlob } from "./glob.ts";
import {
  distinct,
  type FactorWhen,
  hasOrder,
  isAlwaysMet,
  type RowWhen,
} from "./price_conditions.ts";
import { about, nonEmpty, shortText, strictObject } from "./schema.ts";

export type { FactorWhen, HoursOfDays, RowWhen } from "./price_conditions.ts";

/** @internal The schema of the currency. */
export const CurrencySchema: v.GenericSchema<string> = v.pipe(
  v.string('expected a currency such as "USD"'),
  v.regex(/^[A-Z]{3}$/, 'expected a currency such as "USD"'),
);

/**
 * A decimal number, as a number or a text. A text is exact with any number of zeros, such as
 * `"0.0000001"`.
 */
export type Decimal = number | string;

/**
 * Rates by billing class: the price of a million tokens or characters, of a thousand calls, pages
 * or images, or of an hour.
 */
export type Rates = { readonly [Name in BillingClass]?: Decimal | undefined };

/** Rates under some conditions. */
export interface PriceRow {
  /** Its conditions. Default: none. */
  readonly when?: RowWhen | undefined;
  /** Its rates. A class without a rate has no price. */
  readonly rates: Rates;
}

/** A factor on the cost of tokens under some conditions. */
export interface PriceFactor {
  /** Its conditions. */
  readonly when: FactorWhen;
  /** The factor, such as `"0.5"`. */
  readonly times: Decimal;
}

/**
 * Price of one model: rates without conditions, and rows of rates under conditions. The last row
 * that matches applies to the whole call, and the rates without conditions are the first row. All
 * factors that match are multiplied with the cost of tokens.
 */
export interface Price extends Rates {
  /** Another name of `cacheRead`. */
  readonly cached?: Decimal | undefined;
  /** Rates under conditions. The last row that matches applies. */
  readonly rows?: readonly PriceRow[] | undefined;
  /** Factors under conditions. All that match apply. */
  readonly factors?: readonly PriceFactor[] | undefined;
  /** Currency of these prices, if they are from a file: the currency of all prices. */
  readonly currency?: string | undefined;
  /** A note: where these prices were found. */
  readonly source?: string | undefined;
}

/** Prices by the model's name, in which `*` matches any characters. */
export type Prices = Readonly<Record<string, Price>>;

const MAX_PRICE = 1e6;
/** Maximum number of decimals of a rate. */
export const RATE_DECIMALS = 9;
/** Maximum number of decimals of a factor. */
export const FACTOR_DECIMALS = 4;
const MAX_ROWS = 64;
const MAX_NAME = 256;

/** A decimal number from 0 to a maximum. */
function decimalTo(most: number, decimals: number, what: string): v.GenericSchema<Decimal> {
  const form = `expected ${what} from 0 to ${most}, with ${decimals} decimals at most`;
  const pattern = new RegExp(`^[0-9]{1,7}(?:\\.[0-9]{1,${decimals}})?$`);
  return v.pipe(
    v.union([v.number(form), v.string(form)], form),
    v.check((value) => pattern.test(String(value)) && Number(value) <= most, form),
  );
}

/** @internal The schema of a price. */
export const rate: v.GenericSchema<Decimal> = decimalTo(MAX_PRICE, RATE_DECIMALS, "a price");
const ABOUT: Readonly<Record<BillingClass, string>> = {
  input: "A million tokens of prompts",
  inputAudio: "A million tokens of audio in prompts",
  inputImage: "A million tokens of images in prompts. Left out: the rate of `input`",
  inputVideo: "A million tokens of video in prompts. Left out: the rate of `input`",
  cacheRead: "A million tokens of prompts from the provider's cache. Left out: the rate of `input`",
  cacheReadAudio: "A million tokens of audio from the cache",
  cacheReadImage: "A million tokens of images from the cache. Left out: the rate of `cacheRead`",
  cacheWrite: "A million tokens written to the provider's cache. Left out: the rate of `input`",
  cacheWriteLong: "A million tokens written to the cache, to be kept for its longer time",
  output: "A million tokens of answers. They include reasoning, unless it has a separate rate",
  reasoning: "A million tokens of reasoning. Left out: the rate of `output`",
  outputAudio: "A million tokens of audio in answers",
  outputImage: "A million tokens of images in answers",
  outputVideo: "A million tokens of video in answers",
  citation: "A million tokens of citations",
  webSearches: "A thousand searches of the web",
  fileSearches: "A thousand searches of files",
  codeSessions: "A thousand sessions of a code interpreter",
  requests: "A thousand calls, in addition to their tokens",
  searchUnits: "A thousand search units, as providers of reranking count",
  pages: "A thousand pages",
  images: "A thousand images",
  characters: "A million characters of text to speak",
  audioMs: "An hour of audio",
  videoMs: "An hour of video",
  sessionMs: "An hour of a session",
};
const rateOf = (name: BillingClass) => v.optional(v.pipe(rate, v.description(ABOUT[name])));
const rates = Object.fromEntries(
  BILLING_CLASSES.map((name) => [name, rateOf(name)]),
) as Record<BillingClass, ReturnType<typeof rateOf>>;

const tokens = v.pipe(
  v.number("expected a number of tokens"),
  v.integer("expected a whole number of tokens"),
  v.minValue(1, "expected at least 1"),
);
const timeForm = 'expected a time with its zone, such as "2026-08-21T00:00:00Z"';
const time = v.pipe(
  v.string(timeForm),
  v.regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)$/, timeForm),
  v.check((text) => isDate(text.slice(0, 10)) && !Number.isNaN(Date.parse(text)), timeForm),
);
const minuteForm = 'expected a time of day in UTC, such as "01:00"';
const minute = v.pipe(
  v.string(minuteForm),
  v.regex(/^(?:(?:[01]\d|2[0-3]):[0-5]\d|24:00)$/, minuteForm),
);
const day = v.pipe(
  v.number("expected a day from 0 (Sunday) to 6"),
  v.integer("expected a day from 0 (Sunday) to 6"),
  v.minValue(0, "expected a day from 0 (Sunday) to 6"),
  v.maxValue(6, "expected a day from 0 (Sunday) to 6"),
);
const factorWhen = {
  tier: v.optional(about(shortText, "The answer names this tier, such as `priority`")),
  geo: v.optional(
    about(
      shortText,
      "The answer names this region. If it names none, `region` of the provider is used",
    ),
  ),
  since: v.optional(about(time, "The call was at or after this time")),
  until: v.optional(about(time, "The call was before this time")),
};
const orderForm = "expected a time after since";
const rowWhen = v.pipe(
  strictObject({
    ...factorWhen,
    over: v.optional(about(tokens, "The input has more tokens than this, caches included")),
    from: v.optional(
      about(tokens, "The input has at least this number of tokens, caches included"),
    ),
    hours: v.optional(
      v.pipe(
        v.array(
          v.pipe(
            strictObject({
              days: about(
                v.pipe(v.array(day), v.minLength(1, "expected at least one day")),
                "Days of the week, 0 for Sunday",
              ),
              from: about(minute, "Start in UTC, such as 01:00"),
              to: about(minute, "End in UTC, such as 04:00"),
            }),
            v.check(({ from, to }) => from < to, "expected an end after the start"),
          ),
        ),
        v.minLength(1, "expected at least one range of hours"),
      ),
    ),
    asked: v.optional(
      about(
        v.record(shortText, shortText),
        'The request has these fields with these values, such as `{ "quality": "hd" }`',
      ),
    ),
  }),
  v.check(({ over, from }) => over === undefined || from === undefined, "expected over or from"),
  v.forward(v.check(hasOrder, orderForm), ["until"]),
);

const entryForm = "expected an object with rates, such as input and output";
const checkedPrice = v.pipe(
  strictObject({
    ...rates,
    cached: v.optional(v.pipe(rate, v.description("Another name of `cacheRead`"))),
    rows: v.optional(
      v.pipe(
        v.array(strictObject({ when: v.optional(rowWhen), rates: strictObject(rates) })),
        v.maxLength(MAX_ROWS, `expected at most ${MAX_ROWS} rows`),
        distinct("row"),
        v.description(
          'Rates under conditions: an array of `{ "when": …, "rates": … }`. The last row that matches applies',
        ),
      ),
    ),
    factors: v.optional(
      v.pipe(
        v.array(
          strictObject({
            when: v.pipe(
              strictObject(factorWhen),
              v.forward(v.check(hasOrder, orderForm), ["until"]),
            ),
            times: about(decimalTo(100, FACTOR_DECIMALS, "a factor"), "The factor, such as 0.5"),
          }),
        ),
        v.maxLength(MAX_ROWS, `expected at most ${MAX_ROWS} factors`),
        distinct("factor"),
        v.description(
          "Factors under conditions. The cost of tokens is multiplied by all that match",
        ),
      ),
    ),
    currency: v.optional(
      about(CurrencySchema, "Currency of these prices. It must be the currency of all prices"),
    ),
    source: v.optional(v.pipe(shortText, v.description("A note: where the prices were found"))),
  }, entryForm),
  v.check(
    ({ cached, cacheRead }) => cached === undefined || cacheRead === undefined,
    "expected cached or cacheRead: both mean the same",
  ),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    const { rows = [], ...flat } = dataset.value;
    const index = rows.findIndex(({ when = {} }) => isAlwaysMet(when));
    if (index === -1 || !BILLING_CLASSES.some((name) => name in flat)) return;
    addIssue({
      message: "expected conditions: the rates of the price itself have none",
      path: [
        { type: "object", origin: "value", input: flat, key: "rows", value: rows },
        { type: "array", origin: "value", input: rows, key: index, value: rows[index] },
      ],
    });
  }),
  v.check(
    ({ rows = [], cached, ...entry }) =>
      rows.length > 0 || cached !== undefined || BILLING_CLASSES.some((name) => name in entry),
    entryForm,
  ),
);

/** @internal The schema of the price of a model. The schema for editors defines it once. */
export const PriceSchema: v.GenericSchema<Price> = checkedPrice as v.GenericSchema<Price>;

const pricesForm = 'expected an object such as { "gpt-4o": { "input": 2.5, "output": 10 } }';

const fileForm = "expected the path of a file, or the price of a model of this name";
const file = v.optional(about(
  v.union([nonEmpty, PriceSchema], fileForm),
  "A file with prices, relative to the configuration. Prices next to this setting override those in the file",
));

/** Refuses names that no model has, and a file that was not read. */
const named = v.rawCheck<Record<string, unknown>>(({ dataset, addIssue }) => {
  const refuse = (name: string, message: string) =>
    addIssue({
      message,
      path: [{ type: "object", origin: "key", input: {}, key: name, value: undefined }],
    });
  for (const [name, value] of Object.entries(dataset.value ?? {})) {
    if (!/[^0-9]/.test(name)) refuse(name, "expected the name of a model");
    else if (name.length > MAX_NAME) refuse(name, `expected at most ${MAX_NAME} characters`);
    else if (name === "file" && typeof value === "string" && dataset.typed) {
      refuse(name, "cannot read a file here: give the prices themselves");
    }
  }
});

/**
 * @internal Prices as written in the configuration. Its reader has replaced the name of a file by
 * the prices in it.
 */
export const PricesSchema: v.GenericSchema<Prices> = v.pipe(
  v.objectWithRest({ file }, PriceSchema, pricesForm) as v.GenericSchema<Record<string, unknown>>,
  named,
) as v.GenericSchema<Record<string, unknown>> as v.GenericSchema<Prices>; // `file` is no text

/**
 * Finds the price of a model: by its name, else by the longest pattern that matches it. A
 * provider's own prices have precedence over the prices for all.
 *
 * @param tables Prices, highest precedence first
 */
export function findPrice(
  model: string,
  ...tables: readonly (Prices | undefined)[]
): Price | undefined {
  for (const prices of tables) {
    if (prices === undefined) continue;
    if (Object.hasOwn(prices, model)) return prices[model];
    const [pattern] = Object.keys(prices)
      .filter((name) => name.includes("*") && matchesGlob(model, name))
      .sort((one, other) => other.length - one.length);
    if (pattern !== undefined) return prices[pattern];
  }
  return undefined;
}
