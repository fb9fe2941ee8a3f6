/**
 * Dialogs for keys: make one, change it, give it a new secret, end it.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { call } from "./client.ts";
import { Confirm, CopyText, Dialog, Field, Problem, useAct } from "./parts.tsx";

/** A key as the admin API returns it. */
export interface Key {
  readonly id: string;
  readonly name?: string;
  readonly state: string;
  readonly disabled?: boolean;
  readonly providers?: readonly string[];
  readonly models?: readonly string[];
  readonly limits?: Readonly<Record<string, string | number>>;
  readonly expires?: string;
  readonly previousExpires?: string;
  readonly lastUsed?: string;
  readonly use?: readonly {
    readonly name: string;
    readonly limit: number;
    readonly used: number;
    readonly resetsIn?: string;
  }[];
}

const LIMITS: readonly [name: string, label: string, form: string][] = [
  ["requests", "Requests", "such as 600/min"],
  ["tokens", "Tokens", "such as 100k/min"],
  ["concurrency", "At once", "such as 20"],
  ["budget", "Budget of tokens", "such as 5M/month"],
];

/** Contents of the form's fields, as they are typed. */
type Draft = Readonly<Record<string, string>>;

function toDraft(key: Key | undefined): Draft {
  return {
    name: key?.name ?? "",
    models: key?.models?.join(", ") ?? "",
    expires: key?.expires?.slice(0, 10) ?? "",
    ...Object.fromEntries(LIMITS.map(([name]) => [name, String(key?.limits?.[name] ?? "")])),
    mode: String(key?.limits?.mode ?? "enforce"),
  };
}

const split = (text = ""): string[] => text.split(",").map((each) => each.trim()).filter((each) => each !== "");

/** Returns a key's settings for the API. An empty one is left out of a new key, and removed from an old one. */
function toBody(draft: Draft, providers: readonly string[], isNew: boolean): Record<string, unknown> {
  const none = isNew ? undefined : null;
  const limits = Object.fromEntries(LIMITS.map(([name]) => {
    const text = draft[name]?.trim() ?? "";
    return [name, text === "" ? none : name === "concurrency" ? Number(text) : text];
  }));
  const hasLimits = Object.values(limits).some((limit) => limit !== undefined && limit !== null);
  const models = split(draft.models);
  return {
    name: draft.name?.trim() || none,
    providers: providers.length > 0 ? providers : none,
    models: models.length > 0 ? models : none,
    expires: draft.expires ? `${draft.expires}T00:00:00Z` : none,
    limits: hasLimits ? { ...limits, mode: draft.mode === "observe" ? "observe" : none } : none,
  };
}

