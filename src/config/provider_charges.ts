/**
 * The settings of a provider that determine what its calls are reserved and charged.
 *
 * @module
 */
import * as v from "valibot";
import { type Decimal, type Prices, PricesSchema, rate } from "./prices.ts";
import { about, shortText } from "./schema.ts";

/** Charge for a call whose answer did not begin before a deadline of its provider. */
export type TimeoutCharge = "nothing" | "input" | "reservation";

/** Settings of a provider for the amounts of its calls. */
export interface ProviderCharges {
  /**
   * The most tokens of one of its answers. It caps the maximum that callers state, and replaces a
   * missing one.
   */
  readonly maxOutput?: number | undefined;
  /** The most tokens of input that one of its models accepts. No call is estimated at more. */
  readonly maxInput?: number | undefined;
  /** Prices of its models. They have precedence over the prices for all providers. */
  readonly prices?: Prices | undefined;
  /** Region of its models, if its answers do not state it and its price depends on it. */
  readonly region?: string | undefined;
  /** True if the cost that its answers state is its price. Default: false. */
  readonly statesCost?: boolean | undefined;
  /**
   * Tiers that can serve a call that asks for none, such as `priority`, in addition to the standard
   * one. Budgets reserve the price of the dearest.
   */
  readonly tiers?: readonly string[] | undefined;
  /** The most calls of tools by its models in one call, if the caller sets no maximum. */
  readonly maxCalls?: number | undefined;
  /**
   * Price of one call of operations whose answers state no usage, by operation or group, such as
   * `{ "batches": 0.5 }`. Without it, keys with limits of tokens or money cannot use them.
   */
  readonly callPrices?: Readonly<Record<string, Decimal>> | undefined;
  /**
   * Charge for a call whose answer did not begin before a deadline: all that was reserved for it, its
   * input, or nothing. Default: `input`. Strict limits always charge the reservation.
   */
  readonly chargeTimeouts?: TimeoutCharge | undefined;
}

const countForm = "expected a whole number of tokens, at least 1";
const tokenCount = v.pipe(
  v.number(countForm),
  v.integer(countForm),
  v.minValue(1, countForm),
  v.maxValue(1e9, countForm),
);

/** @internal The schemas of {@link ProviderCharges}. */
export const CHARGE_ENTRIES: {
  readonly [Name in keyof ProviderCharges]-?: v.OptionalSchema<
    v.GenericSchema<NonNullable<ProviderCharges[Name]>>,
    undefined
  >;
} = {
  maxOutput: v.optional(about(
    tokenCount,
    "The most tokens that one answer can have. Limits never reserve more output for an answer. " +
      "A strict limit requires it, and reserves it for calls that state no maximum. Left out: 262,144",
  )),
  maxInput: v.optional(about(
    tokenCount,
    "The most tokens of input that one of its models accepts. Limits never reserve more for a prompt. " +
      "Left out: 2,000,000",
  )),
  prices: v.optional(
    about(PricesSchema, "Prices of its models. They override the prices for all providers"),
  ),
  region: v.optional(about(
    shortText,
    "Region of its models. Prices with the condition `geo` use it if an answer names no region",
  )),
  statesCost: v.optional(about(
    v.boolean("expected true or false"),
    "With `true`, a call costs the amount that its answer states. Prices are used only if it states none",
  )),
  tiers: v.optional(about(
    v.array(shortText, "expected an array of strings"),
    "Tiers in which the provider can serve a call that asks for no tier. Budgets reserve the highest of their prices",
  )),
  maxCalls: v.optional(about(
    tokenCount,
    "The most tool calls that its models make within one call, if the caller sets no maximum",
  )),
  callPrices: v.optional(about(
    v.record(shortText, rate, 'expected an object such as { "batches": 0.5 }'),
    "Price of one call of an operation or group whose answers state no usage, such as `batches`. " +
      "Without it, keys with limits of tokens or money cannot use such operations",
  )),
  chargeTimeouts: v.optional(about(
    v.picklist(
      ["nothing", "input", "reservation"],
      'expected "nothing", "input" or "reservation"',
    ),
    "Charge for a call whose answer did not begin before a deadline: `nothing`, its `input`, or its " +
      "`reservation`. Left out: `input`. Strict limits always charge the reservation",
  )),
};
