/**
 * The table of genai-prices (`data.json`): a list of providers, amounts for a million tokens or a
 * thousand calls, with dated prices.
 *
 * @module
 */
import type { BillingClass } from "../../exchange/billing.ts";
import type { PriceRow, RowWhen } from "../../config/prices.ts";
import { Findings, isObject, type TableQuery } from "./findings.ts";
import { readOffPeakHours } from "./off_peak.ts";
import { RowSet, rowsOf, toPrice } from "./row_set.ts";

type Entry = Readonly<Record<string, unknown>>;

const KEYS: Readonly<Record<string, BillingClass>> = {
  input_mtok: "input",
  input_audio_mtok: "inputAudio",
  input_image_mtok: "inputImage",
  input_video_mtok: "inputVideo",
  cache_read_mtok: "cacheRead",
  cache_audio_read_mtok: "cacheReadAudio",
  cache_image_read_mtok: "cacheReadImage",
  cache_write_mtok: "cacheWrite",
  cache_write_5m_mtok: "cacheWrite",
  cache_write_1h_mtok: "cacheWriteLong",
  output_mtok: "output",
  output_reasoning_mtok: "reasoning",
  output_audio_mtok: "outputAudio",
  output_image_mtok: "outputImage",
  output_video_mtok: "outputVideo",
  output_citation_mtok: "citation",
  web_searches_kcount: "webSearches",
  storage_searches_kcount: "fileSearches",
  requests_kcount: "requests",
  rerank_searches_kcount: "searchUnits",
  input_document_kpages: "pages",
  audio_hours: "audioMs",
  input_audio_hours: "audioMs",
};
/** Keys of a model that are no prices. */
const NO_PRICE: ReadonlySet<string> = new Set([
  "id",
  "name",
  "description",
  "match",
  "context_window",
  "price_comments",
  "prices_checked",
  "price_discrepancies",
  "deprecated",
  "collapse",
  "prices",
]);

/** Amounts of one key: the first has no threshold. */
type Steps = [over: number, amount: unknown][];

/** Reads an amount: a number, or a base with amounts above thresholds. */
function readSteps(findings: Findings, model: string, key: string, value: unknown): Steps {
  if (!isObject(value)) return [[0, value]];
  const { base, tiers, ...others } = value;
  for (const other of Object.keys(others)) findings.add("unknown", `${key}.${other}`, model);
  const steps: Steps = [[0, base]];
  for (const tier of Array.isArray(tiers) ? tiers : []) {
    const { start, price } = isObject(tier) ? tier : {};
    const over = Number(start);
    if (Number.isInteger(over) && over >= 1) steps.push([over, price]);
    else findings.add("refused", `${key}: a tier that is not known`, model);
  }
  return steps;
}

/** Reads rates. A key without an amount at the threshold of another one costs as below it. */
function readRates(findings: Findings, model: string, prices: Entry): RowSet {
  const rows = new RowSet();
  const known: [name: BillingClass, key: string, steps: Steps][] = [];
  for (const [short, value] of Object.entries(prices)) {
    const name = Object.hasOwn(KEYS, short) ? KEYS[short] : undefined;
    const key = `prices.${short}`;
    if (name === undefined) findings.add("unknown", key, model);
    else known.push([name, key, readSteps(findings, model, key, value)]);
  }
  const thresholds = new Set(known.flatMap(([, , steps]) => steps.map(([over]) => over)));
  for (const [name, key, steps] of known) {
    for (const over of thresholds) {
      const [, amount] = steps.findLast(([start]) => start <= over) ?? [];
      rows.set(name, findings.rate(amount, 1, key, model), { over });
    }
  }
  return rows;
}

/** Reads the constraint of dated prices. @returns `undefined` if it was not understood */
function readConstraint(constraint: unknown): RowWhen | undefined {
  if (constraint === undefined || constraint === null) return {};
  if (!isObject(constraint)) return undefined;
  const { type: _, start_date: date, start_time: from, end_time: to, ...others } = constraint;
  if (Object.keys(others).length > 0) return undefined;
  if (typeof date === "string" && /^\d{4}-\d\d-\d\d$/.test(date) && from === undefined) {
    return { since: `${date}T00:00:00Z` };
  }
  const [start, end] = [from, to].map((time) =>
    /^(\d\d:\d\d):00(?:Z|\+00:00)$/.exec(String(time))?.[1]
  );
  const hours = readOffPeakHours({ hours_utc: `${start}-${end}` });
  return hours === undefined || date !== undefined ? undefined : { hours };
}

function readModel(findings: Findings, model: string, entry: Entry, source: string): void {
  for (const key of Object.keys(entry)) {
    if (!NO_PRICE.has(key)) findings.add("unknown", key, model);
  }
  const all = Array.isArray(entry.prices) ? entry.prices : [{ prices: entry.prices }];
  const rows: PriceRow[] = [];
  for (const each of all) {
    const { constraint, prices, ...others } = isObject(each) ? each : {};
    for (const other of Object.keys(others)) findings.add("unknown", `prices[].${other}`, model);
    const when = readConstraint(constraint);
    if (when === undefined) findings.add("refused", "a constraint that is not known", model);
    if (when === undefined || !isObject(prices)) continue;
    const price = readRates(findings, model, prices).toPrice(source);
    for (const row of price === undefined ? [] : rowsOf(price)) {
      rows.push({ when: { ...row.when, ...when }, rates: row.rates });
    }
  }
  findings.set(model, toPrice(rows, [], source));
}

/** Reads the table. Names are matched exactly, never by their beginning. */
export function readGenaiPrices(
  table: readonly unknown[],
  { provider, isWanted }: TableQuery,
): Findings {
  const findings = new Findings();
  const found = table.find((each) => isObject(each) && each.id === provider);
  const models = isObject(found) && Array.isArray(found.models) ? found.models : [];
  for (const model of models) {
    if (!isObject(model) || typeof model.id !== "string" || !isWanted(model.id)) continue;
    readModel(findings, model.id, model, `genai-prices ${provider}`);
  }
  findings.finish();
  return findings;
}
