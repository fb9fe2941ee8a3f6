/**
 * The form that creates or changes a key.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { WrittenLimits } from "../../config/limit_set.ts";
import type { LimitName } from "../../limits/limit_kinds.ts";
import type { KeyView, NewKeyView } from "../key_administration.ts";
import type { TeamView } from "../team_reports.ts";
import { call } from "./client.ts";
import { type Bind, DurableFields, toDurableBody, toDurableDraft } from "./key_durable.tsx";
import { findBudget, LABELS } from "./limit_use.tsx";
import { Check, Dialog, Field, useAct } from "./parts.tsx";

/** Examples of limits, in the order of the form. */
const LIMITS: Readonly<Record<LimitName, string>> = {
  requests: "600/min",
  tokens: "100k/min",
  concurrency: "20",
  budget: "5M/month",
  spend: "50 USD/month",
};
const LIMIT_NAMES = Object.keys(LIMITS) as LimitName[];

/** Modes of a limit, by their effect on calls that exceed it. */
const MODES = [
  ["enforce", "refuse the call"],
  ["strict", "strict: also refuse calls that could exceed it"],
  ["observe", "only observe: log calls that would be refused"],
] as const;

/** Settings that are lists, typed with commas. */
const LISTS = [
  ["models", "Models", "Names and patterns, such as gpt-*, o3"],
  ["operations", "Operations", "Groups such as chat, images"],
] as const;

/** Contents of the form's fields, as they are typed. */
type Draft = Readonly<Record<string, string>>;

function toDraft(key: KeyView | undefined): Draft {
  const written: Readonly<Record<string, unknown>> = { ...key?.limits };
  return {
    name: key?.name ?? "",
    ...Object.fromEntries(LISTS.map(([name]) => [name, key?.[name]?.join(", ") ?? ""])),
    team: key?.team ?? "",
    expires: key?.expires?.slice(0, 10) ?? "",
    ...Object.fromEntries(LIMIT_NAMES.map((name) => [name, String(written[name] ?? "")])),
    budget: findBudget(key?.limits, false),
    spend: findBudget(key?.limits, true),
    mode: String(key?.limits?.mode ?? "enforce"),
    ...toDurableDraft(key?.durable),
  };
}

const split = (text = ""): string[] =>
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
  const toText = (name: string) => draft[name]?.trim() || none;
  const toList = (list: readonly string[]) => list.length > 0 ? list : none;
  const concurrency = toText("concurrency");
  const limits = {
    requests: toText("requests"),
    tokens: toText("tokens"),
    concurrency: concurrency && Number(concurrency),
    budget: toList(
      ["budget", "spend"].map((name) => draft[name]?.trim() ?? "").filter((text) => text !== ""),
    ),
  } satisfies Readonly<Record<Exclude<keyof WrittenLimits, "mode">, unknown>>;
  const hasLimits = Object.values(limits).some((limit) => limit !== none);
  return {
    name: toText("name"),
    team: toText("team"),
    providers: toList(providers),
    ...Object.fromEntries(LISTS.map(([name]) => [name, toList(split(draft[name]))])),
    expires: draft.expires ? `${draft.expires}T00:00:00Z` : none,
    durable: toDurableBody(draft) ?? none,
    limits: hasLimits ? { ...limits, mode: draft.mode === "enforce" ? none : draft.mode } : none,
  };
}

/** The models and operations that a key may use. */
function Rights({ bind }: { bind: Bind }): JSX.Element {
  return (
    <>
      {LISTS.map(([name, label, hint]) => (
        <Field key={name} label={label} hint={`${hint}; empty for all`}>
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
function TeamChoice(
  { bind, teams }: { bind: Bind; teams: readonly TeamView[] },
): JSX.Element | null {
  const chosen = bind("team");
  const names = new Set(
    [...teams.map(({ name }) => name), chosen.value].filter((name) => name !== ""),
  );
  if (names.size === 0) return null;
  return (
    <Field label="Team" hint="Its limits apply to all of its keys together">
      {(attributes) => (
        <select {...attributes} {...chosen}>
          <option value="">none</option>
          {[...names].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      )}
    </Field>
  );
}

function Limits({ bind }: { bind: Bind }): JSX.Element {
  return (
    <fieldset>
      <legend>Limits</legend>
      <div class="columns">
        {LIMIT_NAMES.map((name) => (
          <Field key={name} label={LABELS[name]} hint={`such as ${LIMITS[name]}`}>
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
      <Field label="When one is reached">
        {(attributes) => (
          <select {...attributes} {...bind("mode")}>
            {MODES.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
          </select>
        )}
      </Field>
    </fieldset>
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
  const set = (name: string, text: string) => setDraft({ ...draft, [name]: text });
  const bind: Bind = (name) => ({
    value: draft[name] ?? "",
    onInput: (event) => set(name, event.currentTarget.value),
  });
  const onSubmit = (event: Event) => {
    event.preventDefault();
    const disabled = isDisabled ? true : null;
    const body = toBody(draft, chosen, isNew);
    act(async () => onDone(await save(editing, isNew ? body : { ...body, disabled })));
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
      <Field label="Name" hint="For people; logs and metrics name the key by its id">
        {(attributes) => (
          <input {...attributes} autocomplete="off" maxLength={256} {...bind("name")} />
        )}
      </Field>
      <Providers names={providers} chosen={chosen} onChoose={setChosen} />
      <Rights bind={bind} />
      <TeamChoice bind={bind} teams={teams} />
      <Limits bind={bind} />
      <DurableFields bind={bind} />
      <Field label="Expires" hint="At the beginning of that day, UTC; empty for never">
        {(attributes) => <input {...attributes} type="date" {...bind("expires")} />}
      </Field>
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
