/**
 * The routes of usage at the admin API, with the schemas of their queries and their answers.
 *
 * @module
 */
import * as v from "valibot";
import { parseDuration } from "../../config/units.ts";
import { USAGE_COUNTS } from "../../usage/counts.ts";
import {
  isTimePart,
  TIME_PARTS,
  USAGE_ORDERS,
  USAGE_PARTS,
  type UsageExportQuery,
  type UsagePart,
  type UsageQuery,
} from "../../usage/query.ts";
import type { UsageReports } from "../../usage/report.ts";
import {
  EXPORT_TYPES,
  type ExportFormat,
  toExportText,
  toReportText,
} from "../../usage/usage_text.ts";
import { TextParts } from "./answers.ts";
import type { AdminRoute } from "./route.ts";

/** Limit of the rows of an answer. */
const MAX_ROWS = 10_000;
const DEFAULT_ROWS = 1000;
const DEFAULT_LAST = "7d";

/** Limit of the groups that have rows of their own where the others are added up. */
const MAX_TOP = 100;

const byForm = `expected one or several of ${
  USAGE_PARTS.join(", ")
}, with commas between them; only one of ${TIME_PARTS.join(", ")}`;
const by = v.pipe(
  v.string(byForm),
  v.transform((text) => text.split(",").map((part) => part.trim())),
  v.custom<UsagePart[]>(
    (parts) => Array.isArray(parts) && parts.every((part) => USAGE_PARTS.includes(part)),
    byForm,
  ),
  v.check((parts) => new Set(parts).size === parts.length, "expected each only once"),
  v.check((parts) => parts.filter(isTimePart).length <= 1, byForm),
);

const timeForm = "expected a day such as 2027-01-31 or a time such as 2027-01-31T00:00:00Z";
const time = v.pipe(
  v.string(timeForm),
  v.regex(
    /^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?Z)?$/,
    timeForm,
  ),
  v.transform((text) => ({ text, ms: Date.parse(text) })),
  // Calendars have no 30th of February, `Date.parse` has.
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
  from: v.optional(time),
  to: v.optional(time),
  last: v.optional(last),
  key: v.optional(v.string()),
  team: v.optional(v.string()),
  provider: v.optional(v.string()),
  model: v.optional(v.string()),
  operation: v.optional(v.string()),
};

const eitherForm = "expected either this or from";

/** Schema of a usage query. Its input is text, of a query string or of the command line. */
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
  v.transform(({ last, ...query }) => ({ ...query, lastMs: last ?? parseDuration(DEFAULT_LAST) })),
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
  v.transform(({ last, ...query }) => ({ ...query, lastMs: last ?? parseDuration(DEFAULT_LAST) })),
);

const text = { type: "string" };
const dateTime = { type: "string", format: "date-time" };
const whole = { type: "integer", minimum: 0 };

const MEANINGS: Readonly<Record<typeof USAGE_COUNTS[number], string>> = {
  requests: "Calls that were sent to a provider, of operations that cost tokens",
  partial: "Those that broke off: their tokens are what was stated until then",
  unmetered: "Those whose tokens nobody stated or estimated; they may have cost something",
  failed: "Those that the provider refused, or that never reached it",
  input: "Tokens of prompts",
  cached: "Those of them that came from the provider's cache",
  output: "Tokens of answers",
  reasoning: "Those of them that the caller does not see",
  other: "Tokens that were stated in sum only",
  estimated: "Those whose tokens the gateway estimated, because the provider stated none",
  estimatedInput: "Tokens of their prompts, as estimated; part of input",
  estimatedOutput: "Tokens of their answers, as estimated; part of output",
};

const sums = {
  ...Object.fromEntries(
    USAGE_COUNTS.map((name) => [name, { ...whole, description: MEANINGS[name] }]),
  ),
  tokens: { ...whole, description: "Input, output and other" },
  unpriced: { ...whole, description: "Tokens that have no price" },
  cost: {
    type: ["string", "null"],
    pattern: "^[0-9]+(\\.[0-9]+)?$",
    description: "What the other tokens cost, exactly; null where none has a price",
  },
  estimatedCost: {
    type: ["string", "null"],
    pattern: "^[0-9]+(\\.[0-9]+)?$",
    description: "The part of the cost which is for tokens that the gateway estimated",
  },
};

