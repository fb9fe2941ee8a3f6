/**
 * The header `Gateway-Run`, with which a caller names its run and limits it: an item with parameters
 * (RFC 9651 §3.3), such as `build-42; budget="2 USD"; calls=200; parent=nightly`.
 *
 * @module
 */
import { type Item, parseItem, Token } from "structured-headers";
import { MAX_RUN_CALLS } from "../config/runs.ts";
import { parseMoney } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { StatedRun } from "./run_registry.ts";

/** Name of the header. */
export const RUN_HEADER = "gateway-run";

/** The longest header, and the longest id. Characters. */
const MAX_FIELD = 1024;
const MAX_ID = 128;
/**
 * Visible ASCII, so that an id is safe in a log line, in a URL and in a key of Redis. Clients resolve
 * `.` and `..` in a URL, also escaped ones, so operators could not stop a run with such an id.
 */
const ID = new RegExp(`^(?!\\.{1,2}$)[\\x21-\\x7e]{1,${MAX_ID}}$`);
const ID_FORM = `1 to ${MAX_ID} visible ASCII characters, without spaces, and neither . nor ..`;

function invalid(detail: string, param = "Gateway-Run"): GatewayError {
  return new GatewayError("invalid_run", { param, detail });
}

function readId(value: unknown, name: string): string {
  const id = value instanceof Token ? value.toString() : value;
  if (typeof id !== "string") {
    throw invalid(`write the ${name} in quotes, unless it begins with a letter`);
  }
  if (!ID.test(id)) throw invalid(`expected ${ID_FORM} as the ${name}`);
  return id;
}

function readBudget(value: unknown, currency: string): number {
  const money = typeof value === "string" ? parseMoney(value) : undefined;
  if (money === undefined) throw invalid('expected a budget such as budget="2 USD"');
  if (money.currency !== currency) {
    throw invalid(`expected a budget in ${currency}, the currency of all prices`);
  }
  return money.amount;
}

function readCalls(value: unknown): number {
  const isCount = typeof value === "number" && Number.isInteger(value) && value >= 1 &&
    value <= MAX_RUN_CALLS;
  if (!isCount) throw invalid("expected a whole number of calls such as calls=200");
  return value;
}

function parse(field: string): Item {
  try {
    if (field.length <= MAX_FIELD) return parseItem(field);
  } catch {
    // The error quotes what the caller sent.
  }
  throw invalid(
    'expected one id with parameters, such as "run-1"; budget="2 USD"; calls=200; parent="run-0"',
  );
}

/**
 * Reads the header `Gateway-Run`.
 *
 * @param currency Currency of the prices
 * @throws {GatewayError} `invalid_run`
 */
export function readRunField(field: string, currency: string): StatedRun {
  const [bareId, parameters] = parse(field);
  const id = readId(bareId, "id");
  let parent: string | undefined;
  let budget: number | undefined;
  let calls: number | undefined;
  for (const [name, value] of parameters) {
    if (name === "parent") parent = readId(value, "id of the parent");
    else if (name === "budget") budget = readBudget(value, currency);
    else if (name === "calls") calls = readCalls(value);
    // An unknown limit that is ignored would not protect the caller.
    else throw invalid("expected no other parameters than budget, calls and parent");
  }
  return { id, parent, limits: { budget, calls } };
}

/**
 * Reads the header of a client that names its session, as the id of a run.
 *
 * @throws {GatewayError} `invalid_run`
 */
export function readSessionField(value: string, header: string): StatedRun {
  if (!ID.test(value)) throw invalid(`expected ${ID_FORM}`, header);
  return { id: value, header, limits: {} };
}
