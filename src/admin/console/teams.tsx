/**
 * The view of teams: the use of each team's limits, its recent failures, and its settings.
 *
 * @module
 */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { LiveExchange } from "../../observe/live/live_report.ts";
import type { TeamList } from "../api/teams.ts";
import type { TeamView } from "../team_administration.ts";
import { toAddress, toSubjectAddress, toTeamKeys, useAddress } from "./address.ts";
import { call, mayChange } from "./client.ts";
import { toExchanges } from "./exchange_filter.ts";
import { Failures, useFailures } from "./failures.tsx";
import { LimitUse } from "./limit_use.tsx";
import { Pill, Problem, TableHead, usePolled } from "./parts.tsx";
import type { Snapshot } from "./store.ts";
import { TeamsOverview } from "./subject_page.tsx";
import { DeleteTeam, TeamForm } from "./team_form.tsx";

type Doing =
  | { readonly what: "make" }
  | { readonly what: "change" | "delete"; readonly team: TeamView };

function Acts({ of: team, onDo }: {
  of: TeamView;
  onDo: (doing: Doing) => void;
}): JSX.Element {
  return (
    <>
      {(["change", "delete"] as const).map((what) => (
        <button
          key={what}
          type="button"
          class={what === "delete" ? "danger quiet" : ""}
          aria-haspopup="dialog"
          aria-label={`${what === "change" ? "Change" : "Delete"} team ${team.name}`}
          onClick={() => onDo({ what, team })}
        >
          {what === "change" ? "Change" : "Delete"}
        </button>
      ))}
    </>
  );
}

function State({ of: team }: { of: TeamView }): JSX.Element {
  return (
    <>
      {team.unreadable === undefined
        ? <Pill kind="good">active</Pill>
        : <Pill kind="bad">unreadable</Pill>}
      {team.unreadable !== undefined && (
        <span class="hint">its keys are refused: {team.unreadable}</span>
      )}
      {team.heldKeys === true && <span class="hint">can use keys that the gateway holds</span>}
      {team.source === "configuration" && <span class="hint">in the configuration</span>}
    </>
  );
}

function TeamRow({ of: team, failures, onDo }: {
  of: TeamView;
  failures: readonly LiveExchange[];
  onDo: ((doing: Doing) => void) | undefined;
}): JSX.Element {
  const { name } = team;
  return (
    <tr>
      <td class="who">
        <a class="name" href={toSubjectAddress({ of: "team", id: name })}>
          <b>{name}</b>
        </a>
        <span class="hint">
          <a href={toTeamKeys(name)} aria-label={`Keys of team ${name}`}>keys</a>{" "}
          <a href={toExchanges({ team: name })} aria-label={`Exchanges of team ${name}`}>
            exchanges
          </a>{" "}
          <a href={toAddress("usage", { team: name })} aria-label={`Usage of team ${name}`}>
            usage
          </a>
        </span>
      </td>
      <td class="state">
        <State of={team} />
      </td>
      <td class="used">
        <LimitUse use={team.use} limits={team.limits} />
      </td>
      <td class="may" data-label="Failures">
        <Failures
          exchanges={failures.filter((each) => each.team === name)}
          filter={{ team: name }}
          hasTeams={false}
        />
      </td>
      {onDo !== undefined && (
        <td class="acts">{team.source === "store" && <Acts of={team} onDo={onDo} />}</td>
      )}
    </tr>
  );
}

const TITLES = [
  "Team",
  "State",
  "Limits, for all of its keys together",
  "Failures among the kept exchanges",
];

function Table({ teams, failures, onDo }: {
  teams: readonly TeamView[];
  failures: readonly LiveExchange[];
  onDo: ((doing: Doing) => void) | undefined;
}): JSX.Element {
  return (
    <div class="scroll" role="region" aria-label="Teams" tabIndex={0}>
      <table class="keys teams">
        <TableHead titles={TITLES} hasActions={onDo !== undefined} />
        <tbody>
          {teams.map((team) => (
            <TeamRow
              key={team.name}
              of={team}
              failures={failures}
              onDo={onDo}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const hasText = ({ name }: TeamView, text: string): boolean => name.includes(text.toLowerCase());

function whyEmpty(list: TeamList | undefined, error: unknown, search: string): string {
  if (list === undefined) return error === undefined ? "Loading…" : "The teams are not known.";
  if (search !== "") return "No team has this in its name.";
  return "No teams yet. A team has limits that all of its keys share.";
}

/** The view. */
export function Teams({ snapshot, theme }: { snapshot: Snapshot; theme: string }): JSX.Element {
  const [{ search = "", last = "" }, setParts] = useAddress("teams", ["search", "last"]);
  const [doing, setDoing] = useState<Doing | undefined>(undefined);
  const { value, error, reload } = usePolled(() => call<TeamList>("GET", "v1/teams"), []);
  const { failures, error: failed } = useFailures(snapshot, "");
  const onDo = value !== undefined && !value.readOnly && mayChange() ? setDoing : undefined;
  const shown = value?.teams.filter((team) => hasText(team, search.trim())) ?? [];
  const onClose = () => setDoing(undefined);
  const onDone = () => {
    onClose();
    reload();
  };
  return (
    <>
      <h1 class="sr">Teams</h1>
      <div class="toolbar">
        <input
          type="search"
          class="grow"
          aria-label="Search"
          placeholder="Search by name"
          value={search}
          onInput={(event) => setParts({ search: event.currentTarget.value, last })}
        />
        {onDo !== undefined && (
          <button
            type="button"
            class="primary"
            aria-haspopup="dialog"
            onClick={() => onDo({ what: "make" })}
          >
            Make a team
          </button>
        )}
      </div>
      <Problem error={error ?? failed} />
      <section class="card flush">
        {shown.length === 0
          ? <p class="empty">{whyEmpty(value, error, search)}</p>
          : <Table teams={shown} failures={failures} onDo={onDo} />}
      </section>
      {value?.readOnly === true && (
        <p class="note">
          Keys are in the configuration, so teams are too: edit <code>teams</code> and reload.
        </p>
      )}
      <TeamsOverview theme={theme} />
      {doing?.what === "delete" && <DeleteTeam of={doing.team} onDone={onDone} onClose={onClose} />}
      {(doing?.what === "make" || doing?.what === "change") && (
        <TeamForm
          editing={doing.what === "change" ? doing.team : undefined}
          onDone={onDone}
          onClose={onClose}
        />
      )}
    </>
  );
}