/** JSON Schema of the answer, for the description. */
export const usageSchema: Readonly<Record<string, unknown>> = {
  type: "object",
  required: ["from", "to", "by", "currency", "backend", "rows", "left", "next", "totals"],
  additionalProperties: false,
  properties: {
    from: { ...dateTime, description: "The whole hours or days that it is about, UTC" },
    to: { ...dateTime, description: "The end, which is no part of it" },
    by: { type: "array", items: { enum: USAGE_PARTS } },
    currency: text,
    backend: {
      enum: ["memory", "file", "redis"],
      description: "Where it is kept; memory ends with the process",
    },
    rows: {
      type: "array",
      items: {
        type: "object",
        required: Object.keys(sums),
        additionalProperties: false,
        properties: {
          ...Object.fromEntries(USAGE_PARTS.map((part) => [part, text])),
          name: { ...text, description: "That of the key" },
          ...sums,
        },
      },
    },
    left: { ...whole, description: "Rows after these" },
    next: { type: ["string", "null"], description: "What to give as after for the next page" },
    totals: {
      type: "object",
      required: Object.keys(sums),
      additionalProperties: false,
      properties: sums,
    },
  },
};

const rowNames = ["key", "provider", "model", "operation", "team"];

/** JSON Schema of a line of an export, for the description. */
export const usageRowSchema: Readonly<Record<string, unknown>> = {
  type: "object",
  required: ["step", "from", ...rowNames, ...Object.keys(sums), "currency"],
  additionalProperties: false,
  properties: {
    step: { enum: ["hour", "day"] },
    from: { ...dateTime, description: "The start of the hour or day" },
    ...Object.fromEntries(rowNames.map((name) => [name, text])),
    ...sums,
    currency: text,
  },
};

/** Meanings of the parameters that select rows. */
const SELECTION = {
  last: `How far back, such as 24h; ${DEFAULT_LAST} if left out`,
  from: "The first day, such as 2027-01-31, or time, in UTC; instead of last",
  to: "The day or time at which it ends, which is no part of it; now if left out",
  key: "Only the usage of the key with this id",
  team: "Only the usage of keys that are in this team now, and of identity tokens that named it; " +
    "(none) for keys without, (removed) for keys that are gone",
  provider: "Only the usage of this provider",
  model: "Only the usage of this model",
  operation: "Only the usage of this operation, such as embeddings",
};

/** The routes of usage. */
export const USAGE_ROUTES: readonly AdminRoute<UsageReports>[] = [{
  method: "get",
  path: "/v1/usage",
  operationId: "showUsage",
  summary: "Show what was used, and what it costs by the prices of the configuration",
  query: {
    schema: UsageQuerySchema,
    means: {
      by: `One or several of ${USAGE_PARTS.join(", ")}, with commas between them; key if left out`,
      ...SELECTION,
      sort:
        `The sum by which rows are ordered, the largest first: ${
          USAGE_ORDERS.join(", ")
        }; tokens if left out. ` +
        "Times come first, in their order",
      top: "Only so many groups have rows of their own, the largest over all times, " +
        `up to ${MAX_TOP}; the others are added up as (other)`,
      limit: `How many rows at most, up to ${MAX_ROWS}; ${DEFAULT_ROWS} if left out`,
      after: "The next of the page before, with the rest of the query as it was",
    },
  },
  status: 200,
  answers: "UsageReport",
  run: async (reports, { query }) => {
    const report = await reports.report(query as UsageQuery);
    return await TextParts.begin("application/json", toReportText(report, reports.rest));
  },
}, {
  method: "get",
  path: "/v1/usage/export",
  operationId: "exportUsage",
  summary:
    "Export what was used row by row: each hour or day of a key, provider, model and operation",
  query: {
    schema: UsageExportSchema,
    means: {
      by: "hour or day; if left out, hours as far as they are kept, else days",
      ...SELECTION,
      format: "jsonl, a line of JSON for each row, or csv; jsonl if left out",
    },
  },
  status: 200,
  answers: "UsageRow",
  types: Object.values(EXPORT_TYPES),
  run: async (reports, { query }) => {
    const { format, ...rest } = query as v.InferOutput<typeof UsageExportSchema>;
    return await TextParts.begin(EXPORT_TYPES[format], toExportText(format, reports.export(rest)));
  },
}];
