/**
 * OpenAI's answers of `/v1/organization/costs` and `/v1/organization/usage/…`: a bucket for each
 * day, with results by model and line item.
 *
 * @module
 */
import type { ClassAmounts } from "../../exchange/billing.ts";
import { isObject } from "../prices/findings.ts";
import { TOOLS } from "./gateway_usage.ts";
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

/** Finds the kind of a line item, and its model if it is of one. */
function readLine(line: string): { readonly kind: CostKind; readonly name: string } {
  const model = OF_MODEL.exec(line)?.[1];
  if (model !== undefined) return { kind: "model", name: withoutDate(model) };
  const [kind] = KINDS.find(([, pattern]) => pattern.test(line)) ?? ["other" as const];
  return { kind, name: line };
}

/** Counts of tools: the object of a result, its count, and the class. */
const COUNTS_OF_TOOLS = [
  ["organization.usage.file_searches.result", "num_requests", "fileSearches"],
  ["organization.usage.code_interpreter_sessions.result", "num_sessions", "codeSessions"],
  ["organization.usage.web_searches.result", "num_requests", "webSearches"],
] as const;

/** Returns the count of a tool; `undefined` for the usage of a model. */
function toToolCount({ object, ...result }: Entry): ClassAmounts | undefined {
  const found = COUNTS_OF_TOOLS.find(([name]) => name === object);
  return found && { [found[2]]: countOf(result[found[1]]) };
}

/** Returns the name of a result: of its model, or of tools that are counted for all models. */
function nameOf({ model }: Entry, classes: ClassAmounts): string {
  if (typeof model === "string") return withoutDate(model);
  const tools = TOOLS.find(({ counted }) => counted.some((name) => name in classes));
  return tools?.name ?? "(without a model)";
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
      const { object, project_id: project, api_key_id: key } = result;
      if (object === "organization.costs.result") costs.push(toCost(day, result, currency));
      else {
        const classes = toToolCount(result) ?? toClasses(result);
        usage.push({
          day,
          model: nameOf(result, classes),
          owners: textsOf(key, project),
          classes,
          isFree: false,
        });
      }
    }
  }
  return { usage, costs };
}
