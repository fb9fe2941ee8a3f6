/**
 * The page of a team, key or provider: spend, budgets and their forecast, errors by cause and since
 * when, latency, keys, the last exchanges and changes. Its address is `#team?id=NAME&last=24h`,
 * `#key?id=ID` or `#provider?id=NAME`.
 *
 * @module
 */
import type { JSX } from "preact";
import type { HistoryReport, HistorySums } from "../../usage/history/report.ts";
import { BudgetCards } from "./budget_gauges.tsx";
import { ChangeItems, useChanges } from "./changes.tsx";
import { ago, amount, cost as toCost, day, duration, percent, words } from "./format.ts";
import { HistoryChart, type HistoryLine } from "./history_chart.tsx";
import { LimitUse } from "./limit_use.tsx";
import { Pill, Problem, Tile } from "./parts.tsx";
import { type Subject, toAddress, toSubjectAddress, useAddressQuery } from "./address.ts";
import { RANGES, type SubjectState, useHistory, useSubject } from "./subject_data.ts";
import { LastExchanges } from "./subject_exchanges.tsx";
import { Causes, ProviderShares, TeamKeys, TeamShares } from "./subject_tables.tsx";
import { SubjectUsage } from "./subject_usage.tsx";

const DEFAULT_RANGE = "24h";
/** Number of changes on the page. */
const SHOWN_CHANGES = 10;

const CALLS: readonly HistoryLine[] = [
  { label: "calls", color: 1, isFilled: true, read: ({ calls }) => calls },
  { label: "refused", color: 2, read: ({ refused }) => refused },
  { label: "errors", color: 3, read: ({ errors }) => errors },
];
const LATENCY: readonly HistoryLine[] = [
  { label: "p50", color: 1, read: ({ p50 }) => p50 },
  { label: "p95", color: 2, read: ({ p95 }) => p95 },
];
const SPEND: readonly HistoryLine[] = [
  { label: "spend", color: 1, isFilled: true, read: ({ cost }) => cost },
];
const TOKENS: readonly HistoryLine[] = [
  { label: "all", color: 1, isFilled: true, read: ({ tokens }) => tokens },
  { label: "output", color: 2, read: ({ outputTokens }) => outputTokens },
];

function Tiles({ of: sums, currency }: { of: HistorySums; currency: string }): JSX.Element {
  const { calls, errors, refused, tokens, outputTokens, cost, p50, p95, firstByte } = sums;
  const share = (count: number) => percent(calls === 0 ? 0 : count / calls);
  return (
    <dl class="tiles">
      <Tile label="Calls" value={amount(calls)} more={`${amount(refused)} refused`} />
      <Tile
        label="Errors"
        value={share(errors)}
        more={`${amount(errors)} calls`}
        isBad={errors / Math.max(calls, 1) >= 0.05}
      />
      <Tile label="Latency p95" value={duration(p95)} more={`p50 ${duration(p50)}`} />
      <Tile label="First byte" value={duration(firstByte)} more="on average" />
      <Tile label="Spend" value={toCost(cost)} more={currency} />
      <Tile label="Tokens" value={amount(tokens)} more={`${amount(outputTokens)} output`} />
    </dl>
  );
}

function Charts({ report, theme }: { report: HistoryReport; theme: string }): JSX.Element {
  const drawn = { report, theme };
  return (
    <div class="charts subject-charts">
      <HistoryChart title="Calls" lines={CALLS} format={amount} {...drawn} />
      <HistoryChart title="Latency" lines={LATENCY} format={duration} {...drawn} />
      <HistoryChart title={`Spend ${report.currency}`} lines={SPEND} format={toCost} {...drawn} />
      <HistoryChart title="Tokens" lines={TOKENS} format={amount} {...drawn} />
    </div>
  );
}

/** The state of a subject in words, and its settings. */
function About({ subject, state }: { subject: Subject; state: SubjectState }): JSX.Element {
  const { of } = subject;
  const { team, key, provider } = state;
  if (of === "provider") {
    if (provider === undefined) return <Pill kind="bad">no such provider any more</Pill>;
    return (
      <>
        <span class="mono hint">{provider.urls.join(", ")}</span>
        <a href={toAddress("providers", {})}>Replicas</a>
      </>
    );
  }
  if (of === "team") {
    if (team === undefined) return <Pill kind="bad">no such team any more</Pill>;
    const source = team.source === "store" ? "created" : "in the configuration";
    return <span class="hint">{source}</span>;
  }
  if (key === undefined) return <Pill kind="bad">no such key any more</Pill>;
  const { id, state: word, team: ofTeam, providers, models, expires, lastUsed } = key;
  return (
    <>
      <Pill kind={word === "active" ? "good" : "warn"}>{words(word)}</Pill>
      <span class="mono hint">{id}</span>
      {ofTeam !== undefined && (
        <a href={toSubjectAddress({ of: "team", id: ofTeam })}>team {ofTeam}</a>
      )}
      <span class="hint">{providers?.join(", ") ?? "all providers"}</span>
      <span class="hint">{models?.join(", ") ?? "all models"}</span>
      {expires !== undefined && <span class="hint">expires {day(expires)}</span>}
      <span class="hint">last used {ago(lastUsed, Date.now())}</span>
    </>
  );
}

