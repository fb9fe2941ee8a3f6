/**
 * The view of gateway keys, with the use of each one's limits.
 *
 * @module
 */
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { KeyList } from "../api/keys.ts";
import type { TeamList } from "../api/teams.ts";
import type { KeyView, NewKeyView } from "../key_administration.ts";
import type { TeamView } from "../team_administration.ts";
import { type AddressParts, toSubjectAddress, useAddress } from "./address.ts";
import { call, mayChange } from "./client.ts";
import { ago, day, span, when, words } from "./format.ts";
import { Revoke, Rotate, Secret } from "./key_dialogs.tsx";
import { KeyForm } from "./key_form.tsx";
import { LimitUse } from "./limit_use.tsx";
import { Pill, Problem, TableHead, usePolled } from "./parts.tsx";
import type { Snapshot } from "./store.ts";

const PAGE_SIZE = 50;
/** The largest number of keys that the admin API lists at once. */
const MAX_KEYS = 1000;

const KINDS: Readonly<Record<KeyView["state"], "good" | "bad" | "warn" | "quiet">> = {
  active: "good",
  disabled: "warn",
  expired: "warn",
  revoked: "quiet",
  unreadable: "bad",
  team_not_configured: "bad",
};

/** Actions on a key, and the label of each. */
const ACTS = [["change", "Change"], ["rotate", "Rotate"], ["revoke", "Revoke"]] as const;

type Doing =
  | { readonly what: "make" }
  | { readonly what: "change" | "rotate" | "revoke"; readonly key: KeyView }
  | { readonly what: "show"; readonly made: NewKeyView };

/** The buttons of a key. */
function Acts({ of: key, onDo }: { of: KeyView; onDo: (doing: Doing) => void }): JSX.Element {
  const title = key.name ?? key.id;
  return (
    <>
      {ACTS.map(([what, verb]) => (
        <button
          key={what}
          type="button"
          class={what === "revoke" ? "danger quiet" : ""}
          aria-haspopup="dialog"
          aria-label={`${verb} ${title}`}
          onClick={() => onDo({ what, key })}
        >
          {verb}
        </button>
      ))}
    </>
  );
}

/** The state of a key, and the reasons for it. */
function State({ of: key, now }: { of: KeyView; now: number }): JSX.Element {
  const { state, expires, previousExpires, unreadable, heldKeys } = key;
  const isOver = state === "revoked";
  return (
    <>
      <Pill kind={KINDS[state]}>{words(state)}</Pill>
      {unreadable !== undefined && <span class="hint">{unreadable}</span>}
      {state === "team_not_configured" && (
        <span class="hint">
          refused: no team has this name
        </span>
      )}
      {heldKeys !== undefined && (
        <span class="hint">{heldKeys ? "can use" : "cannot use"} keys of the gateway</span>
      )}
      {expires !== undefined && !isOver && <span class="hint">expires {day(expires)}</span>}
      {previousExpires !== undefined && !isOver && (
        <span class="hint">
          old secret valid for {span(Date.parse(previousExpires) - now)}, until{" "}
          {when(previousExpires, now)} UTC
        </span>
      )}
    </>
  );
}

/** A column of the table: its title, and the content of its cell for a key. */
interface Column {
  readonly title: string;
  readonly class: string;
  /** True if the title is repeated in the cell when the window is narrow. */
  readonly isLabelled?: boolean;
  readonly cell: (key: KeyView, now: number) => ComponentChildren;
}

const COLUMNS: readonly Column[] = [
  {
    title: "Key",
    class: "who",
    cell: ({ id, name = "unnamed", team }) => (
      <>
        <b class="name">
          <a href={toSubjectAddress({ of: "key", id })}>{name}</a>
        </b>
        <span class="mono hint">{id}</span>
        {team !== undefined && (
          <span class="hint">
            team <a href={toSubjectAddress({ of: "team", id: team })}>{team}</a>
          </span>
        )}
      </>
    ),
  },
  { title: "State", class: "state", cell: (key, now) => <State of={key} now={now} /> },
  {
    title: "May call",
    class: "may",
    isLabelled: true,
    cell: ({ providers, models }) => (
      <>
        <span>{providers?.join(", ") ?? "all providers"}</span>
        <span class="hint">{models?.join(", ") ?? "all models"}</span>
      </>
    ),
  },
  {
    title: "Limits",
    class: "used",
    cell: ({ use, limits, team }) => <LimitUse use={use} limits={limits} team={team} />,
  },
  {
    title: "Last used",
    class: "last",
    isLabelled: true,
    cell: ({ lastUsed }, now) => ago(lastUsed, now),
  },
];

