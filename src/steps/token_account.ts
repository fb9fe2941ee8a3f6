/**
 * Opens the account of a call whose tokens are counted: it decides the tokens and the money to
 * reserve, before the call is made.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import { isJson } from "../inbound/body.ts";
import { parseView } from "../inbound/json_guard.ts";
import type { EstimatedTokens } from "../limits/estimate.ts";
import { SETTLED_LIMITS } from "../config/limit_kinds.ts";
import {
  type Amounts,
  limitsSpend,
  limitsStrictly,
  type LimitSubject,
  NO_AMOUNTS,
  unitOf,
} from "../limits/limiter.ts";
import { findUncounted, isInputBounded, MAX_ADDED_TOKENS } from "../operations/request_size.ts";
import type { Accounting } from "./accounting.ts";
import { bytesOf, type Call } from "./call.ts";
import { CallPrice } from "./call_price.ts";
import type { CountedCall, TokenAccount } from "./counted_call.ts";

/** A call whose account is opened. */
interface OpenedCall {
  readonly call: Call;
  /** Time when it began, milliseconds since 1970. */
  readonly at: number;
  /** True to find its price for its run, also if no limit of money applies. */
  readonly isInRun?: boolean;
}

/**
 * Opens the account of a call whose tokens are limited.
 *
 * @throws {GatewayError} `model_not_priced` under a budget of money; `request_exceeds_limit` if a
 * limit is strict and the most that the call can use of it is unknown; `key_not_understood` for a
 * budget in another currency
 */
export function openAccount(
  subjects: readonly LimitSubject[],
  counted: CountedCall,
  opened: OpenedCall,
  accounting: Accounting,
): TokenAccount {
  assertCurrency(subjects, accounting);
  const { call } = opened;
  const price = findPrice(subjects, counted, opened, accounting);
  const isStrict = subjects.some(limitsStrictly);
  const estimate = accounting.estimator.estimateExpected(counted);
  const expected = capByLimits(estimate, subjects, price);
  const most = isStrict ? mostOf(counted, call) : undefined;
  const unbounded = most && price?.findUnbounded(most, counted);
  if (unbounded !== undefined && subjects.some(limitsSpendStrictly)) throw unbounded;
  return {
    // A caller that leaves its calls must not use more at the provider than a strict limit allows.
    reservedTokens: most === undefined ? expected : capByLimits(most, subjects, price),
    isStrict,
    isPriced: price !== undefined,
    unbounded: unbounded?.code,
    reservation: {
      expected: capSpend(toReserved(expected, price?.priceReservation(expected)), subjects),
      most: most === undefined ? NO_AMOUNTS : toReserved(most, price?.priceMost(most)),
    },
    toAmounts: (usage) => {
      if (usage === undefined) return NO_AMOUNTS;
      return { tokens: usage.total, spend: price === undefined ? 0 : price.priceUsage(usage) };
    },
  };
}

const limitsSpendStrictly = (subject: LimitSubject): boolean =>
  limitsStrictly(subject) && limitsSpend(subject);

/**
 * Caps the money of a call at its smallest limit: units such as pictures have a cost in addition to
 * tokens, which {@link capByLimits} caps.
 */
function capSpend({ tokens, spend }: Amounts, subjects: readonly LimitSubject[]): Amounts {
  const capping = subjects.filter(({ limits }) => limits.mode !== "observe");
  const most = capping.map(({ limits }) => limits.spend?.limit ?? Infinity);
  return { tokens, spend: Math.min(spend, ...most) };
}

/** Refuses a budget in another currency. @throws {GatewayError} `key_not_understood` */
function assertCurrency(subjects: readonly LimitSubject[], { config }: Accounting): void {
  for (const { limits: { spend } } of subjects) {
    if (spend === undefined || spend.currency === config.currency) continue;
    throw new GatewayError("key_not_understood", {
      detail: "its budget is in another currency than the prices",
    });
  }
}

/**
 * Returns the price of a call, if money is limited. A run can have no limit of money, so that a call
 * of a run needs no price.
 */
function findPrice(
  subjects: readonly LimitSubject[],
  counted: CountedCall,
  opened: OpenedCall,
  accounting: Accounting,
): CallPrice | undefined {
  if (subjects.some(limitsSpend)) return priceOf(counted, opened, accounting);
  if (opened.isInRun !== true) return undefined;
  try {
    return priceOf(counted, opened, accounting);
  } catch (error) {
    if (GatewayError.is(error) && error.code === "model_not_priced") return undefined;
    throw error;
  }
}

function priceOf(
  { provider, model, units }: CountedCall,
  { call, at }: OpenedCall,
  { config, book }: Accounting,
): CallPrice {
  const settings = config.providers[provider];
  if (settings === undefined) throw new Error(`Cannot price a call: no provider ${provider}`);
  return new CallPrice({ book, provider, settings, model, units, call, at });
}

/**
 * Caps the tokens of a call at the size of its smallest limit, so that a caller's statement cannot
 * reserve more of a shared limit than that. Limits that only observe refuse nothing, so they cap
 * nothing.
 */
function capByLimits(
  tokens: EstimatedTokens,
  subjects: readonly LimitSubject[],
  price: CallPrice | undefined,
): EstimatedTokens {
  const amounts = toReserved(tokens, price?.priceReservation(tokens));
  let scale = 1;
  for (const { limits } of subjects) {
    if (limits.mode === "observe") continue;
    for (const name of SETTLED_LIMITS) {
      const limit = limits[name]?.limit ?? Infinity;
      const amount = amounts[unitOf(name)];
      if (amount > limit) scale = Math.min(scale, limit / amount);
    }
  }
  if (scale === 1) return tokens;
  return { input: Math.floor(tokens.input * scale), output: Math.floor(tokens.output * scale) };
}

/**
 * Returns the most tokens that a call can use. Each byte of its body can be a token, and the
 * provider adds some.
 */
function mostOf(
  { inputBytes, strictMaxOutput: output }: CountedCall,
  call: Call,
): EstimatedTokens {
  // Runs first, because it also refuses numbers that providers read differently.
  const isInputBounded = isBodyBounded(call);
  if (output === undefined) {
    throw new GatewayError("request_exceeds_limit", {
      detail:
        "the limit is strict, so the request has to state the maximum of tokens in the answer",
    });
  }
  if (!isInputBounded) {
    throw new GatewayError("request_exceeds_limit", {
      detail: "the limit is strict, so all of the input has to be in the request",
    });
  }
  return { input: inputBytes + MAX_ADDED_TOKENS, output };
}

/**
 * Checks that a request cannot cost more tokens of input than its body has bytes, see
 * {@link isInputBounded}. It parses the body once more, so call it only for strict limits.
 *
 * @returns Whether the input is bounded; false for a body that is not JSON
 * @throws {GatewayError} `invalid_body` for a number of tokens or answers that is not a whole
 * number
 */
function isBodyBounded({ body, contentType }: Call): boolean {
  const bytes = bytesOf(body);
  if (bytes.length === 0 || !isJson(contentType)) return false;
  const fields = parseView(bytes) as Readonly<Record<string, unknown>>;
  const uncounted = findUncounted(fields);
  if (uncounted !== undefined) {
    throw new GatewayError("invalid_body", {
      param: uncounted,
      detail: "expected a whole number: a limit is strict",
    });
  }
  return isInputBounded(fields, bytes);
}

/** Returns the amounts to reserve for some tokens. @param spend As in {@link Amounts} */
function toReserved({ input, output }: EstimatedTokens, spend: number = 0): Amounts {
  return { tokens: input + output, spend };
}
