/**
 * Anthropic's answers of `/v1/organizations/analytics/{cost,usage}`, and of `cost_report` and
 * `usage_report/messages` before them. Amounts are in cents.
 *
 * @module
 */
import { isDate } from "../../config/calendar.ts";
import type { BillingClass } from "../../exchange/billing.ts";
import { isObject } from "../prices/findings.ts";
import {
  assertCurrency,
  type CostKind,
  countOf,
  type Entry,
  mistakeAt,
  type PlacedEntry,
  type Position,
  type ProviderCost,
  type ProviderExport,
  type ProviderUsage,
  readMoney,
  textsOf,
  withoutDate,
} from "./provider_export.ts";

/** Kinds by the type of a cost. */
const KINDS: ReadonlyMap<unknown, CostKind> = new Map([
  ["tokens", "model"],
  ["web_search", "tools"],
  ["code_execution", "containers"],
  ["session_usage", "containers"],
]);
/** Classes by the type of tokens. */
const CLASSES: ReadonlyMap<unknown, BillingClass> = new Map([
  ["uncached_input_tokens", "input"],
  ["cache_read_input_tokens", "cacheRead"],
  ["cache_creation.ephemeral_5m_input_tokens", "cacheWrite"],
  ["cache_creation.ephemeral_1h_input_tokens", "cacheWriteLong"],
  ["output_tokens", "output"],
]);

const CENTS = 100n;

/** Returns the dimensions of an item: newer answers have them in a group. */
const groupOf = (item: Entry): Entry => isObject(item.group) ? item.group : item;
const ownersOf = ({ api_key_id: key, workspace_id: workspace }: Entry): string[] =>
  textsOf(key, workspace);

function toUsage(day: string, item: Entry): ProviderUsage {
  const group = groupOf(item);
  const metrics = isObject(item.usage) ? item.usage : item;
  const created = isObject(metrics.cache_creation) ? metrics.cache_creation : {};
  const tools = isObject(metrics.server_tool_use) ? metrics.server_tool_use : {};
  return {
    day,
    model: withoutDate(typeof group.model === "string" ? group.model : "(without a model)"),
    owners: ownersOf(group),
    classes: {
      input: countOf(metrics.uncached_input_tokens),
      cacheRead: countOf(metrics.cache_read_input_tokens),
      cacheWrite: countOf(created.ephemeral_5m_input_tokens),
      cacheWriteLong: countOf(created.ephemeral_1h_input_tokens),
      output: countOf(metrics.output_tokens),
      webSearches: countOf(tools.web_search_requests),
    },
    isFree: group.service_tier === "priority", // a commitment, which costs do not include
  };
}

function toCost({ day, place }: Position, item: Entry, currency: string): ProviderCost {
  const group = groupOf(item);
  const { amount, list_amount: list = amount, currency: stated } = isObject(item.cost)
    ? item.cost
    : item;
  assertCurrency(stated ?? currency, currency, place);
  const { model, cost_type: type, token_type: tokens, description } = group;
  const isOfModel = typeof model === "string";
  const typed = KINDS.get(type) ?? "other";
  const isOfTools = typed === "tools" || typed === "containers";
  const ofOthers = isOfModel ? "model" : "other";
  const kind = isOfTools ? typed : ofOthers;
  const [name = "costs without a type"] = textsOf(description, type);
  const money = readMoney(amount, place) / CENTS;
  return {
    day,
    kind: money < 0n ? "credits" : kind,
    name: isOfModel && !isOfTools ? withoutDate(model) : name,
    ofClass: CLASSES.get(tokens),
    owners: ownersOf(group),
    list: readMoney(list, place) / CENTS,
    amount: money,
  };
}

/** @throws {CommandLineError} If an entry does not say when it begins */
function readDay({ entry, place }: PlacedEntry): string {
  const { starting_at: start } = entry;
  const [day = "", time] = typeof start === "string" ? start.split("T") : [];
  if (isDate(day) && time !== undefined) return day;
  throw mistakeAt(`${place}.starting_at`, 'expected a time such as "2026-11-25T00:00:00Z"');
}

/** Reads the items or buckets of all endpoints. */
export function readAnthropicExport(
  entries: readonly PlacedEntry[],
  currency: string,
): ProviderExport {
  const usage: ProviderUsage[] = [];
  const costs: ProviderCost[] = [];
  for (const placed of entries) {
    const { entry, place } = placed;
    const day = readDay(placed);
    const items = Array.isArray(entry.results) ? entry.results.filter(isObject) : [entry];
    for (const item of items) {
      if (isObject(item.cost) || item.amount !== undefined) {
        costs.push(toCost({ day, place }, item, currency));
      } else usage.push(toUsage(day, item));
    }
  }
  return { usage, costs };
}