function KeyRow({ of: key, now, onDo }: {
  of: KeyView;
  now: number;
  onDo: ((doing: Doing) => void) | undefined;
}): JSX.Element {
  const isOver = key.state === "revoked";
  return (
    <tr class={isOver ? "over" : ""}>
      {COLUMNS.map(({ title, class: name, isLabelled = false, cell }) => (
        <td key={title} class={name} data-label={isLabelled ? title : undefined}>
          {cell(key, now)}
        </td>
      ))}
      {onDo !== undefined && <td class="acts">{!isOver && <Acts of={key} onDo={onDo} />}</td>}
    </tr>
  );
}

function KeyTable({ keys, now, onDo }: {
  keys: readonly KeyView[];
  now: number;
  /** Left out if keys can't be changed. */
  onDo: ((doing: Doing) => void) | undefined;
}): JSX.Element {
  return (
    <div class="scroll" role="region" aria-label="Gateway keys" tabIndex={0}>
      <table class="keys">
        <TableHead titles={COLUMNS.map(({ title }) => title)} hasActions={onDo !== undefined} />
        <tbody>
          {keys.map((key) => <KeyRow key={key.id} of={key} now={now} onDo={onDo} />)}
        </tbody>
      </table>
    </div>
  );
}

/** Names of the parts of the view's address. */
const PART_NAMES = ["search", "team", "state"] as const;
type Filter = AddressParts<typeof PART_NAMES[number]>;

/** Loads the teams, and the newest keys that match a filter. */
function useKeys({ search = "", team = "", state = "" }: Filter, limit: number) {
  const query = new URLSearchParams({
    limit: String(limit),
    use: "true",
    ...(search.trim() !== "" && { search: search.trim() }),
    ...(team !== "" && { team }),
    ...(state !== "" && { state }),
  }).toString();
  return usePolled(async () => {
    const [list, { teams }] = await Promise.all([
      call<KeyList>("GET", `v1/keys?${query}`),
      call<TeamList>("GET", "v1/teams"),
    ]);
    return { list, teams };
  }, [query]);
}

/** A note in place of the buttons if keys can't be changed. */
function ReadOnly(): JSX.Element {
  return (
    <p class="note">
      These keys are in the configuration, so they are changed there: edit <code>keys</code>{" "}
      and reload. To make, change and revoke keys here, set <code>keys</code> to{" "}
      <code>{'{ "file": "gateway-keys.json" }'}</code> or <code>"redis"</code>.
    </p>
  );
}

function whyEmpty(list: KeyList | undefined, error: unknown, filter: Filter): string {
  const { search = "", team = "", state = "" } = filter;
  if (list === undefined) return error === undefined ? "Loading…" : "The keys are not known.";
  if (team !== "" || state !== "") return "No key matches these filters.";
  if (search !== "") return "No key has this in its name or id.";
  return list.readOnly
    ? "The configuration has no key."
    : "No keys yet. Make one for each team or program: " +
      "limits, logs and metrics are told apart by key.";
}

/** The dialog of the current action on a key. */
function Dialogs({ doing, providers, teams, onDone, onClose }: {
  doing: Doing | undefined;
  providers: readonly string[];
  teams: readonly TeamView[];
  onDone: (saved?: KeyView | NewKeyView) => void;
  onClose: () => void;
}): JSX.Element | null {
  if (doing === undefined) return null;
  switch (doing.what) {
    case "show":
      return <Secret made={doing.made} onClose={onClose} />;
    case "rotate":
      return <Rotate of={doing.key} onDone={onDone} onClose={onClose} />;
    case "revoke":
      return <Revoke of={doing.key} onDone={onDone} onClose={onClose} />;
  }
  const editing = doing.what === "change" ? doing.key : undefined;
  return (
    <KeyForm
      editing={editing}
      providers={providers}
      teams={teams}
      onDone={onDone}
      onClose={onClose}
    />
  );
}

