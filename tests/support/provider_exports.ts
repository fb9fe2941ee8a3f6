/** Exports of providers as their usage and cost endpoints answer, made from some days of usage. */
import type { ClassAmounts } from "../../src/exchange/billing.ts";

/** Usage and cost of a model in a day, as the provider counts them. */
export interface BilledDay {
  readonly day: string;
  readonly model: string;
  readonly classes: ClassAmounts;
  /** In the currency: a decimal. */
  readonly cost: string;
  /** OpenAI's line items and their amounts. Default: one line for all tokens. */
  readonly lines?: Readonly<Record<string, number>>;
  /** OpenAI's further counts of tokens. */
  readonly more?: Readonly<Record<string, number>>;
  /** Id of the key at the provider. */
  readonly key?: string;
  readonly tier?: string;
}

/** A page with some entries. */
export const page = (data: readonly unknown[], more = false): Record<string, unknown> => ({
  data,
  has_more: more,
  next_page: more ? "next" : null,
});

const secondsOf = (day: string) => Date.parse(day) / 1000;

/** A bucket of OpenAI's endpoints: a day. */
export interface Bucket {
  readonly object: string;
  readonly start_time: number;
  readonly end_time: number;
  readonly results: readonly object[];
}

/** A bucket of OpenAI's costs: line items and their amounts. */
export const openaiCosts = (
  day: string,
  lines: readonly [line: string, value: number][],
): Bucket => ({
  object: "bucket",
  start_time: secondsOf(day),
  end_time: secondsOf(day) + 86_400,
  results: lines.map(([line, value]) => ({
    object: "organization.costs.result",
    amount: { value, currency: "usd" },
    line_item: line,
    project_id: "proj_1",
  })),
});

/** OpenAI's usage and costs: a bucket each. */
export function toOpenai(
  { day, model, classes, cost, lines = { tokens: Number(cost) }, more, key = "key_1" }: BilledDay,
): unknown[] {
  const { input = 0, cacheRead = 0, cacheWrite = 0, cacheWriteLong = 0, output = 0 } = classes;
  const usage = {
    object: "bucket",
    start_time: secondsOf(day),
    end_time: secondsOf(day) + 86_400,
    results: [{
      object: "organization.usage.completions.result",
      model: `${model}-2026-10-01`,
      input_tokens: input + cacheRead + cacheWrite + cacheWriteLong,
      input_uncached_tokens: input,
      input_cached_tokens: cacheRead,
      input_cache_write_tokens: cacheWrite + cacheWriteLong,
      input_cache_write_30m_tokens: cacheWrite,
      input_cache_write_12h_tokens: cacheWriteLong,
      output_tokens: output,
      ...more,
      num_model_requests: 1,
      api_key_id: key,
      project_id: "proj_1",
    }],
  };
  const costs = openaiCosts(
    day,
    Object.entries(lines).map(([line, value]) => [`${model}-2026-10-01, ${line}`, value]),
  );
  return [usage, {
    ...costs,
    results: costs.results.map((each) => ({ ...each, api_key_id: key })),
  }];
}

/** An item of Anthropic's costs; cents. */
export const anthropicCost = (
  day: string,
  group: Record<string, unknown>,
  list: string,
  amount: string = list,
): Record<string, unknown> => ({
  starting_at: `${day}T00:00:00Z`,
  ending_at: `${day}T23:59:59Z`,
  group,
  cost: { amount, list_amount: list, currency: "USD", requests: 1 },
});

/** Anthropic's usage and costs: an item each. */
export function toAnthropic(
  { day, model, classes, cost, key = "key_1", tier }: BilledDay,
): Record<string, unknown>[] {
  const group = { model, api_key_id: key, service_tier: tier ?? "standard" };
  const usage = {
    starting_at: `${day}T00:00:00Z`,
    group,
    usage: {
      uncached_input_tokens: classes.input ?? 0,
      cache_read_input_tokens: classes.cacheRead ?? 0,
      cache_creation: {
        ephemeral_5m_input_tokens: classes.cacheWrite ?? 0,
        ephemeral_1h_input_tokens: classes.cacheWriteLong ?? 0,
      },
      output_tokens: classes.output ?? 0,
      server_tool_use: { web_search_requests: 0 },
    },
  };
  if (tier === "priority") return [usage]; // no cost: a commitment
  return [usage, anthropicCost(day, { ...group, cost_type: "tokens" }, String(Number(cost) * 100))];
}
