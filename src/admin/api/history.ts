/**
 * The route of the history at the admin API, with the schemas of its query and its answer.
 *
 * @module
 */
import * as v from "valibot";
import type { EntriesOf } from "../../config/schema.ts";
import { parseDuration } from "../../config/units.ts";
import type {
  HistoryEnd,
  HistoryPoint,
  HistoryQuery,
  HistoryReport,
  HistoryReports,
  HistoryShare,
  HistorySums,
} from "../../usage/history/report.ts";
import { type AdminRoute, route } from "./route.ts";
import { amount, count, list, objectOf, oneOf, orNull, record, text, time } from "./schema.ts";

const stepForm = 'expected a duration such as "5m"';
const form = 'expected a duration from "1m" to "30d", such as "24h"';

/** Schema of a query. Its input is text of a query string or of the command line. */
export const HistoryQuerySchema: v.GenericSchema<unknown, HistoryQuery> = v.pipe(
  v.strictObject({
    key: v.optional(v.string()),
    team: v.optional(v.string()),
    provider: v.optional(v.string()),
    last: v.optional(
      v.pipe(
        v.string(form),
        v.transform(parseDuration),
        v.number(form),
        v.minValue(60_000, form),
      ),
      "24h",
    ),
    step: v.optional(
      v.pipe(v.string(stepForm), v.transform(parseDuration), v.number(stepForm)),
    ),
  }),
  v.transform(({ last, step, ...query }) => ({ ...query, lastMs: last, stepMs: step })),
);

const sumEntries: EntriesOf<HistorySums> = {
  calls: count(),
  errors: count("Calls whose end concerns the operator"),
  refused: count("Calls whose end concerns the caller, such as a refusal or a 4xx"),
  tokens: amount(),
  outputTokens: amount(),
  cost: amount("By the prices at the time of the calls, in the currency"),
  p50: orNull(v.number(), "Of the durations of forwarded calls, estimated. Milliseconds"),
  p95: orNull(v.number()),
  firstByte: orNull(v.number(), "Average time until the answer began. Milliseconds"),
};

const shareSchema = objectOf<HistoryShare>({
  id: text("Id of the key, or name; empty for calls without one"),
  ...sumEntries,
});

/** Schema of a report. */
export const HistoryReportSchema: v.GenericSchema<HistoryReport> = objectOf<HistoryReport>({
  from: time(),
  to: time(),
  step: count("Length of each step, seconds"),
  currency: text(),
  totals: objectOf<HistorySums>(sumEntries),
  points: list(
    objectOf<HistoryPoint>({
      at: time("Start of the step"),
      ...sumEntries,
      ends: record(count(), "Calls by their end, without those that are ok"),
    }),
    "The oldest first",
  ),
  ends: list(
    objectOf<HistoryEnd>({
      end: text("An error code, upstream_ and a status, or an outcome"),
      concern: oneOf(["nobody", "caller", "operator"]),
      calls: count(),
      since: time("Start of the first minute or hour with such a call, in this time"),
      last: time("Start of the last minute or hour with such a call"),
    }),
    "The most frequent first",
  ),
  teams: list(shareSchema, "The teams with the most calls. Teams at the time of the call"),
  keys: list(shareSchema, "The keys with the most calls"),
  providers: list(shareSchema, "The providers with the most calls"),
});

/** The route of the history. */
export const HISTORY_ROUTES: readonly AdminRoute<HistoryReports>[] = [
  route({
    method: "get",
    path: "/v1/history",
    operationId: "showHistory",
    summary: "Calls, ends by cause, tokens, cost and latency over time, of the last 30 days: " +
      "by the minute for a day, then by the hour",
    query: {
      schema: HistoryQuerySchema,
      means: {
        key: "Only of the key with this id",
        team: "Only of this team",
        provider: "Only of this provider",
        last: "The time that ends now, such as 1h or 30d; 24h if left out",
        step: "The length of a point, such as 5m; if left out, such that there are at most 60",
      },
    },
    status: 200,
    response: { name: "History", schema: HistoryReportSchema },
    run: (history, { query }) => history.report(query),
  }),
];