/** Makes a key, or changes one. */
export function KeyForm({ editing, providers, onDone, onClose }: {
  editing: Key | undefined;
  providers: readonly string[];
  onDone: (made: Key & { key?: string }) => void;
  onClose: () => void;
}): JSX.Element {
  const [draft, setDraft] = useState(toDraft(editing));
  const [chosen, setChosen] = useState<readonly string[]>(editing?.providers ?? []);
  const [isDisabled, setDisabled] = useState(editing?.disabled === true);
  const { isBusy, error, act } = useAct();
  const isNew = editing === undefined;
  const bind = (name: string) => ({
    value: draft[name] ?? "",
    onInput: (event: { currentTarget: HTMLInputElement }) => setDraft({ ...draft, [name]: event.currentTarget.value }),
  });
  const onSubmit = (event: Event) => {
    event.preventDefault();
    act(async () => {
      const body = toBody(draft, chosen, isNew);
      onDone(
        isNew
          ? await call("POST", "v1/keys", body)
          : await call("PATCH", `v1/keys/${editing.id}`, { ...body, disabled: isDisabled ? true : null }),
      );
    });
  };
  return (
    <Dialog title={isNew ? "Make a key" : `Change ${editing.name ?? editing.id}`} onClose={onClose} isWide>
      <form onSubmit={onSubmit}>
        <Field label="Name" hint="For people; logs and metrics name the key by its id">
          {(attributes) => <input {...attributes} autocomplete="off" maxLength={256} {...bind("name")} />}
        </Field>
        <fieldset>
          <legend>Providers</legend>
          <div class="checks">
            {providers.map((name) => (
              <label key={name}>
                <input
                  type="checkbox"
                  checked={chosen.includes(name)}
                  onChange={() =>
                    setChosen(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name])}
                />
                {name}
              </label>
            ))}
          </div>
          <span class="hint">None chosen: all of them</span>
        </fieldset>
        <Field label="Models" hint="Names and patterns, separated by commas, such as gpt-*, o3; empty for all">
          {(attributes) => <input {...attributes} autocomplete="off" {...bind("models")} />}
        </Field>
        <fieldset>
          <legend>Limits</legend>
          <div class="columns">
            {LIMITS.map(([name, label, form]) => (
              <Field key={name} label={label} hint={form}>
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
          <div class="checks">
            <label>
              <input
                type="checkbox"
                checked={draft.mode === "observe"}
                onChange={(event) => setDraft({ ...draft, mode: event.currentTarget.checked ? "observe" : "enforce" })}
              />
              Only observe: log what would be refused
            </label>
          </div>
        </fieldset>
        <Field label="Expires" hint="At the beginning of that day, UTC; empty for never">
          {(attributes) => <input {...attributes} type="date" {...bind("expires")} />}
        </Field>
        {!isNew && (
          <div class="checks">
            <label>
              <input type="checkbox" checked={isDisabled} onChange={() => setDisabled(!isDisabled)} />
              Disabled: refused until this is taken back
            </label>
          </div>
        )}
        <Problem error={error} />
        <div class="actions">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={isBusy}>{isNew ? "Make the key" : "Save"}</button>
        </div>
      </form>
    </Dialog>
  );
}

/** Shows a whole key, only this once. */
export function Secret({ made, onClose }: { made: Key & { key?: string }; onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Copy this key now" onClose={onClose}>
      <p>
        This is the only time that the whole key of <b>{made.name ?? made.id}</b>{" "}
        is shown: the gateway keeps its digest and nothing else.
      </p>
      <CopyText label="The whole key" text={made.key ?? ""} />
      <p class="hint">
        Callers send it as <code>Gateway-Auth: Bearer …</code> beside their provider's key.
      </p>
      <div class="actions">
        <button type="button" class="primary" onClick={onClose}>I have it</button>
      </div>
    </Dialog>
  );
}

const OVERLAPS: readonly [value: string, label: string][] = [
  ["0s", "It ends at once"],
  ["1h", "It stays good for an hour"],
  ["24h", "It stays good for a day"],
  ["7d", "It stays good for a week"],
];

/** Gives a key a new secret. */
export function Rotate({ of: { id, name }, onDone, onClose }: {
  of: Key;
  onDone: (made: Key & { key?: string }) => void;
  onClose: () => void;
}): JSX.Element {
  const [overlap, setOverlap] = useState("24h");
  return (
    <Confirm
      title={`Give ${name ?? id} a new secret?`}
      act="Rotate"
      onClose={onClose}
      onAct={async () => onDone(await call("POST", `v1/keys/${id}/rotate`, { overlap }))}
    >
      <p>Its id, limits and use stay. The new key is shown once.</p>
      <Field label="The old secret">
        {(attributes) => (
          <select
            {...attributes}
            value={overlap}
            onChange={(event) => setOverlap(event.currentTarget.value)}
          >
            {OVERLAPS.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
          </select>
        )}
      </Field>
    </Confirm>
  );
}

/** Ends a key. */
export function Revoke({ of: { id, name }, onDone, onClose }: {
  of: Key;
  onDone: () => void;
  onClose: () => void;
}): JSX.Element {
  return (
    <Confirm
      title={`Revoke ${name ?? id}?`}
      act="Revoke for good"
      isDangerous
      onClose={onClose}
      onAct={async () => {
        await call("POST", `v1/keys/${id}/revoke`);
        onDone();
      }}
    >
      <p>
        Within a second every call with this key is refused, with its old secret too. Nothing takes that back: whoever
        still needs to call will need a new key. Exchanges that are open go on to their end.
      </p>
    </Confirm>
  );
}
