/**
 * Failures of exchanges, grouped by their reason: which teams, since when, and why. Each links to
 * its exchanges.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { endKindOf } from "../../observe/live/exchange_filter.ts";
import { concernOf, type LiveExchange, nameEnd, OUTCOMES } from "../../observe/live/live_report.ts";
import type { ExchangeList } from "../api/exchanges.ts";
import { call } from "./client.ts";
import { type FilterTexts, toExchanges } from "./exchange_filter.ts";
import type { Scope } from "./fleet_switch.tsx";
import { amount, clock, words } from "./format.ts";
import { Pill } from "./parts.tsx";
import type { Snapshot } from "./store.ts";

/** Maximum number of groups, and of teams in a group. */
const MAX_GROUPS = 4;
const MAX_TEAMS = 3;

/** Failures with one reason. */
export interface FailureGroup {
  /** The gateway's code, or `upstream_` and the status of the provider. */
  readonly end: string;
  readonly concern: "caller" | "operator";
  readonly count: number;
  /** Time of the first and the last, milliseconds since 1970. */
  readonly since: number;
  readonly until: number;
  /** The most frequent cause of failed calls to the provider. */
  readonly cause: string | undefined;
  /** Names of teams, those with the most failures first; `(none)` without a team. */
  readonly teams: readonly (readonly [name: string, count: number])[];
}

/** Returns the filter of the exchanges with an end, as reports of live traffic name it. */
export function toEndFilter(end: string): FilterTexts {
  const [, status] = /^upstream_(\d{3})$/.exec(end) ?? [];
  if (status !== undefined) return { status };
  if (end === "client_closed") return { outcome: "cancelled" };
  return Object.hasOwn(OUTCOMES, end) ? { search: end } : { code: end };
}

/** Maximum number of older failures of each kind that a view loads. */
const LOADED = 500;

/**
 * The failures among the kept exchanges, the newest first: the streamed ones, and older ones, which
 * are loaded once and after each gap.
 *
 * @param scope The gateways, as in `Scope`
 */
export function useFailures(
  { exchanges, gaps }: Pick<Snapshot, "exchanges" | "gaps">,
  scope: Scope,
): { failures: readonly LiveExchange[]; error: unknown } {
  const [older, setOlder] = useState<readonly LiveExchange[]>([]);
  const [error, setError] = useState<unknown>(undefined);
  useEffect(() => {
    let isOver = false;
    const load = async (outcome: "errors" | "refused") => {
      const query = { outcome, limit: String(LOADED), ...(scope !== "" && { gateway: scope }) };
      const list = await call<ExchangeList>("GET", `v1/exchanges?${new URLSearchParams(query)}`);
      return list.exchanges;
    };
    Promise.all([load("errors"), load("refused")]).then(
      (found) => isOver || setOlder(found.flat()),
      (thrown: unknown) => isOver || setError(thrown),
    );
    return () => {
      isOver = true;
    };
  }, [scope, gaps]);
  const streamed = exchanges.filter((each) => endKindOf(each) !== "ok");
  const known = new Set(streamed.map(({ id }) => id));
  return { failures: [...streamed, ...older.filter(({ id }) => !known.has(id))], error };
}

/** Counts values, the most frequent first. */
function countValues(values: readonly string[]): [value: string, count: number][] {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort(([, one], [, other]) => other - one);
}

/** Groups the failures among exchanges: first the operator's concerns, then the most frequent. */
export function groupFailures(exchanges: readonly LiveExchange[]): FailureGroup[] {
  const groups = new Map<string, LiveExchange[]>();
  for (const exchange of exchanges) {
    if (endKindOf(exchange) === "ok") continue;
    const end = nameEnd(exchange);
    const group = groups.get(end);
    if (group === undefined) groups.set(end, [exchange]);
    else group.push(exchange);
  }
  const found = [...groups].map(([end, group]): FailureGroup => {
    const times = group.map(({ settledAt }) => settledAt);
    const [cause] = countValues(group.flatMap((each) => each.cause ?? []));
    return {
      end,
      concern: group.some((each) => concernOf(each) === "operator") ? "operator" : "caller",
      count: group.length,
      since: Math.min(...times),
      until: Math.max(...times),
      cause: cause?.[0],
      teams: countValues(group.map(({ team = "(none)" }) => team)),
    };
  });
  const rank = ({ concern }: FailureGroup) => concern === "operator" ? 0 : 1;
  return found.sort((one, other) => rank(one) - rank(other) || other.count - one.count);
}

function Teams({ of: group, filter }: { of: FailureGroup; filter: FilterTexts }): JSX.Element {
  const { teams, end } = group;
  return (
    <span>
      {teams.slice(0, MAX_TEAMS).map(([name, count], index) => (
        <>
          {index > 0 && ", "}
          {name === "(none)"
            ? "without a team"
            : <a href={toExchanges({ ...filter, ...toEndFilter(end), team: name })}>{name}</a>}{" "}
          {amount(count)}
        </>
      ))}
      {teams.length > MAX_TEAMS && ` and ${teams.length - MAX_TEAMS} more teams`}
    </span>
  );
}

/** The reason of failures, how long they have gone on, and their teams. */
export function Reason({ of: group, filter, hasTeams = true }: {
  of: FailureGroup;
  filter: FilterTexts;
  hasTeams?: boolean;
}): JSX.Element {
  const { cause, since, until } = group;
  const last = until === since ? "" : `, last ${clock(until)}`;
  return (
    <span class="hint">
      {cause !== undefined && `${words(cause)}, `}since {clock(since)}
      {last}
      {hasTeams && ": "}
      {hasTeams && <Teams of={group} filter={filter} />}
    </span>
  );
}

interface FailuresProps {
  readonly exchanges: readonly LiveExchange[];
  /** The filter that selected the exchanges. The links add to it. */
  readonly filter: FilterTexts;
  /** False if all exchanges are of one team. */
  readonly hasTeams?: boolean;
}

/** The failures among exchanges, as a list. */
export function Failures({ exchanges, filter, hasTeams = true }: FailuresProps): JSX.Element {
  const groups = groupFailures(exchanges);
  if (groups.length === 0) return <span class="hint">none</span>;
  return (
    <ul class="failures">
      {groups.slice(0, MAX_GROUPS).map((group) => {
        const { end, count, concern } = group;
        return (
          <li key={end}>
            <Pill kind={concern === "operator" ? "bad" : "warn"}>{amount(count)}</Pill>{" "}
            <a href={toExchanges({ ...filter, ...toEndFilter(end) })}>{words(end)}</a>{" "}
            <Reason of={group} filter={filter} hasTeams={hasTeams} />
          </li>
        );
      })}
      {groups.length > MAX_GROUPS && (
        <li class="hint">and {groups.length - MAX_GROUPS} other reasons</li>
      )}
    </ul>
  );
}
