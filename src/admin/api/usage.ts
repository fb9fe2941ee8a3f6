/**
 * The routes of usage at the admin API, with the schemas of their queries and their answers.
 *
 * @module
 */
import * as v from "valibot";
import { DIMENSIONS } from "../../config/dimensions.ts";
import { parseDuration } from "../../config/units.ts";
import type { EntriesOf } from "../../config/schema.ts";
import { BILLING_CLASSES, type ClassAmounts } from "../../exchange/billing.ts";
import { type ClassCount, PAYERS, type UsageCounts } from "../../usage/counts.ts";
import {
  isTimeDimension,
  TIME_DIMENSIONS,
  USAGE_DIMENSIONS,
  USAGE_ORDERS,
  type UsageDimension,
  type UsageExportQuery,
  type UsageQuery,
} from "../../usage/query.ts";
import type { UsageExportRow, UsageLine, UsageReport, UsageReports } from "../../usage/report.ts";
import type { ClassSums, CountedClass, UsageSums } from "../../usage/sums.ts";
import {
  EXPORT_TYPES,
  type ExportFormat,
  toExportText,
  toReportText,
} from "../../usage/usage_text.ts";
import { ATTRIBUTION_MEANS } from "./attribution_means.ts";
import { TextParts } from "./responses.ts";
import { type AdminRoute, route } from "./route.ts";
import {
  closed,
  count,
  flag,
  list,
  objectOf,
  oneOf,
  optional,
  orNull,
  record,
  text,
  time,
} from "./schema.ts";

/** Limit of the rows of an answer. */
const MAX_ROWS = 10_000;
const DEFAULT_ROWS = 1000;

/** Limit of the groups with their own rows if the others are added up. */
const MAX_TOP = 100;

const byForm = `expected one or several of ${
  USAGE_DIMENSIONS.join(", ")
}, with commas between them; only one of ${TIME_DIMENSIONS.join(", ")}`;
const by = v.pipe(
  v.string(byForm),
  v.transform((text) => text.split(",").map((part) => part.trim())),
  v.custom<UsageDimension[]>(
    (parts) => Array.isArray(parts) && parts.every((part) => USAGE_DIMENSIONS.includes(part)),
    byForm,
  ),
  v.check((parts) => new Set(parts).size === parts.length, "expected each only once"),
  v.check((parts) => parts.filter(isTimeDimension).length <= 1, byForm),
);

const timeForm = "expected a day such as 2027-01-31 or a time such as 2027-01-31T00:00:00Z";
const dayOrTime = v.pipe(
  v.string(timeForm),
  v.regex(
    /^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?Z)?$/,
    timeForm,
  ),
  v.transform((text) => ({ text, ms: Date.parse(text) })),
  // `Date.parse` accepts the 30th of February.
  v.check(
    ({ text, ms }) => !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text.slice(0, 10)),
    timeForm,
  ),
  v.transform(({ ms }) => ms),
);

const lastForm = 'expected a duration such as "7d" or "24h"';
const last = v.pipe(
  v.string(lastForm),
  v.transform(parseDuration),
  v.number(lastForm),
  v.minValue(1, lastForm),
);

/** Builds the schema of a whole number, written as text. */
function wholeUpTo(most: number): v.GenericSchema<string, number> {
  const form = `expected a whole number from 1 to ${most}`;
  return v.pipe(
    v.string(form),
    v.regex(/^[1-9][0-9]{0,4}$/, form),
    v.transform(Number),
    v.maxValue(most, form),
  );
}

const sortForm = `expected one of ${USAGE_ORDERS.join(", ")}`;

/** Parameters that select rows. */
const selection = {
  from: v.optional(dayOrTime),
  to: v.optional(dayOrTime),
  last: v.optional(last),
  key: v.optional(v.string()),
  team: v.optional(v.string()),
  provider: v.optional(v.string()),
  model: v.optional(v.string()),
  operation: v.optional(v.string()),
  payer: v.optional(v.picklist(PAYERS, `expected ${PAYERS.join(" or ")}`)),
  ...v.entriesFromList(DIMENSIONS, v.optional(v.string())),
};

const eitherForm = "expected either this or from";

/** The meaning of a payer. */
const PAYER_MEANS = "gateway: the gateway held the provider key; caller: it was the caller's own";

