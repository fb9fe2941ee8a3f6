/**
 * The table of models.dev (`api.json`): by provider, amounts for a million tokens.
 *
 * @module
 */
import type { BillingClass } from "../../exchange/billing.ts";
import { Findings, isObject, type TableQuery } from "./findings.ts";
import { RowSet } from "./row_set.ts";

type Entry = Readonly<Record<string, unknown>>;

const COST_KEYS: Readonly<Record<string, BillingClass>> = {
  input: "input",
  output: "output",
  cache_read: "cacheRead",
  cache_write: "cacheWrite",
  reasoning: "reasoning",
  input_audio: "inputAudio",
  output_audio: "outputAudio",
};
/** The threshold that the older key states by its name. */
const OLD_THRESHOLD = 200_000;
/** Keys of a model that are no prices. */
const NO_PRICE: ReadonlySet<string> = new Set([
  "id",
  "name",
  "description",
  "family",
  "attachment",
  "reasoning",
  "reasoning_options",
  "tool_call",
  "temperature",
  "knowledge",
  "release_date",
  "last_updated",
  "modalities",
  "open_weights",
  "limit",
  "structured_output",
  "interleaved",
  "status",
  "provider",
]);

/** Reads the cost of a model, or of one of its modes. */
class CostReader {
  readonly rows: RowSet = new RowSet();
  readonly #findings: Findings;
  readonly #model: string;

  constructor(findings: Findings, model: string) {
    this.#findings = findings;
    this.#model = model;
  }

  /** @param path Path of the cost, for findings */
  read(cost: Entry, path: string, tier = ""): void {
    const { tiers, context_over_200k: old, ...flat } = cost;
    this.#readRates(flat, path, { over: 0, tier });
    if (Array.isArray(tiers)) {
      for (const each of tiers) this.#readTier(each, `${path}.tiers`, tier);
    } else if (isObject(old)) {
      this.#readRates(old, `${path}.context_over_200k`, { over: OLD_THRESHOLD, tier });
      const note = `${path}.context_over_200k without tiers: its name is taken as the threshold`;
      this.#findings.add("note", note, this.#model);
    }
  }

  #readTier(entry: unknown, path: string, tier: string): void {
    const { tier: condition, ...rates } = isObject(entry) ? entry : {};
    const { type, size } = isObject(condition) ? condition : {};
    if (type !== "context" || typeof size !== "number" || !Number.isInteger(size) || size < 1) {
      this.#findings.add("refused", `${path}: a condition that is not known`, this.#model);
    } else this.#readRates(rates, path, { over: size, tier });
  }

  #readRates(rates: Entry, path: string, position: { over: number; tier: string }): void {
    for (const [key, value] of Object.entries(rates)) {
      const name = Object.hasOwn(COST_KEYS, key) ? COST_KEYS[key] : undefined;
      const full = `${path}.${key}`;
      if (name === undefined) this.#findings.add("unknown", full, this.#model);
      else this.rows.set(name, this.#findings.rate(value, 1, full, this.#model), position);
    }
  }

  /** Reads the modes of a model: their tier is named by their requests. */
  readModes(modes: Entry): void {
    for (const [name, mode] of Object.entries(modes)) {
      const { cost, provider } = isObject(mode) ? mode : {};
      const body = isObject(provider) && isObject(provider.body) ? provider.body : {};
      const tier = body.service_tier ?? body.speed;
      const path = `experimental.modes.${name}`;
      if (!isObject(cost)) continue; // a mode without a price
      if (typeof tier === "string") this.read(cost, `${path}.cost`, tier);
      else this.#findings.add("unknown", path, this.#model);
    }
  }
}

function readModel(findings: Findings, model: string, entry: Entry, source: string): void {
  const reader = new CostReader(findings, model);
  for (const [key, value] of Object.entries(entry)) {
    if (key === "cost" && isObject(value)) reader.read(value, key);
    else if (key === "experimental" && isObject(value)) {
      const { modes, ...others } = value;
      if (isObject(modes)) reader.readModes(modes);
      for (const other of Object.keys(others)) findings.add("unknown", `${key}.${other}`, model);
    } else if (!NO_PRICE.has(key) && key !== "experimental") findings.add("unknown", key, model);
  }
  findings.set(model, reader.rows.toPrice(source));
}

/** Reads the table. */
export function readModelsDev(table: Entry, { provider, isWanted }: TableQuery): Findings {
  const findings = new Findings();
  const entry = table[provider];
  const models = isObject(entry) && isObject(entry.models) ? entry.models : {};
  for (const [name, model] of Object.entries(models)) {
    if (isWanted(name) && isObject(model)) {
      readModel(findings, name, model, `models.dev ${provider}`);
    }
  }
  findings.finish();
  return findings;
}
