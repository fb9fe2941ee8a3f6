/**
 * The part of a key's form about durable exchanges.
 *
 * @module
 */
import type { JSX } from "preact";
import type { KeyView } from "../key_administration.ts";
import type { Mistakes } from "./mistakes.ts";
import { type Bind, Field } from "./parts.tsx";

const CHOICES = [
  ["", "as its providers say"],
  ["own", "recorded for callers that ask for it"],
  ["never", "never recorded"],
] as const;

const FIELDS = [
  ["keep", "Kept after its end", "such as 10m, which it is if empty"],
  ["linger", "Continues unread", "such as 60s, which it is if empty"],
  ["size", "Largest answer", "such as 8MB, which it is if empty"],
] as const;

/** Name of a field. */
export type DurableField = "durable" | "retries" | typeof FIELDS[number][0];

/** Contents of the fields, as they are typed. */
type Draft = Readonly<Record<DurableField, string>>;

const RETRIES = [["", "make a call of their own"], [
  "true",
  "attach to the call that they repeat",
]] as const;

function choiceOf(durable: KeyView["durable"]): string {
  if (durable === undefined) return "";
  return durable === false ? "never" : "own";
}

/** Returns the settings of a key as the fields of the form. */
export function toDurableDraft(durable: KeyView["durable"]): Draft {
  const { keep = "", linger = "", size = "", retries } = durable || {};
  return { durable: choiceOf(durable), keep, linger, size, retries: retries ? "true" : "" };
}

/** Returns the settings for the API; `undefined` if the provider's settings apply. */
export function toDurableBody(draft: Draft): KeyView["durable"] {
  if (draft.durable === "") return undefined;
  if (draft.durable === "never") return false;
  const given = FIELDS.map(([name]) => [name, draft[name].trim()] as const).filter((
    [, text],
  ) => text !== "");
  return { ...Object.fromEntries(given), ...(draft.retries === "true" && { retries: true }) };
}

function Choice({ label, choices, bound }: {
  label: string;
  choices: readonly (readonly [value: string, label: string])[];
  bound: ReturnType<Bind<DurableField>>;
}): JSX.Element {
  return (
    <Field label={label}>
      {(attributes) => (
        <select {...attributes} {...bound}>
          {choices.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
        </select>
      )}
    </Field>
  );
}

/** Fields of durable exchanges. The details are shown only if the key has its own settings. */
export function DurableFields(
  { bind, mistakes }: { bind: Bind<DurableField>; mistakes: Mistakes<DurableField> },
): JSX.Element {
  return (
    <fieldset>
      <legend>Durable answers</legend>
      <Choice label="Its answers are" choices={CHOICES} bound={bind("durable")} />
      {bind("durable").value === "own" && (
        <>
          <div class="columns">
            {FIELDS.map(([name, label, hint]) => (
              <Field key={name} label={label} hint={hint} mistake={mistakes[name]}>
                {(attributes) => <input {...attributes} autocomplete="off" {...bind(name)} />}
              </Field>
            ))}
          </div>
          <Choice label="Retries of client libraries" choices={RETRIES} bound={bind("retries")} />
        </>
      )}
    </fieldset>
  );
}
