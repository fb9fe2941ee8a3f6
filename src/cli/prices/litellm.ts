/**
 * LiteLLM's table `model_prices_and_context_window.json`: flat keys, amounts for one token, one
 * call or one second.
 *
 * @module
 */
import type { BillingClass } from "../../exchange/billing.ts";
import type { Decimal } from "../../config/prices.ts";
import { multiplyExactly } from "./decimal.ts";
import { Findings, isObject, type TableQuery } from "./findings.ts";
import { readOffPeakHours } from "./off_peak.ts";
import { RowSet } from "./row_set.ts";

type Entry = Readonly<Record<string, unknown>>;

const MILLION = 1_000_000;
const THOUSAND = 1000;
const HOUR_S = 3600;

/** Classes by the key of a token's price, without threshold and tier. */
const TOKEN_KEYS: Readonly<Record<string, BillingClass>> = {
  input_cost_per_token: "input",
  input_cost_per_audio_token: "inputAudio",
  input_cost_per_image_token: "inputImage",
  input_cost_per_video_token: "inputVideo",
  cache_read_input_token_cost: "cacheRead",
  cache_read_input_audio_token_cost: "cacheReadAudio",
  cache_read_input_image_token_cost: "cacheReadImage",
  cache_creation_input_token_cost: "cacheWrite",
  output_cost_per_token: "output",
  output_cost_per_reasoning_token: "reasoning",
  output_cost_per_audio_token: "outputAudio",
  output_cost_per_image_token: "outputImage",
  output_cost_per_video_token: "outputVideo",
  citation_cost_per_token: "citation",
};

/** Classes of other units by key, and the factor to the unit of a price. */
const UNIT_KEYS: ReadonlyMap<string, readonly [name: BillingClass, times: number]> = new Map([
  ["input_cost_per_request", ["requests", THOUSAND]],
  ["input_cost_per_query", ["requests", THOUSAND]],
  ["file_search_cost_per_1k_calls", ["fileSearches", 1]],
  ["code_interpreter_cost_per_session", ["codeSessions", THOUSAND]],
  ["ocr_cost_per_page", ["pages", THOUSAND]],
  ["output_cost_per_image", ["images", THOUSAND]],
  ["input_cost_per_character", ["characters", MILLION]],
  ["output_cost_per_video_per_second", ["videoMs", HOUR_S]],
]);
/** Further ones, by the mode of the model and the key. */
const MODE_KEYS: typeof UNIT_KEYS = new Map([
  ["rerank input_cost_per_query", ["searchUnits", THOUSAND]],
  ["image_generation input_cost_per_image", ["images", THOUSAND]],
  ["image_edit input_cost_per_image", ["images", THOUSAND]],
  ["audio_transcription input_cost_per_second", ["audioMs", HOUR_S]],
  ["audio_transcription output_cost_per_second", ["audioMs", HOUR_S]],
  ["audio_transcription input_cost_per_audio_per_second", ["audioMs", HOUR_S]],
  ["audio_speech output_cost_per_second", ["audioMs", HOUR_S]],
  ["video_generation output_cost_per_second", ["videoMs", HOUR_S]],
]);

/** Prices of things that no class counts. */
const UNMETERED =
  /^(?:(?:file_search|vector_store)_cost_per_gb_per_day|(?:input|output)_cost_per_(?:image|pixel|second|character|(?:video|audio)_per_second))$/;
/** Keys that are no prices. */
const NO_PRICE =
  /^(?:litellm_provider|mode|sources?|deprecation_date|metadata|comment|notes?|display_name|output_vector_size|tool_use_system_prompt_tokens|web_search_billing_unit|[rt]p[md]|max_\w+|supports_\w+|supported_\w+)$/;
/** Suffixes of keys, and the tiers that they mean. */
const TIERS: Readonly<Record<string, string>> = {
  flex: "flex",
  priority: "priority",
  fast: "priority",
  ultrafast: "ultrafast",
  batches: "batch",
};
const SUFFIX = /_(?:above_(1hr)|above_(\d+)(k?)_tokens|(flex|priority|fast|ultrafast|batches))$/;
const SIZED = /^(?:(standard|hd|low|medium|high)\/)?(\d+)-x-(\d+)\/([^/]+)$/;
const UPLIFT = /^regional_processing_uplift_multiplier_(\w+)$/;

/** The meaning of a key: a class of tokens, with its conditions. */
interface TokenKey {
  readonly name: BillingClass;
  readonly over: number;
  readonly tier: string;
}