/** A choice of one value, or of all. The chosen value is shown even if it is not among them. */
function Choice({ label, chosen, values, onChoose }: {
  label: string;
  chosen: string;
  values: readonly string[];
  onChoose: (value: string) => void;
}): JSX.Element {
  const all = Array.from(new Set([...values, chosen])).filter((value) => value !== "");
  return (
    <select
      class="narrow"
      aria-label={label}
      value={chosen}
      onChange={(event) => onChoose(event.currentTarget.value)}
    >
      <option value="">{`Every ${label.toLowerCase()}`}</option>
      {all.map((value) => <option key={value} value={value}>{words(value)}</option>)}
    </select>
  );
}

/** The filter, and the button that creates a key if that is possible. */
function Head({ filter, teams, onFilter, onMake }: {
  filter: Filter;
  teams: readonly TeamView[];
  onFilter: (filter: Filter) => void;
  onMake: (() => void) | undefined;
}): JSX.Element {
  const { search = "", team = "", state = "" } = filter;
  return (
    <div class="toolbar">
      <input
        type="search"
        class="grow"
        aria-label="Search"
        placeholder="Search by name or id"
        value={search}
        onInput={(event) => onFilter({ ...filter, search: event.currentTarget.value })}
      />
      <Choice
        label="Team"
        chosen={team}
        values={teams.map(({ name }) => name)}
        onChoose={(team) => onFilter({ ...filter, team })}
      />
      <Choice
        label="State"
        chosen={state}
        values={Object.keys(KINDS)}
        onChoose={(state) => onFilter({ ...filter, state })}
      />
      {onMake !== undefined && (
        <button type="button" class="primary" aria-haspopup="dialog" onClick={onMake}>
          Make a key
        </button>
      )}
    </div>
  );
}

/** The view. */
export function Keys({ snapshot }: { snapshot: Snapshot }): JSX.Element {
  const { report } = snapshot;
  const [filter, setFilter] = useAddress("keys", PART_NAMES);
  const [limit, setLimit] = useState(PAGE_SIZE);
  const [doing, setDoing] = useState<Doing | undefined>(undefined);
  const { value, error, reload } = useKeys(filter, limit);
  const { list, teams = [] } = value ?? {};
  const isReadOnly = list?.readOnly === true;
  const canChange = !isReadOnly && mayChange();
  const providers = report?.providers.map(({ name }) => name) ?? [];
  const onDone = (saved?: KeyView | NewKeyView) => {
    setDoing(saved !== undefined && "key" in saved ? { what: "show", made: saved } : undefined);
    reload();
  };
  return (
    <>
      <h1 class="sr">Keys</h1>
      <Head
        filter={filter}
        teams={teams}
        onFilter={setFilter}
        onMake={list !== undefined && canChange ? () => setDoing({ what: "make" }) : undefined}
      />
      <Problem error={error} />
      {isReadOnly && <ReadOnly />}
      <section class="card flush">
        {list === undefined || list.keys.length === 0
          ? <p class="empty">{whyEmpty(list, error, filter)}</p>
          : (
            <KeyTable
              keys={list.keys}
              now={report?.now ?? Date.now()}
              onDo={canChange ? setDoing : undefined}
            />
          )}
      </section>
      {list?.next && (
        <div class="toolbar">
          <span class="hint grow">The newest {list.keys.length}</span>
          <button type="button" onClick={() => setLimit(Math.min(limit + 2 * PAGE_SIZE, MAX_KEYS))}>
            Show more
          </button>
        </div>
      )}
      <Dialogs
        doing={doing}
        providers={providers}
        teams={teams}
        onDone={onDone}
        onClose={() => setDoing(undefined)}
      />
    </>
  );
}