/** Schema of a usage query. Its input is text of a query string or of the command line. */
export const UsageQuerySchema: v.GenericSchema<unknown, UsageQuery> = v.pipe(
  v.strictObject({
    by: v.optional(by, "key"),
    ...selection,
    after: v.optional(v.string()),
    sort: v.optional(v.picklist(USAGE_ORDERS, sortForm), "tokens"),
    top: v.optional(wholeUpTo(MAX_TOP)),
    limit: v.optional(wholeUpTo(MAX_ROWS), String(DEFAULT_ROWS)),
  }),
  v.forward(v.check(({ from, last }) => from === undefined || last === undefined, eitherForm), [
    "last",
  ]),
  v.transform(({ last, ...query }) => ({ ...query, lastMs: last })),
);

const stepForm = "expected hour or day";
const formatForm = "expected jsonl or csv";

/** Schema of a query for an export. Its input is text, as above. */
export const UsageExportSchema: v.GenericSchema<
  unknown,
  UsageExportQuery & { readonly format: ExportFormat }
> = v.pipe(
  v.strictObject({
    by: v.optional(v.picklist(["hour", "day"], stepForm)),
    ...selection,
    format: v.optional(v.picklist(["jsonl", "csv"], formatForm), "jsonl"),
  }),
  v.forward(v.check(({ from, last }) => from === undefined || last === undefined, eitherForm), [
    "last",
  ]),
  v.transform(({ last, ...query }) => ({ ...query, lastMs: last })),
);

const optionalCount = (about: string) => optional(count(about));

const COUNTS: EntriesOf<UsageCounts> = {
  requests: count("Calls that were sent to a provider, of operations that cost tokens"),
  partial: count("Answers that broke off, with the tokens that were stated until then"),
  unmetered: count("Calls without stated or estimated tokens. They can have a cost"),
  failed: count("Calls that the provider refused, or that never reached it"),
  input: count("Tokens of prompts"),
  cached: count("Input tokens from the provider's cache"),
  output: count("Tokens of answers"),
  reasoning: count("Output tokens that the caller does not see"),
  other: count("Tokens that were stated in sum only"),
  estimated: count("Those whose tokens the gateway estimated, because the provider stated none"),
  estimatedInput: count("Tokens of their prompts, as estimated; part of input"),
  estimatedOutput: count("Tokens of their answers, as estimated; part of output"),
};

const CLASSES: { readonly [Name in ClassCount]: ReturnType<typeof optionalCount> } = {
  written: optionalCount("Tokens of input that were written to the provider's cache"),
  writtenLong: optionalCount("Those of them that were written for the cache's longer time"),
  webSearches: optionalCount("Calls of web search"),
  statedCost: optionalCount("Cost that the provider stated, in 10^-10 of the currency"),
  inputImage: optionalCount("Tokens of images in the input"),
  inputAudio: optionalCount("Tokens of audio in the input"),
  inputVideo: optionalCount("Tokens of video in the input"),
  cachedAudio: optionalCount("Tokens of audio from the provider's cache"),
  cachedImage: optionalCount("Tokens of images from the provider's cache"),
  outputImage: optionalCount("Tokens of images in the output"),
  outputAudio: optionalCount("Tokens of audio in the output"),
  outputVideo: optionalCount("Tokens of video in the output"),
  citation: optionalCount("Tokens of citations in the output"),
  fileSearches: optionalCount("Calls of file search"),
  codeSessions: optionalCount("Sessions of code execution"),
  searchUnits: optionalCount("Units of search"),
  pages: optionalCount("Pages"),
  images: optionalCount("Images"),
  characters: optionalCount("Characters of text"),
  audioMs: optionalCount("Milliseconds of audio"),
  videoMs: optionalCount("Milliseconds of video"),
  sessionMs: optionalCount("Milliseconds of a session"),
};

const money = (about: string) => orNull(v.pipe(v.string(), v.regex(/^[0-9]+(\.[0-9]+)?$/)), about);

const classSum = objectOf<CountedClass>({
  amount: count("Tokens, calls, characters or milliseconds; of stated, 10^-10 of the currency"),
  cost: money("Exact cost of the amount that has a price; null if none has one"),
});

const CLASS_SUMS: EntriesOf<ClassSums> = {
  ...CLASSES,
  amount: optional(count("The amount of the class, in a report by class")),
  costIsPartial: flag("True if something has no price: the cost is a lower bound"),
  unpricedClasses: optional(
    v.pipe(
      objectOf<ClassAmounts>(v.entriesFromList(BILLING_CLASSES, optional(count()))),
      v.description("Amounts that have no price, by billing class"),
    ),
  ),
  classes: record(classSum, "By billing class; stated is the cost that providers stated"),
};

