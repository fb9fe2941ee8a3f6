/**
 * The view of gateway keys, with the use of each one's limits.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, type Key, type MadeKey, type Team } from "./client.ts";
import { ago } from "./format.ts";
import { Revoke, Rotate, Secret } from "./key_dialogs.tsx";
import { KeyForm } from "./key_form.tsx";
import { LimitUse, Teams } from "./limit_use.tsx";
import { Pill, Problem } from "./parts.tsx";
import type { Snapshot } from "./store.ts";

const PAGE_SIZE = 50;
const REFRESH_MS = 5000;

interface KeyList {
  readonly keys: readonly Key[];
  readonly next: string | null;
}

const KINDS: Readonly<Record<string, "good" | "bad" | "warn" | "quiet">> = {
  active: "good",
  disabled: "warn",
  expired: "warn",
  revoked: "quiet",
  unreadable: "bad",
};

type Doing =
  | { readonly what: "make" }
  | { readonly what: "change" | "rotate" | "revoke"; readonly key: Key }
  | { readonly what: "show"; readonly made: MadeKey };

function KeyRow({ of: key, now, onDo }: { of: Key; now: number; onDo: (doing: Doing) => void }): JSX.Element {
  const { id, name, state, team, providers, models, lastUsed, expires, previousExpires, unreadable } = key;
  const isOver = state === "revoked";
  const day = (time: string) => new Date(time).toLocaleDateString();
  const title = name ?? id;
  return (
    <tr class={isOver ? "over" : ""}>
      <td>
        <b class="name">{name ?? "unnamed"}</b>
        <span class="mono hint">{id}</span>
        {team !== undefined && <span class="hint">team {team}</span>}
      </td>
      <td>
        <Pill kind={KINDS[state] ?? "quiet"}>{state}</Pill>
        {unreadable !== undefined && <span class="hint">{unreadable}</span>}
        {expires !== undefined && !isOver && <span class="hint">until {day(expires)}</span>}
        {previousExpires !== undefined && !isOver && <span class="hint">old secret until {day(previousExpires)}</span>}
      </td>
      <td class="wide">
        <span>{providers?.join(", ") ?? "all providers"}</span>
        <span class="hint">{models?.join(", ") ?? "all models"}</span>
      </td>
      <td>
        <LimitUse use={key.use} limits={key.limits} />
      </td>
      <td class="wide">{ago(lastUsed, now)}</td>
      <td class="acts">
        {!isOver && (
          <>
            <button type="button" aria-label={`Change ${title}`} onClick={() => onDo({ what: "change", key })}>
              Change
            </button>
            <button type="button" aria-label={`Rotate ${title}`} onClick={() => onDo({ what: "rotate", key })}>
              Rotate
            </button>
            <button
              type="button"
              class="danger quiet"
              aria-label={`Revoke ${title}`}
              onClick={() => onDo({ what: "revoke", key })}
            >
              Revoke
            </button>
          </>
        )}
      </td>
    </tr>
  );
}

function KeyTable({ keys, now, onDo }: {
  keys: readonly Key[];
  now: number;
  onDo: (doing: Doing) => void;
}): JSX.Element {
  return (
    <div class="scroll" role="region" aria-label="Gateway keys" tabIndex={0}>
      <table class="keys">
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col">State</th>
            <th scope="col" class="wide">May call</th>
            <th scope="col">Limits</th>
            <th scope="col" class="wide">Last used</th>
            <th scope="col">
              <span class="sr">What can be done</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => <KeyRow key={key.id} of={key} now={now} onDo={onDo} />)}
        </tbody>
      </table>
    </div>
  );
}

/** Loads the teams, and the keys that match a search, and again every few seconds. */
function useKeys(search: string): {
  list: KeyList | undefined;
  teams: readonly Team[];
  error: unknown;
  more: () => void;
  reload: () => void;
} {
  const [list, setList] = useState<KeyList | undefined>(undefined);
  const [teams, setTeams] = useState<readonly Team[]>([]);
  const [error, setError] = useState<unknown>(undefined);
  const [limit, setLimit] = useState(PAGE_SIZE);
  const latest = useRef(0);
  const reload = () => {
    const turn = ++latest.current;
    const query = new URLSearchParams({ limit: String(limit), use: "true", ...(search !== "" && { search }) });
    const asked = [
      call<KeyList>("GET", `v1/keys?${query}`),
      call<{ teams: readonly Team[] }>("GET", "v1/teams"),
    ] as const;
    Promise.all(asked).then(([found, all]) => {
      if (turn !== latest.current) return;
      setList(found);
      setTeams(all.teams);
      setError(undefined);
    }, (thrown: unknown) => turn === latest.current && setError(thrown));
  };
  useEffect(() => {
    reload();
    const timer = setInterval(() => document.hidden || reload(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [search, limit]);
  return { list, teams, error, more: () => setLimit(Math.min(limit + 2 * PAGE_SIZE, 1000)), reload };
}

/** The view. */
export function Keys({ snapshot: { report } }: { snapshot: Snapshot }): JSX.Element {
  const [search, setSearch] = useState("");
  const [doing, setDoing] = useState<Doing | undefined>(undefined);
  const { list, teams, error, more, reload } = useKeys(search.trim());
  const providers = report?.providers.map(({ name }) => name) ?? [];
  const onClose = () => setDoing(undefined);
  const onDone = (made?: MadeKey) => {
    setDoing(made?.key === undefined ? undefined : { what: "show", made });
    reload();
  };
  const isEmpty = list?.keys.length === 0;
  return (
    <>
      <h1 class="sr">Keys</h1>
      <div class="toolbar">
        <input
          type="search"
          class="grow"
          aria-label="Search"
          placeholder="Search by name or id"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <button type="button" class="primary" onClick={() => setDoing({ what: "make" })}>Make a key</button>
      </div>
      <Problem error={error} />
      <Teams teams={teams} />
      <section class="card flush">
        {isEmpty
          ? (
            <p class="empty">
              {search === ""
                ? "No keys yet. Make one for each team or program: limits, logs and metrics are told apart by key."
                : "No key has this in its name or id."}
            </p>
          )
          : <KeyTable keys={list?.keys ?? []} now={report?.now ?? Date.now()} onDo={setDoing} />}
      </section>
      {list?.next && (
        <div class="toolbar">
          <span class="hint grow">The newest {list.keys.length}</span>
          <button type="button" onClick={more}>Show more</button>
        </div>
      )}
      {(doing?.what === "make" || doing?.what === "change") && (
        <KeyForm
          editing={doing.what === "change" ? doing.key : undefined}
          providers={providers}
          teams={teams}
          onDone={onDone}
          onClose={onClose}
        />
      )}
      {doing?.what === "rotate" && <Rotate of={doing.key} onDone={onDone} onClose={onClose} />}
      {doing?.what === "revoke" && <Revoke of={doing.key} onDone={onDone} onClose={onClose} />}
      {doing?.what === "show" && <Secret made={doing.made} onClose={onClose} />}
    </>
  );
}
