/**
 * The view of durable exchanges: running and stored ones, with the facts that operators can see.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { RecordingList } from "../api/recordings.ts";
import type { RecordingView } from "../recording_lists.ts";
import { useAddress } from "./address.ts";
import { call, mayChange } from "./client.ts";
import { ago, bytes, span } from "./format.ts";
import { Confirm, Pill, Problem, StopButton, TableHead, usePolled } from "./parts.tsx";
import type { Snapshot } from "./store.ts";

const KINDS = { running: "good", lost: "bad", complete: "quiet", broken: "warn" } as const;
const PAGE_SIZE = 500;

function Row({ of: recording, now, onStop }: {
  of: RecordingView;
  now: number;
  /** Left out if the operator's role cannot stop it, or if it does not run. */
  onStop: (() => void) | undefined;
}): JSX.Element {
  const { id, state, key, keyName, provider, operation, started, bytes: length, expires } =
    recording;
  return (
    <tr>
      <td class="who">
        <b class="name">{keyName ?? key}</b>
        <span class="mono hint">{id}</span>
      </td>
      <td class="state">
        <Pill kind={KINDS[state]}>{state}</Pill>
        {expires !== undefined && (
          <span class="hint">kept for {span(Date.parse(expires) - now)}</span>
        )}
      </td>
      <td class="may" data-label="Call">
        <span>{operation}</span>
        <span class="hint">{provider}</span>
      </td>
      <td class="used" data-label="Size">{bytes(length)}</td>
      <td class="last" data-label="Began">{ago(started, now)}</td>
      <td class="acts">
        {onStop !== undefined && <StopButton id={id} onStop={onStop} />}
      </td>
    </tr>
  );
}

function Stop({ of: recording, onDone, onClose }: {
  of: RecordingView;
  onDone: () => void;
  onClose: () => void;
}): JSX.Element {
  const { id, key, keyName, operation, provider } = recording;
  return (
    <Confirm
      title="Stop this exchange?"
      act="Stop it"
      isDangerous
      onClose={onClose}
      onAct={async () => {
        await call("POST", `v1/recordings/${encodeURIComponent(id)}/stop`);
        onDone();
      }}
    >
      <p>
        The call {operation} of {keyName ?? key} at {provider}{" "}
        is cancelled. Its readers get an error, and the answer so far is kept for a while.
      </p>
    </Confirm>
  );
}

function Table({ recordings, now, onStopOf }: {
  recordings: readonly RecordingView[];
  now: number;
  onStopOf: (recording: RecordingView) => (() => void) | undefined;
}): JSX.Element {
  return (
    <div class="scroll" role="region" aria-label="Durable exchanges" tabIndex={0}>
      <table class="keys recordings">
        <TableHead titles={["Key", "State", "Call", "Size", "Began"]} hasActions />
        <tbody>
          {recordings.map((each) => (
            <Row key={each.id} of={each} now={now} onStop={onStopOf(each)} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const NO_MATCH = "No exchange matches.";
const NOTHING = "Nothing is recorded. " +
  "Callers ask for it where durable is set, at their provider or key.";

type State = RecordingView["state"];
const STATES = Object.keys(KINDS) as State[];

/** True if a recording is in a state, if any is given, and has a text in one of its names. */
function isWanted(
  { id, key, keyName = "", provider, operation, state: own }: RecordingView,
  { search, state }: { readonly search: string; readonly state: string },
): boolean {
  const names = [id, key, keyName, provider, operation];
  const text = search.trim().toLowerCase();
  return (state === "" || own === state) &&
    names.some((name) => name.toLowerCase().includes(text));
}

/** The fields of the filter. */
function Filter({ search, state, onChange }: {
  search: string;
  state: string;
  onChange: (parts: { search: string; state: string }) => void;
}): JSX.Element {
  return (
    <div class="toolbar">
      <input
        type="search"
        class="grow"
        aria-label="Filter by name"
        placeholder="Filter by key, provider, operation or id"
        value={search}
        onInput={(event) => onChange({ search: event.currentTarget.value, state })}
      />
      <select
        class="narrow"
        aria-label="State"
        value={state}
        onChange={(event) => onChange({ search, state: event.currentTarget.value })}
      >
        <option value="">any state</option>
        {STATES.map((each) => <option key={each}>{each}</option>)}
      </select>
    </div>
  );
}

/** The view. */
export function Recordings({ snapshot }: { snapshot: Snapshot }): JSX.Element {
  const [stopping, setStopping] = useState<RecordingView | undefined>(undefined);
  const [stopped, setStopped] = useState<string | undefined>(undefined);
  const { value, error, reload } = usePolled(
    () => call<RecordingList>("GET", `v1/recordings?limit=${PAGE_SIZE}`),
    [],
  );
  const [{ search = "", state: asked }, setParts] = useAddress("durable", ["search", "state"]);
  const state = STATES.find((each) => each === asked) ?? "";
  const now = snapshot.report?.now ?? Date.now();
  const all = value?.recordings ?? [];
  const shown = all.filter((each) => isWanted(each, { search, state }));
  const isLoading = value === undefined && error === undefined;
  const stopOf = (recording: RecordingView) =>
    recording.state === "running" && recording.id !== stopped && mayChange()
      ? () => setStopping(recording)
      : undefined;
  const onClose = () => setStopping(undefined);
  const onDone = (id: string) => {
    setStopped(id); // the dialog removes its button, and the focus with it
    onClose();
    reload();
  };
  return (
    <>
      <h1 class="sr">Durable</h1>
      <p class="hint">
        Exchanges that continue without their caller, and answers that are kept for callers that
        return. To read them, a caller needs both keys: neither this page nor the gateway's operator
        can.
      </p>
      <Problem error={error} />
      <Filter search={search} state={state} onChange={setParts} />
      <section class="card flush">
        {shown.length === 0
          ? <p class="empty">{isLoading ? "Loading…" : all.length === 0 ? NOTHING : NO_MATCH}</p>
          : <Table recordings={shown} now={now} onStopOf={stopOf} />}
      </section>
      {all.length === PAGE_SIZE && <p class="hint">Among the newest {PAGE_SIZE}</p>}
      {stopping !== undefined && (
        <Stop
          of={stopping}
          onDone={() => onDone(stopping.id)}
          onClose={onClose}
        />
      )}
    </>
  );
}
