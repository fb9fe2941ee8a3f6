/**
 * The view of the runs of agents: their limits and use, and a button that stops one.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { RunList } from "../api/runs.ts";
import type { RunView } from "../run_lists.ts";
import { toSubjectAddress, useAddress } from "./address.ts";
import { call, mayChange } from "./client.ts";
import { toExchanges } from "./exchange_filter.ts";
import { ago } from "./format.ts";
import { Confirm, Pill, Problem, SearchField, StopButton, TableHead, usePolled } from "./parts.tsx";

const KINDS = { open: "good", idle: "quiet", stopped: "bad" } as const;
const PAGE_SIZE = 200;

/** Formats used and allowed amounts, such as `1.5 of 2 USD`. */
const toUse = (used: string, most: string | undefined, unit: string): string =>
  `${most === undefined ? used : `${used} of ${most}`} ${unit}`;

function Row({ of: run, now, onStop }: {
  of: RunView;
  now: number;
  /** Left out if the operator's role cannot stop it, or if it is stopped. */
  onStop: (() => void) | undefined;
}): JSX.Element {
  const { id, key, parent, state, budget, spent, currency, callLimit, calls, openCalls } = run;
  const { repeats = 0, repeatLimit = Infinity } = run;
  const allowed = callLimit === undefined ? undefined : String(callLimit);
  return (
    <tr>
      <td class="who">
        <b class="name">
          <a href={toExchanges({ run: id, key })}>{id}</a>
        </b>
        {parent !== undefined && <span class="hint">below {parent}</span>}
        <a class="mono hint" href={toSubjectAddress({ of: "key", id: key })}>{key}</a>
      </td>
      <td class="state">
        <Pill kind={KINDS[state]}>{state}</Pill>
        {openCalls > 0 && <span class="hint">{openCalls} open</span>}
        {repeats > repeatLimit && <Pill kind="warn">repeats itself</Pill>}
      </td>
      <td class="used" data-label="Spent">{toUse(spent, budget, currency)}</td>
      <td class="may" data-label="Calls">
        <span>{toUse(String(calls), allowed, "")}</span>
        {repeats > 1 && <span class="hint">the last body {repeats} times in a row</span>}
      </td>
      <td class="last" data-label="Last used">{ago(run.lastUsed, now)}</td>
      <td class="acts">
        {onStop !== undefined && <StopButton id={id} onStop={onStop} />}
      </td>
    </tr>
  );
}

function Stop({ of: run, onDone, onClose }: {
  of: RunView;
  onDone: () => void;
  onClose: () => void;
}): JSX.Element {
  const { id, key } = run;
  const path = `v1/runs/${encodeURIComponent(id)}?${new URLSearchParams({ key })}`;
  return (
    <Confirm
      title="Stop this run?"
      act="Stop it"
      isDangerous
      onClose={onClose}
      onAct={async () => {
        await call("DELETE", path);
        onDone();
      }}
    >
      <p>
        The open calls of {id}{" "}
        and of all runs below it end within a second, with an error. Further calls are refused.
      </p>
    </Confirm>
  );
}

function Table({ runs, onStopOf }: {
  runs: readonly RunView[];
  onStopOf: (run: RunView) => (() => void) | undefined;
}): JSX.Element {
  return (
    <div class="scroll" role="region" aria-label="Runs of agents" tabIndex={0}>
      <table class="keys recordings">
        <TableHead titles={["Run", "State", "Spent", "Calls", "Last used"]} hasActions />
        <tbody>
          {runs.map((run) => (
            <Row key={`${run.key} ${run.id}`} of={run} now={Date.now()} onStop={onStopOf(run)} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The view. */
export function Runs(): JSX.Element {
  const [stopping, setStopping] = useState<RunView | undefined>(undefined);
  const [parts, setParts] = useAddress("runs", ["key"]);
  const { key = "" } = parts;
  const query = new URLSearchParams({ limit: String(PAGE_SIZE), ...(key !== "" && { key }) });
  const { value, error, reload } = usePolled(
    () => call<RunList>("GET", `v1/runs?${query}`),
    [key],
  );
  const isLoading = value === undefined && error === undefined;
  const onStopOf = (run: RunView) =>
    run.state !== "stopped" && mayChange() ? () => setStopping(run) : undefined;
  const onClose = () => setStopping(undefined);
  const nothing = key === ""
    ? "No runs. Callers name them in the header Gateway-Run."
    : "This key has no runs.";
  return (
    <>
      <h1 class="sr">Runs</h1>
      <p class="hint">
        The work of agents, as their callers name it. A run can only narrow the limits of its key.
        Its amounts include the runs below it.
      </p>
      <div class="toolbar">
        <SearchField label="Id of a key" text={key} onSearch={(text) => setParts({ key: text })} />
      </div>
      <Problem error={error} />
      <section class="card flush">
        {value === undefined || value.runs.length === 0
          ? <p class="empty">{isLoading ? "Loading…" : nothing}</p>
          : <Table runs={value.runs} onStopOf={onStopOf} />}
      </section>
      {value?.runs.length === PAGE_SIZE && <p class="hint">The last used {PAGE_SIZE}</p>}
      {stopping !== undefined && (
        <Stop
          of={stopping}
          onDone={() => {
            onClose();
            reload();
          }}
          onClose={onClose}
        />
      )}
    </>
  );
}
