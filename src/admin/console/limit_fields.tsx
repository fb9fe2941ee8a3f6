/**
 * The fields of limits in the forms of keys and teams.
 *
 * @module
 */
import type { JSX } from "preact";
import {
  COUNT_FORM,
  explainMoneyBudget,
  explainRate,
  explainTokenBudget,
  noteOnBudget,
} from "../../config/limit_forms.ts";
import type { LimitMode, WrittenLimits } from "../../config/limit_set.ts";
import { parseBudget, parseMoneyBudget, parseRate } from "../../config/units.ts";
import type { LimitName } from "../../config/limit_kinds.ts";
import { rate } from "./format.ts";
import { findBudget, LABELS } from "./limit_use.tsx";
import type { Mistakes } from "./mistakes.ts";
import { type Bind, Field } from "./parts.tsx";

/** Name of a field. */
export type LimitField = LimitName | "mode";

/** Contents of the fields, as they are typed. */
export type LimitDraft = Readonly<Record<LimitField, string>>;

interface Kind {
  readonly example: string;
  /** Explains a text of another form; `undefined` for a text of the form. */
  explain(text: string): string | undefined;
  /** Says how a text of the form is understood. */
  read(text: string): string;
}

const ofRate = (example: string): Kind => ({
  example,
  explain: (text) => parseRate(text) === undefined ? explainRate(text) : undefined,
  read: rate,
});

/** Kinds of limits, in the order of the form. */
const KINDS: Readonly<Record<LimitName, Kind>> = {
  requests: ofRate("600/min"),
  tokens: ofRate("100k/min"),
  concurrency: {
    example: "20",
    explain: (text) => /^[1-9][0-9]{0,6}$/.test(text) && +text <= 1e6 ? undefined : COUNT_FORM,
    read: (text) => `${text} open exchanges`,
  },
  budget: {
    example: "5M/month",
    explain: explainTokenBudget,
    read: (text) => noteOnBudget(parseBudget(text)?.limit) ?? text.replace("/", " tokens per "),
  },
  spend: {
    example: "50 USD/month",
    explain: explainMoneyBudget,
    read: (text) => parseMoneyBudget(text) === undefined ? "" : text.replace("/", " per "),
  },
};
const NAMES = Object.keys(KINDS) as LimitName[];

/** Modes of a limit, by their effect on calls that exceed it. */
const MODES: readonly (readonly [mode: LimitMode, label: string])[] = [
  ["enforce", "refuse the call"],
  ["strict", "strict: also refuse calls that could exceed it"],
  ["observe", "only observe: log calls that would be refused"],
];

/** Returns limits as the fields of a form. */
export function toLimitDraft(limits: WrittenLimits | undefined): LimitDraft {
  return {
    requests: limits?.requests ?? "",
    tokens: limits?.tokens ?? "",
    concurrency: String(limits?.concurrency ?? ""),
    budget: findBudget(limits, false),
    spend: findBudget(limits, true),
    mode: limits?.mode ?? "enforce",
  };
}

/** Finds the fields with a text of another form. */
export function findLimitMistakes(draft: LimitDraft): Mistakes<LimitField> {
  const found = NAMES.flatMap((name): [LimitName, string][] => {
    const text = draft[name].trim();
    const mistake = text === "" ? undefined : KINDS[name].explain(text);
    return mistake === undefined ? [] : [[name, `E${mistake.slice(1)}`]];
  });
  return Object.fromEntries(found);
}

/** Returns the field of a setting of limits, such as `limits.budget[0]`. */
export function limitFieldOf(param: string): LimitField | undefined {
  const [, name] = /^limits\.(\w+)/.exec(param) ?? [];
  if (name === "budget") return "spend"; // only a budget of money can have a mistake here
  return name === "mode" ? "mode" : NAMES.find((each) => each === name);
}

/** True if no limit is set. */
export const hasNoLimit = (draft: LimitDraft): boolean =>
  NAMES.every((name) => draft[name].trim() === "");

/** Returns the limits for the API. @param none The value of a limit that is not set */
export function toLimitBody(draft: LimitDraft, none: null | undefined): Record<string, unknown> {
  const toText = (name: LimitName) => draft[name].trim() || none;
  const concurrency = toText("concurrency");
  const budgets = [draft.budget.trim(), draft.spend.trim()].filter((text) => text !== "");
  return {
    requests: toText("requests"),
    tokens: toText("tokens"),
    concurrency: concurrency && Number(concurrency),
    budget: budgets.length > 0 ? budgets : none,
    mode: draft.mode === "enforce" || hasNoLimit(draft) ? none : draft.mode,
  } satisfies Readonly<Record<keyof WrittenLimits, unknown>>;
}

/** Says how a field is understood, or shows an example. */
function hintOf(name: LimitName, text: string): string {
  const { example, explain, read } = KINDS[name];
  return text === "" || explain(text) !== undefined ? `such as ${example}` : read(text);
}

/** The fields. */
export function LimitFields(
  { bind, mistakes }: { bind: Bind<LimitField>; mistakes: Mistakes<LimitField> },
): JSX.Element {
  return (
    <fieldset>
      <legend>Limits</legend>
      <div class="columns">
        {NAMES.map((name) => (
          <Field
            key={name}
            label={LABELS[name]}
            hint={hintOf(name, bind(name).value.trim())}
            mistake={mistakes[name]}
          >
            {(attributes) => (
              <input
                {...attributes}
                autocomplete="off"
                inputMode={name === "concurrency" ? "numeric" : "text"}
                {...bind(name)}
              />
            )}
          </Field>
        ))}
      </div>
      <Field label="When one is reached" mistake={mistakes.mode}>
        {(attributes) => (
          <select {...attributes} {...bind("mode")}>
            {MODES.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
          </select>
        )}
      </Field>
    </fieldset>
  );
}