/** Reads the key of a token's price, such as `input_cost_per_token_above_272k_tokens_priority`. */
function readTokenKey(key: string): TokenKey | undefined {
  let base = key;
  let isLong = false;
  let over = 0;
  let tier = "";
  for (let match = SUFFIX.exec(base); match !== null; match = SUFFIX.exec(base)) {
    const [suffix, long, count, kilo, named] = match;
    if (long !== undefined) isLong = true;
    if (count !== undefined) over = Number(count) * (kilo === "k" ? THOUSAND : 1);
    if (named !== undefined) tier = TIERS[named] ?? named;
    base = base.slice(0, -suffix.length);
  }
  const found = Object.hasOwn(TOKEN_KEYS, base) ? TOKEN_KEYS[base] : undefined;
  if (found === undefined || (isLong && found !== "cacheWrite")) return undefined;
  return { name: isLong ? "cacheWriteLong" : found, over, tier };
}

/** Reads the entry of one model. */
class EntryReader {
  readonly rows: RowSet;
  readonly #findings: Findings;
  readonly #model: string;
  readonly #mode: string;

  constructor(findings: Findings, model: string, { litellm_provider: provider, mode }: Entry) {
    this.#findings = findings;
    this.#model = model;
    this.#mode = String(mode);
    this.rows = new RowSet(provider === "xai"); // xAI's thresholds are reached, not exceeded
  }

  read(entry: Entry): void {
    for (const [key, value] of Object.entries(entry)) {
      if (NO_PRICE.test(key)) continue;
      if (!this.#readToken(key, value) && !this.#readUnit(key, value)) {
        this.#readOther(key, value);
      }
    }
    // Rates of some hours replace some of those without conditions, which must be known.
    if (entry.off_peak_pricing !== undefined) this.#readOffPeak(entry.off_peak_pricing);
  }

  #rate(value: unknown, times: number, key: string): Decimal | undefined {
    return this.#findings.rate(value, times, key, this.#model);
  }

  #readToken(key: string, value: unknown, least = 0): boolean {
    const found = readTokenKey(key);
    if (found === undefined) return false;
    const { name, tier, over } = found;
    this.rows.set(name, this.#rate(value, MILLION, key), { tier, over: Math.max(over, least) });
    return true;
  }

  #readUnit(key: string, value: unknown): boolean {
    const unit = MODE_KEYS.get(`${this.#mode} ${key}`) ?? UNIT_KEYS.get(key);
    if (unit === undefined) return false;
    const [name, times] = unit;
    const rate = this.#rate(value, times, key);
    const before = this.rows.units[name];
    if (rate !== undefined && before !== undefined && rate !== before) {
      // whisper-1 states one fee twice, which must not be added up
      this.#findings.add("refused", `${key}: another price for the same thing`, this.#model);
    }
    this.rows.set(name, rate);
    return true;
  }

  #readOther(key: string, value: unknown): void {
    const [, geo] = UPLIFT.exec(key) ?? [];
    if (geo !== undefined) this.#readFactor(key, value, { geo });
    else if (key === "regional_endpoint_uplift_multiplier") {
      this.#readFactor(key, value, { geo: "regional" });
      this.#findings.add("note", `${key}: needs "region": "regional" at a provider`, this.#model);
    } else if (key === "provider_specific_entry" && isObject(value)) this.#readSpecific(value);
    else if (key === "search_context_cost_per_query" && isObject(value)) this.#readSearch(value);
    else if (key === "annotation_cost_per_page") this.#readAnnotation(value, key);
    else if (key === "tiered_pricing" && Array.isArray(value)) this.#readRanges(value);
    else if (key === "off_peak_pricing") return; // last
    else if (!UNMETERED.test(key)) this.#findings.add("unknown", key, this.#model);
    else if (multiplyExactly(value, 1) !== "0") this.#findings.add("unmetered", key, this.#model);
  }

  #readFactor(key: string, value: unknown, when: { geo?: string; tier?: string }): void {
    this.rows.multiply(when, this.#findings.factor(value, key, this.#model));
  }

  #readSpecific(entry: Entry): void {
    for (const [name, value] of Object.entries(entry)) {
      const key = `provider_specific_entry.${name}`;
      if (name === "fast") this.#readFactor(key, value, { tier: "fast" });
      else if (name === "us" || name === "eu") this.#readFactor(key, value, { geo: name });
      else this.#findings.add("unknown", key, this.#model);
    }
  }

  /** Reads the price of a page that is annotated, in addition to the one for reading it. */
  #readAnnotation(value: unknown, key: string): void {
    const fee = this.#rate(value, THOUSAND, key);
    if (fee) this.rows.ask({ pages: "annotated" }, { pages: fee });
  }

  /** Reads the fee of a search by the size of its context, which is medium by default. */
  #readSearch(entry: Entry): void {
    const fees = new Map<string, Decimal>();
    for (const [name, value] of Object.entries(entry)) {
      const key = `search_context_cost_per_query.${name}`;
      const size = /^search_context_size_(low|medium|high)$/.exec(name)?.[1];
      const fee = size && this.#rate(value, THOUSAND, key);
      if (size === undefined) this.#findings.add("unknown", key, this.#model);
      else if (fee !== undefined && fee !== "") fees.set(size, fee);
    }
    const usual = fees.get("medium") ?? fees.get("high") ?? fees.get("low");
    this.rows.set("webSearches", usual);
    for (const [size, fee] of fees) {
      if (fee !== usual) this.rows.ask({ search_context_size: size }, { webSearches: fee });
    }
  }

  /** Reads prices by ranges of the input: the first one applies without conditions. */
  #readRanges(ranges: readonly unknown[]): void {
    for (const each of ranges) {
      const start = isObject(each) && Array.isArray(each.range) ? Number(each.range[0]) : NaN;
      if (!isObject(each) || !Number.isInteger(start) || start < 0) {
        this.#findings.add("refused", "tiered_pricing: a form that is not known", this.#model);
        continue;
      }
      for (const [key, value] of Object.entries(each)) {
        if (key === "range" || this.#readToken(key, value, start)) continue;
        this.#findings.add("unknown", `tiered_pricing.${key}`, this.#model);
      }
    }
  }

  #readOffPeak(value: unknown): void {
    const entry = isObject(value) ? value : {};
    const { hours_utc: _, windows: _windows, weekday_timezone: _zone, ...others } = entry;
    const hours = readOffPeakHours(entry);
    if (hours === undefined) {
      return this.#findings.add("unknown", "off_peak_pricing: its hours", this.#model);
    }
    const rates: { [Name in BillingClass]?: Decimal } = {};
    for (const [key, each] of Object.entries(others)) {
      const found = readTokenKey(key);
      const rate = found && this.#rate(each, MILLION, `off_peak_pricing.${key}`);
      if (found === undefined || found.over > 0 || found.tier !== "") {
        this.#findings.add("unknown", `off_peak_pricing.${key}`, this.#model);
      } else if (rate !== undefined) rates[found.name] = rate;
    }
    this.rows.during(hours, rates);
  }
}

