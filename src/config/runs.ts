/**
 * The setting `runs`: budgets for the runs of agents. Callers name their run, so its limits can only
 * narrow what their gateway key is allowed.
 *
 * @module
 */
import * as v from "valibot";
import { HeaderNamesSchema } from "./attribution.ts";
import { about, strictObject } from "./schema.ts";
import { type Money, parseDuration, parseMoney } from "./units.ts";

/** Settings of runs, checked. */
export interface RunsConfig {
  /** Headers of clients that name a run if there is no `Gateway-Run`. The first with a value counts. */
  readonly headers: readonly string[];
  /** The most money of one run; `undefined` for any. */
  readonly budget?: Money | undefined;
  /** The most calls of one run; `undefined` for any. */
  readonly calls?: number | undefined;
  /** Time after its last use until a run is forgotten. Milliseconds. */
  readonly idleMs: number;
  /** The most runs that are remembered for one gateway key. */
  readonly maxPerKey: number;
  /** The most times in a row that a run can send the same body; `undefined` for any. */
  readonly repeats?: number | undefined;
  /** Treatment of calls beyond `repeats`: refused, or only reported. */
  readonly onRepeat: OnRepeat;
}

/** Treatment of the calls of a run that repeats a body too often. */
export type OnRepeat = "report" | "refuse";

/** The settings that read the run of a call. */
export interface RunRules extends RunsConfig {
  /** Currency of the prices. */
  readonly currency: string;
}

/** Settings of runs, as written in the configuration. */
export interface RunsInput {
  /** Headers of clients that name a run, such as `x-claude-code-session-id`. Default: none. */
  readonly headers?: readonly string[] | undefined;
  /** The most money of one run, such as `5 USD`. Default: any. */
  readonly budget?: string | undefined;
  /** The most calls of one run. Default: any. */
  readonly calls?: number | undefined;
  /** Time after its last use until a run is forgotten, such as `24h`. */
  readonly idle?: string | undefined;
  /** The most runs that are remembered for one gateway key. */
  readonly maxPerKey?: number | undefined;
  /** The most times in a row that a run can send the same body. Default: any. */
  readonly repeats?: number | undefined;
  /** Treatment of calls beyond `repeats`: refused, or only reported. Default: `report`. */
  readonly onRepeat?: OnRepeat | undefined;
}

/** The most calls that a run can be limited to: 10^15 - 1, as in structured fields (RFC 9651). */
export const MAX_RUN_CALLS = 999_999_999_999_999;
const MINUTE_MS = 60_000;
const MAX_IDLE_MS = 31 * 24 * 60 * MINUTE_MS;
const MOST_RUNS = 10_000;
const MOST_REPEATS = 1_000_000;

const moneyForm = 'expected money such as "5 USD"';
const money = v.pipe(
  v.string(moneyForm),
  v.rawTransform(({ dataset, addIssue, NEVER }): Money => {
    const parsed = parseMoney(dataset.value);
    if (parsed === undefined) addIssue({ message: moneyForm });
    return parsed ?? NEVER;
  }),
);

const idleForm = 'expected a duration from "1m" to "31d"';
const idle = v.pipe(
  v.string(idleForm),
  v.transform(parseDuration),
  v.number(idleForm),
  v.minValue(MINUTE_MS, idleForm),
  v.maxValue(MAX_IDLE_MS, idleForm),
);

function countUpTo(max: number): v.GenericSchema<number> {
  const form = `expected a whole number from 1 to ${max}`;
  return v.pipe(
    v.number(form),
    v.integer(form),
    v.minValue(1, form),
    v.maxValue(max, form),
  );
}

/** @internal The schema of runs. */
export const RunsSchema: v.GenericSchema<RunsInput, RunsConfig> = v.pipe(
  strictObject({
    headers: about(
      v.optional(HeaderNamesSchema, []),
      "Headers that name the run if a caller sends no `Gateway-Run`. The first with a value counts",
    ),
    budget: about(v.optional(money), "The most money of one run, such as `5 USD`"),
    calls: about(v.optional(countUpTo(MAX_RUN_CALLS)), "The most calls of one run"),
    idle: about(v.optional(idle, "24h"), "A run is forgotten this long after its last use"),
    maxPerKey: about(
      v.optional(countUpTo(MOST_RUNS), 1000),
      "The most runs that are remembered for one gateway key",
    ),
    repeats: about(
      v.optional(countUpTo(MOST_REPEATS)),
      "The most times in a row that a run can send the same body. Calls beyond it are reported",
    ),
    onRepeat: about(
      v.optional(v.picklist(["report", "refuse"], 'expected "report" or "refuse"')),
      "With `refuse`, calls beyond `repeats` are also refused. Left out: `report`",
    ),
  }, "expected an object"),
  v.forward(
    v.check(
      ({ repeats, onRepeat }) => onRepeat === undefined || repeats !== undefined,
      "expected repeats too: the most times in a row that a run can send the same body",
    ),
    ["onRepeat"],
  ),
  v.transform(({ idle, onRepeat = "report", ...rest }) => ({ ...rest, idleMs: idle, onRepeat })),
);

/** Runs without a setting. */
export const DEFAULT_RUNS: RunsConfig = v.parse(RunsSchema, {});
