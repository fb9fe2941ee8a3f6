/**
 * The form that creates or changes a key.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { KeyView, NewKeyView } from "../key_administration.ts";
import type { TeamView } from "../team_administration.ts";
import { call } from "./client.ts";
import { type DurableField, DurableFields, toDurableBody, toDurableDraft } from "./key_durable.tsx";
import {
  findLimitMistakes,
  hasNoLimit,
  type LimitField,
  limitFieldOf,
  LimitFields,
  toLimitBody,
  toLimitDraft,
} from "./limit_fields.tsx";
import { type Mistakes, useMistakes } from "./mistakes.ts";
import { type Bind, Check, Dialog, Field, useAct } from "./parts.tsx";

/** Settings that are lists, typed with commas. */
const LISTS = [
  ["models", "Models", "Names and patterns, such as gpt-*, o3"],
  ["operations", "Operations", "Groups such as chat, images"],
] as const;

/** Name of a field of the form. */
type FieldName =
  | "name"
  | "team"
  | "expires"
  | "heldKeys"
  | typeof LISTS[number][0]
  | LimitField
  | DurableField;

/** Contents of the form's fields, as they are typed. */
type Draft = Readonly<Record<FieldName, string>>;

function toDraft(key: KeyView | undefined): Draft {
  return {
    name: key?.name ?? "",
    models: key?.models?.join(", ") ?? "",
    operations: key?.operations?.join(", ") ?? "",
    team: key?.team ?? "",
    expires: key?.expires?.slice(0, 10) ?? "",
    heldKeys: String(key?.heldKeys ?? ""),
    ...toLimitDraft(key?.limits),
    ...toDurableDraft(key?.durable),
  };
}

const split = (text: string): string[] =>
  text.split(",").map((each) => each.trim()).filter((each) => each !== "");

/**
 * Returns a key's settings for the API. An empty setting is left out of a new key, and removed from
 * an existing key.
 */
function toBody(
  draft: Draft,
  providers: readonly string[],
  isNew: boolean,
): Record<string, unknown> {
  const none = isNew ? undefined : null;
  const toText = (name: FieldName) => draft[name].trim() || none;
  const toList = (list: readonly string[]) => list.length > 0 ? list : none;
  return {
    name: toText("name"),
    team: toText("team"),
    providers: toList(providers),
    ...Object.fromEntries(LISTS.map(([name]) => [name, toList(split(draft[name]))])),
    expires: draft.expires ? `${draft.expires}T00:00:00Z` : none,
    durable: toDurableBody(draft) ?? none,
    heldKeys: draft.heldKeys === "" ? none : draft.heldKeys === "true",
    limits: hasNoLimit(draft) ? none : toLimitBody(draft, none),
  };
}