/** Removes the provider from the name of a model, such as `azure/gpt-4o`. */
function toModel(name: string, provider: string): string {
  const [first = "", ...rest] = name.split("/");
  return rest.length > 0 && provider.startsWith(first) ? rest.join("/") : name;
}

/** Returns the fee of an image of one size. */
function readSized(
  findings: Findings,
  entry: Entry,
  [width, height]: readonly [number, number],
  model: string,
): Decimal | undefined {
  for (const side of ["output", "input"]) {
    for (
      const [what, times] of [["image", THOUSAND], ["pixel", width * height * THOUSAND]] as const
    ) {
      const key = `${side}_cost_per_${what}`;
      const value = entry[key];
      const isStated = value !== undefined && multiplyExactly(value, 1) !== "0";
      if (isStated) return findings.rate(value, times, key, model);
    }
  }
  findings.add("unknown", "a size without a price of an image", model);
  return undefined;
}

/** Reads the table. */
export function readLitellm(table: Entry, { provider, isWanted }: TableQuery): Findings {
  const findings = new Findings();
  const source = `litellm ${provider}`;
  const sized: { base: string; asked: Record<string, string>; fee: Decimal }[] = [];
  const readers: [model: string, reader: EntryReader][] = [];
  for (const [name, entry] of Object.entries(table)) {
    if (!isObject(entry) || entry.litellm_provider !== provider || name === "sample_spec") continue;
    const model = toModel(name, provider);
    const [, quality, width, height, base] = SIZED.exec(model) ?? [];
    if (!isWanted(base ?? model)) continue;
    if (base !== undefined) {
      const fee = readSized(findings, entry, [Number(width), Number(height)], base);
      const asked = { ...(quality && { quality }), size: `${width}x${height}` };
      if (fee !== undefined) sized.push({ base, asked, fee });
      continue;
    }
    const reader = new EntryReader(findings, model, entry);
    reader.read(entry);
    readers.push([model, reader]);
  }
  const plain = new Set(readers.map(([model]) => model));
  for (const model of new Set(sized.map(({ base }) => base))) {
    if (!plain.has(model)) readers.push([model, new EntryReader(findings, model, {})]);
  }
  for (const [model, { rows }] of readers) {
    for (const { base, asked, fee } of sized) {
      if (base === model) rows.ask(asked, { images: fee });
    }
    findings.set(model, rows.toPrice(source));
  }
  findings.finish();
  return findings;
}
