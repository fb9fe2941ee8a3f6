/**
 * OpenAI's answers of `/v1/organization/costs` and `/v1/organization/usage/…`: a bucket for each
 * day, with results by model and line item.
 *
 * @module
 */
import type { ClassAmounts } from "../../exchange/billing.ts";
import { isObject } from "../prices/findings.ts";
import {
  assertCurrency,
  type CostKind,
  countOf,
  type Entry,
  type ProviderCost,
  type ProviderExport,
  type ProviderUsage,
  readMoney,
  textsOf,
  withoutDate,
} from "./provider_export.ts";

/** Kinds by the text of a line item, the first match first. */
const KINDS: readonly [kind: CostKind, pattern: RegExp][] = [
  ["tax", /\b(?:tax|vat|gst)\b/i],
  ["credits", /\b(?:credit|discount|refund)s?\b/i],
  ["storage", /\b(?:storage|vector stores?)\b/i],
  ["containers", /\b(?:code interpreter|containers?)\b/i],
  ["tools", /\b(?:web search|file search|tool calls?)\b/i],
];
/** A line item of a model, such as `gpt-6.2-sol-2026-10-01, cached input`. */
const OF_MODEL = /^([\w.:-]+), .*\b(?:input|output|cached|cache|tokens?|audio|image|text)\b/i;

/** The results that count searches of the web. */
const WEB_SEARCHES = "organization.usage.web_searches.result";

/** Finds the kind of a line item, and its model if it is of one. */
function readLine(line: string): { readonly kind: CostKind; readonly name: string } {
  const model = OF_MODEL.exec(line)?.[1];
  if (model !== undefined) return { kind: "model", name: withoutDate(model) };
  const [kind] = KINDS.find(([, pattern]) => pattern.test(line)) ?? ["other" as const];
  return { kind, name: line };
}

function toClasses(result: Entry): ClassAmounts {
  const cacheRead = countOf(result.input_cached_tokens);
  const long = countOf(result.input_cache_write_12h_tokens);
  const short = typeof result.input_cache_write_30m_tokens === "number"
    ? result.input_cache_write_30m_tokens
    : Math.max(0, countOf(result.input_cache_write_tokens) - long);
  const fresh = typeof result.input_uncached_tokens === "number"
    ? result.input_uncached_tokens
    : countOf(result.input_tokens) - cacheRead - short - long;
  return {
    input: fresh,
    cacheRead,
    cacheWrite: short,
    cacheWriteLong: long,
    output: countOf(result.output_tokens),
    // Results of other tools, such as searches in files, have the same field.
    webSearches: result.object === WEB_SEARCHES ? countOf(result.num_requests) : 0,
  };
}

function toCost(day: string, result: Entry, currency: string): ProviderCost {
  const { amount, line_item: line, project_id: project, api_key_id: key } = result;
  const { value = 0, currency: stated = currency } = isObject(amount) ? amount : {};
  assertCurrency(stated, currency);
  const money = readMoney(value);
  const read = readLine(typeof line === "string" ? line : "costs without a line item");
  const kind = money < 0n ? "credits" : read.kind;
  return { day, kind, name: read.name, owners: textsOf(key, project), list: money, amount: money };
}

/** Reads the buckets of all endpoints. */
export function readOpenaiExport(buckets: readonly Entry[], currency: string): ProviderExport {
  const usage: ProviderUsage[] = [];
  const costs: ProviderCost[] = [];
  for (const { start_time: start, results } of buckets) {
    const day = new Date(countOf(start) * 1000).toISOString().slice(0, 10);
    for (const result of Array.isArray(results) ? results.filter(isObject) : []) {
      const { object, model, project_id: project, api_key_id: key } = result;
      if (object === "organization.costs.result") costs.push(toCost(day, result, currency));
      else {
        usage.push({
          day,
          model: withoutDate(typeof model === "string" ? model : "(without a model)"),
          owners: textsOf(key, project),
          classes: toClasses(result),
          isFree: false,
        });
      }
    }
  }
  return { usage, costs };
}