/** The ranges of the history. @param onRange Returns the address of a range */
function RangeSwitch({ last, onRange }: {
  last: string;
  onRange: (range: string) => string;
}): JSX.Element {
  return (
    <div class="segments" role="group" aria-label="How far back">
      {Object.entries(RANGES).map(([range, label]) => (
        <button
          type="button"
          key={range}
          aria-pressed={range === last}
          onClick={() => location.hash = onRange(range)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

const TITLES = { team: "Team", key: "Key", provider: "Provider" } as const;

function Head({ subject, state, last }: {
  subject: Subject;
  state: SubjectState | undefined;
  last: string;
}): JSX.Element {
  const { of, id } = subject;
  const by = useAddressQuery(of).get("by") ?? "";
  const name = state?.key?.name ?? id;
  return (
    <header class="subject-head">
      <div class="about">
        <h1>{TITLES[of]} {name}</h1>
        {state !== undefined && <About subject={subject} state={state} />}
      </div>
      <div class="about">
        <a href={toAddress("exchanges", { [of]: id })}>All exchanges</a>
        {of !== "provider" && <a href={toAddress("changes", { [of]: id })}>All changes</a>}
        <RangeSwitch last={last} onRange={(range) => toAddress(of, { id, last: range, by })} />
      </div>
    </header>
  );
}

function Limits({ state }: { state: SubjectState }): JSX.Element {
  const { use, limits } = state.team ?? state.key ?? state.provider ?? {};
  return (
    <section class="card" aria-label="Limits">
      <header>
        <h2>Limits</h2>
      </header>
      <LimitUse use={use} limits={limits} />
    </section>
  );
}

function LastChanges({ subject }: { subject: Subject }): JSX.Element {
  const { of, id } = subject;
  const filter = { key: "", team: "", [of]: id };
  const { value, error } = useChanges(filter, SHOWN_CHANGES);
  return (
    <section class="card" aria-label="Last changes">
      <header>
        <h2>Last changes</h2>
        <a href={toAddress("changes", { [of]: id })}>all</a>
      </header>
      <Problem error={error} />
      {value !== undefined && value.changes.length === 0 && <p class="empty">No changes yet.</p>}
      {value !== undefined && <ChangeItems changes={value.changes} now={Date.now()} />}
    </section>
  );
}

/** Shares of calls by the things that the page is not about. */
function Shares(
  { subject, report }: { subject: Subject; report: HistoryReport },
): JSX.Element | null {
  return subject.of === "provider"
    ? <TeamShares report={report} />
    : <ProviderShares report={report} />;
}

function Page({ subject, last, theme }: {
  subject: Subject;
  last: string;
  theme: string;
}): JSX.Element {
  const { value: state, error } = useSubject(subject);
  const { report, error: historyError } = useHistory(subject, last);
  return (
    <>
      <Head subject={subject} state={state} last={last} />
      <Problem error={error ?? historyError} />
      {report === undefined ? historyError === undefined && <p class="empty">Loading…</p> : (
        <>
          <Tiles of={report.totals} currency={report.currency} />
          <Causes report={report} subject={subject} />
          <Charts report={report} theme={theme} />
        </>
      )}
      {state !== undefined && (
        <div class="cards">
          {subject.of !== "provider" && <BudgetCards budgets={state.budgets} now={Date.now()} />}
          <Limits state={state} />
        </div>
      )}
      {report !== undefined && state !== undefined && subject.of === "team" && (
        <TeamKeys keys={state.keys} report={report} />
      )}
      {report !== undefined && <Shares subject={subject} report={report} />}
      <SubjectUsage subject={subject} last={last} />
      <LastExchanges subject={subject} />
      {subject.of !== "provider" && <LastChanges subject={subject} />}
      <p class="hint">
        Minutes are kept for a day, hours for 30 days; times are in UTC, and spend is by the prices
        at the time of the calls.
      </p>
    </>
  );
}

/** The range in the page's address. */
function useRange(view: string): string {
  const asked = useAddressQuery(view).get("last");
  return asked !== null && Object.hasOwn(RANGES, asked) ? asked : DEFAULT_RANGE;
}

/** The calls of all teams: which of them fails, why and since when. */
export function TeamsOverview({ theme }: { theme: string }): JSX.Element {
  const last = useRange("teams");
  const { report, error } = useHistory(undefined, last);
  return (
    <>
      <header class="subject-head">
        <span class="hint">All calls, by team at the time of the call; times are in UTC.</span>
        <RangeSwitch last={last} onRange={(range) => toAddress("teams", { last: range })} />
      </header>
      <Problem error={error} />
      {report === undefined && error === undefined && <p class="empty">Loading…</p>}
      {report !== undefined && (
        <>
          <Tiles of={report.totals} currency={report.currency} />
          <TeamShares report={report} />
          <Causes report={report} />
          <Charts report={report} theme={theme} />
          <ProviderShares report={report} />
        </>
      )}
    </>
  );
}

/** The page of the subject in the address. */
export function SubjectPage({ of, theme }: { of: Subject["of"]; theme: string }): JSX.Element {
  const id = useAddressQuery(of).get("id");
  const last = useRange(of);
  if (id === null || id === "") return <p class="empty">This address names no {of}.</p>;
  return <Page key={`${of} ${id}`} subject={{ of, id }} last={last} theme={theme} />;
}