/** Returns the field of a setting that the API refused. */
function fieldOf(param: string): FieldName | undefined {
  const [first = "", second = ""] = param.split(/[.[]/);
  if (first === "limits") return limitFieldOf(param);
  const names: readonly FieldName[] = ["name", "team", "expires", "models", "operations"];
  const durable: readonly FieldName[] = ["keep", "linger", "size"];
  return first === "durable"
    ? durable.find((each) => each === second)
    : names.find((each) => each === first);
}

/** The models and operations that a key may use. */
function Rights(
  { bind, mistakes }: { bind: Bind<FieldName>; mistakes: Mistakes<FieldName> },
): JSX.Element {
  return (
    <>
      {LISTS.map(([name, label, hint]) => (
        <Field key={name} label={label} hint={`${hint}; empty for all`} mistake={mistakes[name]}>
          {(attributes) => <input {...attributes} autocomplete="off" {...bind(name)} />}
        </Field>
      ))}
    </>
  );
}

function Providers({ names, chosen, onChoose }: {
  names: readonly string[];
  chosen: readonly string[];
  onChoose: (chosen: readonly string[]) => void;
}): JSX.Element {
  const toggle = (name: string) =>
    onChoose(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  return (
    <fieldset>
      <legend>Providers</legend>
      <div class="checks names">
        {names.map((name) => (
          <Check
            key={name}
            isChecked={chosen.includes(name)}
            onToggle={() => toggle(name)}
          >
            {name}
          </Check>
        ))}
      </div>
      <span class="hint">None chosen: all of them</span>
    </fieldset>
  );
}

/** The team of a key. A team that is no longer configured is shown while it is selected. */
function TeamChoice({ bind, teams, mistake }: {
  bind: Bind<FieldName>;
  teams: readonly TeamView[];
  mistake: string | undefined;
}): JSX.Element | null {
  const chosen = bind("team");
  const names = new Set(
    [...teams.map(({ name }) => name), chosen.value].filter((name) => name !== ""),
  );
  if (names.size === 0) return null;
  return (
    <Field label="Team" hint="Its limits apply to all of its keys together" mistake={mistake}>
      {(attributes) => (
        <select {...attributes} {...chosen}>
          <option value="">none</option>
          {[...names].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      )}
    </Field>
  );
}

const HELD_KEYS = [
  ["", "as its team"],
  ["true", "can use them"],
  ["false", "cannot use them"],
] as const;

/** The choice for callers that send no provider key, because the gateway holds one. */
function HeldKeys({ bind }: { bind: Bind<FieldName> }): JSX.Element {
  return (
    <Field label="Provider keys of the gateway" hint="For callers that send no provider key">
      {(attributes) => (
        <select {...attributes} {...bind("heldKeys")}>
          {HELD_KEYS.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
        </select>
      )}
    </Field>
  );
}

function Actions({ isNew, isBusy, onClose }: {
  isNew: boolean;
  isBusy: boolean;
  onClose: () => void;
}): JSX.Element {
  return (
    <>
      <button type="button" onClick={onClose}>Cancel</button>
      <button type="submit" class="primary" disabled={isBusy}>
        {isNew ? "Make the key" : "Save"}
      </button>
    </>
  );
}

/** Saves a new key, or the changes of one. */
function save(
  editing: KeyView | undefined,
  body: Record<string, unknown>,
): Promise<KeyView | NewKeyView> {
  return editing === undefined
    ? call("POST", "v1/keys", body)
    : call("PATCH", `v1/keys/${editing.id}`, body);
}

/** The fields of a key. */
function KeyFields({ bind, mistakes, providers, teams, chosen, onChoose }: {
  bind: Bind<FieldName>;
  mistakes: Mistakes<FieldName>;
  providers: readonly string[];
  teams: readonly TeamView[];
  chosen: readonly string[];
  onChoose: (chosen: readonly string[]) => void;
}): JSX.Element {
  return (
    <>
      <Field
        label="Name"
        hint="For people; logs and metrics name the key by its id"
        mistake={mistakes.name}
      >
        {(attributes) => (
          <input {...attributes} autocomplete="off" maxLength={256} {...bind("name")} />
        )}
      </Field>
      <Providers names={providers} chosen={chosen} onChoose={onChoose} />
      <Rights bind={bind} mistakes={mistakes} />
      <TeamChoice bind={bind} teams={teams} mistake={mistakes.team} />
      <HeldKeys bind={bind} />
      <LimitFields bind={bind} mistakes={mistakes} />
      <DurableFields bind={bind} mistakes={mistakes} />
      <Field
        label="Expires"
        hint="At the beginning of that day, UTC; empty for never"
        mistake={mistakes.expires}
      >
        {(attributes) => <input {...attributes} type="date" {...bind("expires")} />}
      </Field>
    </>
  );
}

/** Creates or changes a key. */
export function KeyForm({ editing, providers, teams, onDone, onClose }: {
  editing: KeyView | undefined;
  providers: readonly string[];
  teams: readonly TeamView[];
  onDone: (saved: KeyView | NewKeyView) => void;
  onClose: () => void;
}): JSX.Element {
  const [draft, setDraft] = useState(toDraft(editing));
  const [chosen, setChosen] = useState<readonly string[]>(editing?.providers ?? []);
  const [isDisabled, setDisabled] = useState(editing?.disabled === true);
  const { isBusy, error, act } = useAct();
  const isNew = editing === undefined;
  const set = (name: FieldName, text: string) => setDraft({ ...draft, [name]: text });
  const bind: Bind<FieldName> = (name) => ({
    value: draft[name],
    onInput: (event) => set(name, event.currentTarget.value),
  });
  const { mistakes, show, run } = useMistakes(fieldOf);
  const onSubmit = (event: Event) => {
    event.preventDefault();
    if (show(findLimitMistakes(draft))) return;
    const disabled = isDisabled ? true : null;
    const body = toBody(draft, chosen, isNew);
    act(() => run(async () => onDone(await save(editing, isNew ? body : { ...body, disabled }))));
  };
  return (
    <Dialog
      title={isNew ? "Make a key" : `Change ${editing.name ?? editing.id}`}
      onClose={onClose}
      onSubmit={onSubmit}
      error={error}
      isWide
      actions={<Actions isNew={isNew} isBusy={isBusy} onClose={onClose} />}
    >
      <KeyFields
        bind={bind}
        mistakes={mistakes}
        providers={providers}
        teams={teams}
        chosen={chosen}
        onChoose={setChosen}
      />
      {!isNew && (
        <div class="checks">
          <Check isChecked={isDisabled} onToggle={() => setDisabled(!isDisabled)}>
            Disabled: refused until this is taken back
          </Check>
        </div>
      )}
    </Dialog>
  );
}
