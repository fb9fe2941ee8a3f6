/**
 * Costs that providers state in an answer. They are read from the digits of the JSON number, so that
 * they are exact.
 *
 * @module
 */
import { formatCost, parseCost } from "../config/cost.ts";
import { countIn, fieldOf } from "./usage_classes.ts";

/** xAI states its cost in ticks: 10^10 are a dollar (https://docs.x.ai/developers/cost-tracking). */
const TICK_DECIMALS = 10;
const NUMBER = /^(\d{1,15})(?:\.(\d{1,30}))?(?:[eE]([+-]?\d{1,2}))?$/;

/** Writes a JSON number without an exponent; `undefined` for a negative or an absurd one. */
export function toDecimal(number: string): string | undefined {
  const [isNumber, whole = "", rest = "", exponent = "0"] = NUMBER.exec(number) ?? [];
  if (isNumber === undefined) return undefined;
  const shift = Number(exponent);
  const zerosBefore = Math.max(0, -shift);
  const zerosAfter = Math.max(0, shift - rest.length);
  const digits = "0".repeat(zerosBefore) + whole + rest + "0".repeat(zerosAfter);
  const point = zerosBefore + whole.length + shift;
  const decimals = digits.slice(point).replace(/0+$/, "");
  const integer = digits.slice(0, point).replace(/^0+(?=\d)/, "");
  const units = integer === "" ? "0" : integer;
  return decimals === "" ? units : `${units}.${decimals}`;
}

/**
 * Finds the digits of a number that was parsed.
 *
 * @param json The text that was parsed, or its end
 */
function digitsOf(name: string, value: number, json: string): string | undefined {
  const fields = json.matchAll(new RegExp(`"${name}"\\s*:\\s*(-?[0-9][0-9.eE+-]*)`, "g"));
  let digits = String(value);
  for (const [, text = ""] of fields) if (Number(text) === value) digits = text;
  return toDecimal(digits);
}

/** The most that an answer can cost. A provider that states more is mistaken. */
const MAX_COST = parseCost("99999");

/** Adds two costs. One of them can be unknown. */
export function addStated(one: string | undefined, other: string | undefined): string | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return formatCost(parseCost(one) + parseCost(other));
}

/**
 * Reads the cost that an object of usage states, if it is plausible.
 *
 * @param json The text from which the usage was parsed
 */
export function readStatedCost(usage: unknown, json: string): string | undefined {
  const cost = readCost(usage, json);
  return cost === undefined || parseCost(cost) > MAX_COST ? undefined : cost;
}

/**
 * Reads a cost: at OpenRouter `cost`, with the cost at another
 * provider next to it if a key of the caller's own paid that; at Perplexity `cost.total_cost`; at
 * xAI `cost_in_usd_ticks`.
 */
function readCost(usage: unknown, json: string): string | undefined {
  const ticks = countIn(usage, "cost_in_usd_ticks");
  if (ticks !== undefined) {
    const digits = String(ticks).padStart(TICK_DECIMALS + 1, "0");
    return toDecimal(`${digits.slice(0, -TICK_DECIMALS)}.${digits.slice(-TICK_DECIMALS)}`);
  }
  const cost = fieldOf(usage, "cost");
  if (cost === undefined || cost === null) return undefined;
  if (typeof cost === "number") {
    const stated = digitsOf("cost", cost, json);
    const upstream = fieldOf(fieldOf(usage, "cost_details"), "upstream_inference_cost");
    const isOwnKey = fieldOf(usage, "is_byok") === true && typeof upstream === "number";
    if (!isOwnKey) return stated;
    return addStated(stated, digitsOf("upstream_inference_cost", upstream, json));
  }
  const total = fieldOf(cost, "total_cost");
  return typeof total === "number" ? digitsOf("total_cost", total, json) : undefined;
}
