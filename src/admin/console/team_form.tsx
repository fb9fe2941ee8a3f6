/**
 * The dialogs of teams: create or change one, and delete it.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { TEAM_NAME, TEAM_NAME_FORM } from "../../config/team_name.ts";
import type { TeamView } from "../team_administration.ts";
import { call, Refused } from "./client.ts";
import {
  findLimitMistakes,
  type LimitField,
  limitFieldOf,
  LimitFields,
  toLimitBody,
  toLimitDraft,
} from "./limit_fields.tsx";
import { type Mistakes, useMistakes } from "./mistakes.ts";
import { type Bind, Check, Confirm, Dialog, Field, useAct } from "./parts.tsx";

type FieldName = "name" | LimitField;
type Draft = Readonly<Record<FieldName, string>>;

const fieldOf = (param: string): FieldName | undefined =>
  param === "name" ? "name" : limitFieldOf(param);

const toPath = (name: string): string => `v1/teams/${encodeURIComponent(name)}`;

/** Finds the fields with a text of another form. */
function findMistakes(draft: Draft, isNew: boolean): Mistakes<FieldName> {
  const isNamed = !isNew || TEAM_NAME.test(draft.name.trim());
  return {
    ...(!isNamed && { name: `E${TEAM_NAME_FORM.slice(1)}` }),
    ...findLimitMistakes(draft),
  };
}

/** The name of a new team, and the limits. */
function TeamFields({ bind, mistakes, isNew }: {
  bind: Bind<FieldName>;
  mistakes: Mistakes<FieldName>;
  isNew: boolean;
}): JSX.Element {
  return (
    <>
      {isNew && (
        <Field
          label="Name"
          hint="Lower-case letters, digits and hyphens; it cannot be changed later"
          mistake={mistakes.name}
        >
          {(attributes) => (
            <input {...attributes} required autocomplete="off" maxLength={64} {...bind("name")} />
          )}
        </Field>
      )}
      <p class="hint">Its limits apply to all of its keys together.</p>
      <LimitFields bind={bind} mistakes={mistakes} />
    </>
  );
}

/** Creates or changes a team. */
export function TeamForm({ editing, onDone, onClose }: {
  editing: TeamView | undefined;
  onDone: () => void;
  onClose: () => void;
}): JSX.Element {
  const isNew = editing === undefined;
  const [draft, setDraft] = useState<Draft>({
    name: editing?.name ?? "",
    ...toLimitDraft(editing?.limits),
  });
  const [hasHeldKeys, setHeldKeys] = useState(editing?.heldKeys === true);
  const { isBusy, error, act } = useAct();
  const { mistakes, show, run } = useMistakes(fieldOf);
  const bind: Bind<FieldName> = (name) => ({
    value: draft[name],
    onInput: (event) => setDraft({ ...draft, [name]: event.currentTarget.value }),
  });
  const save = async () => {
    const none = isNew ? undefined : null;
    const body = { limits: toLimitBody(draft, none), heldKeys: hasHeldKeys ? true : none };
    if (isNew) await call("POST", "v1/teams", { name: draft.name.trim(), ...body });
    else await call("PATCH", toPath(editing.name), body);
    onDone();
  };
  const onSubmit = (event: Event) => {
    event.preventDefault();
    if (!show(findMistakes(draft, isNew))) act(() => run(save));
  };
  return (
    <Dialog
      title={isNew ? "Make a team" : `Change team ${editing.name}`}
      onClose={onClose}
      onSubmit={onSubmit}
      error={error}
      isWide
      actions={
        <>
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={isBusy}>
            {isNew ? "Make the team" : "Save"}
          </button>
        </>
      }
    >
      <TeamFields bind={bind} mistakes={mistakes} isNew={isNew} />
      <div class="checks">
        <Check isChecked={hasHeldKeys} onToggle={() => setHeldKeys(!hasHeldKeys)}>
          Its callers can use provider keys that the gateway holds
        </Check>
      </div>
    </Dialog>
  );
}

/** Deletes a team. While keys use it, asks once more. */
export function DeleteTeam({ of: team, onDone, onClose }: {
  of: TeamView;
  onDone: () => void;
  onClose: () => void;
}): JSX.Element {
  const [isUsed, setUsed] = useState(false);
  const onAct = async () => {
    try {
      await call("DELETE", `${toPath(team.name)}${isUsed ? "?force=true" : ""}`);
      onDone();
    } catch (thrown) {
      if (thrown instanceof Refused && thrown.code === "refused") setUsed(true);
      throw thrown;
    }
  };
  return (
    <Confirm
      title={`Delete team ${team.name}?`}
      act={isUsed ? "Delete and refuse its keys" : "Delete"}
      isDangerous
      onAct={onAct}
      onClose={onClose}
    >
      <p>
        {isUsed
          ? "Calls of these keys are refused from now on, until they are in another team."
          : "Its limits and its use are deleted. It is refused while keys use it."}
      </p>
    </Confirm>
  );
}
