/**
 * Dialogs for a key: show it once, rotate it, revoke it.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { KeyView, NewKeyView } from "../key_administration.ts";
import { call } from "./client.ts";
import { Confirm, CopyText, Dialog, Field } from "./parts.tsx";

/** Shows a whole key, only once. */
export function Secret({ made, onClose }: { made: NewKeyView; onClose: () => void }): JSX.Element {
  return (
    <Dialog
      title="Copy this key now"
      onClose={onClose}
      actions={<button type="button" class="primary" onClick={onClose}>I have it</button>}
    >
      <p>
        This is the only time that the whole key of <b>{made.name ?? made.id}</b>{" "}
        is shown: the gateway keeps its digest and nothing else.
      </p>
      <CopyText label="The whole key" text={made.key} />
      <p class="hint">
        Callers send it as <code>Gateway-Auth: Bearer …</code>, in addition to their provider key.
      </p>
    </Dialog>
  );
}

const OVERLAPS: readonly [value: string, label: string][] = [
  ["0s", "It ends at once"],
  ["1h", "It stays valid for an hour"],
  ["24h", "It stays valid for a day"],
  ["7d", "It stays valid for a week"],
];

/** Creates a new secret for a key. */
export function Rotate({ of: key, onDone, onClose }: {
  of: KeyView;
  onDone: (made: NewKeyView) => void;
  onClose: () => void;
}): JSX.Element {
  const { id, name } = key;
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

/** Revokes a key. */
export function Revoke({ of: key, onDone, onClose }: {
  of: KeyView;
  onDone: () => void;
  onClose: () => void;
}): JSX.Element {
  const { id, name } = key;
  return (
    <Confirm
      title={`Revoke ${name ?? id}?`}
      act="Revoke permanently"
      isDangerous
      onClose={onClose}
      onAct={async () => {
        await call("POST", `v1/keys/${id}/revoke`);
        onDone();
      }}
    >
      <p>
        Within a second every call with this key is refused, with its old secret too. This cannot be
        undone: callers with this key need a new one. Exchanges that are open go on to their end.
      </p>
    </Confirm>
  );
}
