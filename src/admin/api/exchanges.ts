/**
 * The route of settled exchanges in the admin API, and the form of their filters, which
 * `sallyport log` accepts too.
 *
 * @module
 */
import * as v from "valibot";
import { DIMENSIONS } from "../../config/dimensions.ts";
import {
  END_KINDS,
  type ExchangeFilter,
  readDuration,
} from "../../observe/live/exchange_filter.ts";
import type { FleetPage } from "../../observe/fleet/fleet.ts";
import type {
  ExchangeCursor,
  ExchangePage,
  ExchangeQuery,
} from "../../observe/live/exchange_page.ts";
import { KEPT_EXCHANGES, type LiveExchange } from "../../observe/live/live_report.ts";
import { ATTRIBUTION_MEANS } from "./attribution_means.ts";
import { gateway } from "./fleet.ts";
import { listLimit, listLimitMeans } from "./list_limit.ts";
import { exchangeSchema } from "./live_schemas.ts";
import { type AdminRoute, route } from "./route.ts";
import { list, objectOf, optional, orNull, text } from "./schema.ts";

const MAX_LISTED = 500;
/** The longest search text: a model has at most 256 characters. */
const MAX_TEXT = 256;

const shortText = v.optional(
  v.pipe(v.string(), v.maxLength(MAX_TEXT, `expected ${MAX_TEXT} characters at most`)),
);

const durationForm = 'expected a duration such as "500ms" or "2s", or milliseconds';
const duration = v.optional(v.pipe(
  v.string(durationForm),
  v.transform((text) => readDuration(text) ?? NaN),
  v.number(durationForm),
));

const FILTER_ENTRIES = {
  search: shortText,
  id: shortText,
  key: shortText,
  team: shortText,
  ...v.entriesFromList(DIMENSIONS, shortText),
  provider: shortText,
  model: shortText,
  operation: shortText,
  run: shortText,
  outcome: v.optional(v.picklist(END_KINDS, `expected one of ${END_KINDS.join(", ")}`)),
  code: shortText,
  status: v.optional(
    v.pipe(
      v.string(),
      v.regex(/^[1-5][0-9x]{0,2}$/, "expected a status such as 429, or a class such as 5xx"),
    ),
  ),
  stream: v.optional(v.picklist(["true", "false"], 'expected "true" or "false"')),
  minDuration: duration,
  minFirstToken: duration,
} as const;

const PartsSchema = v.strictObject(FILTER_ENTRIES);

function toFilter(
  { stream, minDuration, minFirstToken, ...filter }: v.InferOutput<typeof PartsSchema>,
): ExchangeFilter {
  return {
    ...filter,
    stream: stream === undefined ? undefined : stream === "true",
    minDurationMs: minDuration,
    minFirstTokenMs: minFirstToken,
  };
}

/** Schema of a filter. Its input is text of a query string or of the command line. */
export const FilterSchema: v.GenericSchema<unknown, ExchangeFilter> = v.pipe(
  PartsSchema,
  v.transform(toFilter),
);

const afterForm = "expected the next of the page before";

/** Reads a cursor: the position of an exchange. */
function toCursor(text: string): ExchangeCursor | undefined {
  const [, time, id] = /^([0-9]+(?:\.[0-9]+)?)_(.+)$/.exec(text) ?? [];
  return time === undefined || id === undefined ? undefined : { settledAt: Number(time), id };
}

const QuerySchema = v.strictObject({
  ...FILTER_ENTRIES,
  gateway,
  limit: listLimit(MAX_LISTED),
  after: v.optional(v.pipe(
    v.string(),
    v.transform(toCursor),
    v.custom<ExchangeCursor>((cursor) => cursor !== undefined, afterForm),
  )),
});

/** A page of exchanges. */
export interface ExchangeList {
  readonly exchanges: readonly LiveExchange[];
  /** Cursor of the next page; `null` after the last one. */
  readonly next: string | null;
  /** Names of the gateways that did not answer. */
  readonly missing?: readonly string[] | undefined;
}

/**
 * Finds a page of settled exchanges, the newest first.
 *
 * @param gateway Id or name of a gateway, or `all`; this one if left out
 */
export type FindExchanges = (
  query: ExchangeQuery,
  gateway?: string,
) => Promise<ExchangePage & Partial<FleetPage>>;

/** The routes of exchanges. */
export const EXCHANGE_ROUTES: readonly AdminRoute<FindExchanges>[] = [route({
  method: "get",
  path: "/v1/exchanges",
  operationId: "listExchanges",
  summary: `List the last ${KEPT_EXCHANGES} exchanges of each process, the newest first. ` +
    "A page can have fewer than requested, or none, even if next names another: " +
    "the work of each is bounded",
  query: {
    schema: QuerySchema,
    means: {
      search: "Those with this text in one of their names: " +
        "id, key, team, provider, model, operation, run, outcome, code, status, " +
        "or in a value of attribution",
      id: "The one with this x-request-id",
      key: "Only of keys with this text in their id or name",
      team: "Only of this team",
      ...ATTRIBUTION_MEANS,
      provider: "Only of this provider",
      model: "Those with this text in their model",
      operation: "Those with this text in their operation, such as embeddings",
      run: "Only of the run with this id",
      outcome: "ok; errors, for the operator to act on; refused, by the gateway or with a 4xx; " +
        "cancelled by the caller",
      code: "Those with this text in their code or cause, such as timeout",
      status: "Only with this status, such as 429, or of this class, such as 5xx",
      stream: "true for streams, false for the others",
      minDuration: "Only of at least this duration, such as 2s, or milliseconds",
      minFirstToken: "Only with at least this time until the first token",
      gateway: "Only of the gateway with this id or name, or of all; of this one if left out",
      limit: listLimitMeans(MAX_LISTED),
      after: "The next of the page before, with the rest of the query as it was",
    },
  },
  status: 200,
  response: {
    name: "ExchangeList",
    schema: objectOf<ExchangeList>({
      exchanges: list(exchangeSchema, "The newest first"),
      next: orNull(text(), "The value of after for the next page; null after the last"),
      missing: optional(list(text(), "With gateway: the names of gateways that did not answer")),
    }),
  },
  async run(find, { query }) {
    const { limit, after, gateway, ...parts } = query;
    const found = await find({ filter: toFilter(parts), limit, before: after }, gateway);
    const { exchanges, reached, missing } = found;
    return {
      exchanges,
      next: reached === undefined ? null : `${reached.settledAt}_${reached.id}`,
      missing,
    };
  },
})];
