/**
 * The changes of keys, teams, identity tokens and runs: who changed what, when and why.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { SettingChange } from "../../keys/change_log.ts";
import type { ChangeList } from "../api/changes.ts";
import type { ChangeView } from "../changes.ts";
import { call } from "./client.ts";
import { ago } from "./format.ts";
import { Problem, SearchField, usePolled } from "./parts.tsx";
import { toAddress, toSubjectAddress, useAddressQuery } from "./address.ts";

/** Number of changes shown at first, and maximum. */
const PAGE_SIZE = 50;
const MAX_SHOWN = 1000;

/** The changes to show: of all keys and teams, if both are empty. */
export interface ChangeFilter {
  /** Id of a key. */
  readonly key: string;
  /** Name of a team. */
  readonly team: string;
}

/** Loads the newest changes. */
export function useChanges({ key, team }: ChangeFilter, limit: number): {
  value: ChangeList | undefined;
  error: unknown;
} {
  const query = new URLSearchParams({
    limit: String(limit),
    ...(key !== "" && { key }),
    ...(team !== "" && { team }),
  });
  return usePolled(() => call<ChangeList>("GET", `v1/changes?${query}`), [key, team, limit]);
}

function Setting({ of: changed }: { of: SettingChange }): JSX.Element {
  const { setting, from, to = "none" } = changed;
  const text = from === undefined ? to : `${from} → ${to}`;
  return (
    <li>
      {setting}: <span class="mono">{text}</span>
    </li>
  );
}

function ChangeItem({ of: made, now }: { of: ChangeView; now: number }): JSX.Element {
  const { of, id, name, team, action, who, time, settings, reason } = made;
  const hasPage = (of === "key" || of === "team") && id !== "*";
  const shown = id === "*" ? "several" : id;
  return (
    <li>
      <div class="whose">
        <b>{action}</b> {of}{" "}
        {hasPage ? <a href={toSubjectAddress({ of, id })}>{name ?? id}</a> : <span>{shown}</span>}
        {name !== undefined && <span class="mono hint">{id}</span>}
        {team !== undefined && <span class="hint">team {team}</span>}
        <span class="hint">
          <time dateTime={time} title={time}>{ago(time, now)}</time> by {who}
        </span>
      </div>
      {reason !== undefined && <p class="reason">“{reason}”</p>}
      {settings.length > 0 && (
        <ul class="settings">
          {settings.map((each) => <Setting key={each.setting} of={each} />)}
        </ul>
      )}
    </li>
  );
}

/** A list of changes. */
export function ChangeItems({ changes, now }: {
  changes: readonly ChangeView[];
  now: number;
}): JSX.Element {
  return (
    <ol class="changes">
      {changes.map((each) => <ChangeItem key={each.change} of={each} now={now} />)}
    </ol>
  );
}

function Filters({ filter }: { filter: ChangeFilter }): JSX.Element {
  const field = (name: keyof ChangeFilter, label: string) => (
    <SearchField
      label={label}
      text={filter[name]}
      onSearch={(text) => location.hash = toAddress("changes", { ...filter, [name]: text })}
    />
  );
  return <div class="toolbar">{field("team", "Team")}{field("key", "Id of a key or caller")}</div>;
}

/** The view. */
export function Changes(): JSX.Element {
  const query = useAddressQuery("changes");
  const filter = { key: query.get("key") ?? "", team: query.get("team") ?? "" };
  const [limit, setLimit] = useState(PAGE_SIZE);
  const { value, error } = useChanges(filter, limit);
  const isFiltered = filter.key !== "" || filter.team !== "";
  const none = isFiltered ? "No change is of these." : "No changes yet.";
  return (
    <>
      <h1 class="sr">Changes</h1>
      <Filters filter={filter} />
      <Problem error={error} />
      <section class="card" aria-label="Changes">
        {value === undefined || value.changes.length === 0
          ? <p class="empty">{value === undefined ? "Loading…" : none}</p>
          : <ChangeItems changes={value.changes} now={Date.now()} />}
      </section>
      {value?.next && limit < MAX_SHOWN && (
        <div class="toolbar">
          <span class="hint grow">The newest {value.changes.length}</span>
          <button
            type="button"
            onClick={() => setLimit(Math.min(4 * limit, MAX_SHOWN))}
          >
            Show more
          </button>
        </div>
      )}
      <p class="hint">
        Changes by commands and by this API. Keys and teams in the configuration are changed there.
      </p>
    </>
  );
}
