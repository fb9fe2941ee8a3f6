/**
 * Limits as an operator writes them down, of a key and of a provider.
 *
 * @module
 */
import * as v from "valibot";
import { about, patchOf } from "./schema.ts";
import { type Budget, formatBudget, formatRate, parseBudget, parseRate, type Rate } from "./units.ts";

/** Limits of a key or a provider. A limit that is left out does not apply. */
export interface LimitSet {
  /** Requests in a window. */
  readonly requests?: Rate | undefined;
  /** Tokens in a window, as the provider states them. */
  readonly tokens?: Rate | undefined;
  /** Exchanges that are open at once. */
  readonly concurrency?: number | undefined;
  /** Tokens in a day or month. */
  readonly budget?: Budget | undefined;
  /** `observe` counts without refusing; `enforce` if left out. */
  readonly mode?: "enforce" | "observe" | undefined;
}

/** Limits as people write them. A limit that is left out does not apply. */
export interface WrittenLimits {
  /** Requests in a window, such as `600/min`. */
  readonly requests?: string | undefined;
  /** Tokens in a window, as the provider states them, such as `100k/h`. */
  readonly tokens?: string | undefined;
  /** Exchanges that are open at once. */
  readonly concurrency?: number | undefined;
  /** Tokens in a day or month (UTC), such as `5M/month`. */
  readonly budget?: string | undefined;
  /** `observe` counts without refusing; `enforce` if left out. */
  readonly mode?: "enforce" | "observe" | undefined;
}

/** Builds the schema of a text that a function parses; what it can't parse is a mistake. */
function parsedBy<Output>(parse: (text: string) => Output | undefined, form: string): v.GenericSchema<string, Output> {
  return v.pipe(
    v.string(form),
    v.rawTransform(({ dataset, addIssue, NEVER }): Output => {
      const parsed = parse(dataset.value);
      if (parsed === undefined) addIssue({ message: form });
      return parsed ?? NEVER;
    }),
  );
}

const rate = parsedBy(parseRate, 'expected a rate such as "600/min", "100k/h" or "5/10s"');
const budget = parsedBy(parseBudget, 'expected a budget such as "5M/month" or "100k/day"');
const countForm = "expected a whole number from 1 to 1000000";

const form = 'expected an object such as { requests: "600/min" }';
const entries = {
  requests: about(v.optional(rate), "Requests in a window, such as 600/min, 100k/h or 5/10s"),
  tokens: about(v.optional(rate), "Tokens in a window, such as 100k/min"),
  concurrency: v.optional(about(
    v.pipe(v.number(countForm), v.integer(countForm), v.minValue(1, countForm), v.maxValue(1e6, countForm)),
    "Exchanges that are open at once",
  )),
  budget: about(v.optional(budget), "Tokens in a day or month (UTC), such as 5M/month or 100k/day"),
  mode: v.optional(about(
    v.picklist(["enforce", "observe"], 'expected "enforce" or "observe"'),
    "`observe` counts without refusing; `enforce` if left out",
  )),
};

/** @internal Limits as they are written. */
export const LimitSetSchema: v.GenericSchema<WrittenLimits, LimitSet> = v.strictObject(entries, form);

/** @internal A change of limits: `null` removes one. */
export const LimitPatchSchema: v.GenericSchema<unknown, LimitSet> = patchOf(entries, form);

/**
 * Writes limits as people write them.
 *
 * @param limits The limits
 * @returns What {@link LimitSetSchema} reads as the same limits
 */
export function toLimitsJson({ requests, tokens, concurrency, budget, mode }: LimitSet): WrittenLimits {
  return {
    requests: requests && formatRate(requests),
    tokens: tokens && formatRate(tokens),
    concurrency,
    budget: budget && formatBudget(budget),
    mode,
  };
}