const sums: EntriesOf<UsageSums> = {
  ...COUNTS,
  tokens: count("Input, output and other"),
  unpriced: count("Tokens that have no price"),
  cost: money("Exact cost of the other tokens; null if none has a price"),
  estimatedCost: money(
    "The part of the cost which is for tokens that the gateway estimated",
  ),
  ...CLASS_SUMS,
};

const partNames = v.entriesFromList(USAGE_DIMENSIONS, optional(text()));

/** Schema of a report. */
export const UsageReportSchema: v.GenericSchema<UsageReport> = closed(objectOf<UsageReport>({
  from: time("The whole hours or days that it is about, UTC"),
  to: time("The end, which is no part of it"),
  by: list(oneOf(USAGE_DIMENSIONS)),
  counted: list(oneOf(DIMENSIONS), "Dimensions of attribution that usage is counted by"),
  currency: text(),
  backend: oneOf(
    ["memory", "file", "redis"],
    "Where it is kept; memory ends with the process",
  ),
  rows: list(
    closed(objectOf<UsageLine>({ ...partNames, name: optional(text("Name of the key")), ...sums })),
  ),
  left: count("Rows after these"),
  next: orNull(text(), "The value of after for the next page"),
  totals: closed(objectOf<UsageSums>(sums)),
}));

/** Schema of a line of an export. */
export const UsageRowSchema: v.GenericSchema<UsageExportRow> = closed(objectOf<UsageExportRow>({
  step: oneOf(["hour", "day"]),
  from: time("The start of the hour or day"),
  key: text(),
  provider: text(),
  model: text(),
  operation: text(),
  team: text(),
  ...sums,
  currency: text(),
  tariff: text("The tariff, such as priority,us,272k; empty for the standard one"),
  payer: oneOf(PAYERS, PAYER_MEANS),
  ...v.entriesFromList(DIMENSIONS, optional(text())),
}));

/** Meanings of the parameters that select rows. */
const SELECTION = {
  last: "How far back, such as 24h; 7d if left out, and all days that are kept if by has month",
  from: "The first day, such as 2027-01-31, or time, in UTC; instead of last",
  to: "The day or time at which it ends, which is no part of it; now if left out",
  key: "Only the usage of the key with this id",
  team: "Only the usage of keys that are in this team now, and of identity tokens that named it; " +
    "(none) for keys without, (removed) for keys that are gone",
  provider: "Only the usage of this provider",
  model: "Only the usage of this model",
  operation: "Only the usage of this operation, such as embeddings",
  payer: `Only the usage of calls with a provider key of this owner. ${PAYER_MEANS}`,
  ...ATTRIBUTION_MEANS,
};

/** The routes of usage. */
export const USAGE_ROUTES: readonly AdminRoute<UsageReports>[] = [
  route({
    method: "get",
    path: "/v1/usage",
    operationId: "showUsage",
    summary: "Show usage, and its cost by the prices of the configuration",
    query: {
      schema: UsageQuerySchema,
      means: {
        by: `One or several of ${
          USAGE_DIMENSIONS.join(", ")
        }, with commas between them; key if left out`,
        ...SELECTION,
        sort:
          `Order of rows by this sum, the largest first: ${
            USAGE_ORDERS.join(", ")
          }; tokens if left out. ` +
          "Times are first, in their order",
        top: "Number of groups with their own rows, the largest over all times, " +
          `up to ${MAX_TOP}; the others are added up as (other)`,
        limit: `How many rows at most, up to ${MAX_ROWS}; ${DEFAULT_ROWS} if left out`,
        after: "The next of the page before, with the rest of the query as it was",
      },
    },
    status: 200,
    response: { name: "UsageReport", schema: UsageReportSchema },
    run: async (reports, { query }) => {
      const report = await reports.report(query);
      return await TextParts.begin("application/json", toReportText(report, reports.rest));
    },
  }),
  route({
    method: "get",
    path: "/v1/usage/export",
    operationId: "exportUsage",
    summary: "Export usage row by row: each hour or day of a key, provider, model and operation",
    query: {
      schema: UsageExportSchema,
      means: {
        by: "hour or day; if left out, hours as far as they are kept, else days",
        ...SELECTION,
        format: "jsonl, a line of JSON for each row, or csv; jsonl if left out",
      },
    },
    status: 200,
    response: { name: "UsageRow", schema: UsageRowSchema },
    types: Object.values(EXPORT_TYPES),
    run: async (reports, { query }) => {
      const { format, ...rest } = query;
      return await TextParts.begin(
        EXPORT_TYPES[format],
        toExportText(format, reports.export(rest)),
      );
    },
  }),
];
