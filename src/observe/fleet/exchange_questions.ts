/**
 * Questions for settled exchanges from one gateway to another, and their answers. Both pass through
 * Redis, where anyone with access can write. Values of any other form are ignored.
 *
 * @module
 */
import * as v from "valibot";
import { END_KINDS } from "../live/exchange_filter.ts";
import type { ExchangePage, ExchangeQuery } from "../live/exchange_page.ts";
import type { LiveExchange } from "../live/live_report.ts";
import { isObject, list, readExchange } from "./foreign_part.ts";

/** A question. */
export interface ExchangeQuestion {
  /** Id that the answer is stored under. */
  readonly id: string;
  readonly query: ExchangeQuery;
}

/** The longest question: a search for a name that a thousand keys share. Characters. */
const MAX_QUESTION = 64_000;
/** Maximum number of exchanges in an answer. */
const MAX_EXCHANGES = 500;

const text = v.optional(v.pipe(v.string(), v.maxLength(256)));
const ms = v.optional(v.pipe(v.number(), v.minValue(0)));
const ids = v.optional(v.array(v.pipe(v.string(), v.maxLength(256))));
const place = v.strictObject({
  settledAt: v.pipe(v.number(), v.finite()),
  id: v.pipe(v.string(), v.maxLength(256)),
});

/**
 * Ids of keys with a matching name, from gateways of an earlier version. They are not needed: each
 * exchange has the name of its key.
 */
const EARLIER = ["keyIds", "searchKeyIds"] as const;

/**
 * If an unknown part of a filter were ignored, wrong exchanges would match. Such a question is not
 * answered.
 */
const QuestionSchema: v.GenericSchema<unknown, ExchangeQuestion> = v.strictObject({
  id: v.pipe(v.string(), v.regex(/^[0-9a-f-]{1,40}$/)),
  query: v.strictObject({
    filter: v.pipe(
      v.strictObject({
        ...v.entriesFromList([
          "search",
          "id",
          "key",
          "team",
          "provider",
          "model",
          "operation",
          "code",
          "status",
        ], text),
        ...v.entriesFromList(EARLIER, ids),
        ...v.entriesFromList(["minDurationMs", "minFirstTokenMs"], ms),
        outcome: v.optional(v.picklist(END_KINDS)),
        stream: v.optional(v.boolean()),
      }),
      v.transform(({ keyIds: _, searchKeyIds: __, ...filter }) => filter),
    ),
    limit: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_EXCHANGES)),
    before: v.optional(place),
  }),
});

/** Reads a question. Returns `undefined` for an invalid one, or one of a later version. */
export function readQuestion(json: string): ExchangeQuestion | undefined {
  if (json.length > MAX_QUESTION) return undefined;
  try {
    const read = v.safeParse(QuestionSchema, JSON.parse(json));
    return read.success ? read.output : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads an answer.
 *
 * @returns The page, each of its exchanges with the gateway's name; `undefined` for an invalid
 * answer
 */
export function readAnswer(value: unknown, gateway: string): ExchangePage | undefined {
  if (!isObject(value)) return undefined;
  const { exchanges, reached }: { readonly [Name in keyof ExchangePage]?: unknown } = value;
  if (!Array.isArray(exchanges)) return undefined;
  const found = list(exchanges).slice(0, MAX_EXCHANGES).flatMap((each): LiveExchange[] => {
    const exchange = readExchange(each);
    return exchange === undefined ? [] : [{ ...exchange, gateway }];
  });
  return { exchanges: found, ...(v.is(place, reached) && { reached }) };
}
