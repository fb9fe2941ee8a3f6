/**
 * The tables of the page of a team, key or provider: why its calls fail and since when, and the shares of its
 * keys and providers.
 *
 * @module
 */
import type { JSX } from "preact";
import type { HistoryEnd, HistoryReport, HistoryShare } from "../../usage/history/report.ts";
import type { KeyView } from "../key_administration.ts";
import { ago, amount, cost, duration, words } from "./format.ts";
import { LimitUse } from "./limit_use.tsx";
import { Pill } from "./parts.tsx";
import { type Subject, toAddress, toSubjectAddress } from "./address.ts";

const toClock = (time: string): string => `${time.slice(0, 16).replace("T", " ")} UTC`;

/** A time since then, with the exact one. */
function When({ time, now }: { time: string; now: number }): JSX.Element {
  return (
    <>
      <time dateTime={time}>{ago(time, now)}</time> <span class="hint">{toClock(time)}</span>
    </>
  );
}

/** Returns the address of the exchanges with an end. */
function toExchanges(subject: Subject | undefined, { end }: HistoryEnd): string {
  const [, status] = /^upstream_(\d{3})$/.exec(end) ?? [];
  return toAddress("exchanges", {
    ...(subject !== undefined && { [subject.of]: subject.id }),
    ...(status === undefined ? { code: end } : { status }),
  });
}

/** The causes of failed calls, the errors first, and since when each occurs. */
export function Causes({ report, subject }: {
  report: HistoryReport;
  /** Left out for the causes of all calls. */
  subject?: Subject;
}): JSX.Element {
  const { ends } = report;
  const now = Date.now();
  const ordered = ends.toSorted((one, other) =>
    Number(other.concern === "operator") - Number(one.concern === "operator")
  );
  return (
    <section class="card" aria-label="Failed calls by cause">
      <header>
        <h2>Why calls fail, and since when</h2>
        <span class="legend">in this time</span>
      </header>
      {ordered.length === 0 ? <p class="empty">No call has failed.</p> : (
        <ul class="causes">
          {ordered.map((each) => (
            <li key={`${each.concern} ${each.end}`}>
              <Pill kind={each.concern === "operator" ? "bad" : "warn"}>
                {each.concern === "operator" ? "error" : "refused"}
              </Pill>
              <a href={toExchanges(subject, each)}>{words(each.end)}</a>
              <b>{amount(each.calls)}</b>
              <span class="when">
                since <When time={each.since} now={now} />
              </span>
              <span class="when">
                last <When time={each.last} now={now} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function ShareCells({ of }: { of: HistoryShare | undefined }): JSX.Element {
  const failed = of === undefined ? 0 : of.errors + of.refused;
  return (
    <>
      <td class="number">{of === undefined ? "0" : amount(of.calls)}</td>
      <td class="number">{amount(failed)}</td>
      <td class="number">{cost(of?.cost ?? 0)}</td>
      <td class="number">{duration(of?.p95)}</td>
    </>
  );
}

function Heads({ first, currency }: { first: string; currency: string }): JSX.Element {
  return (
    <>
      <th scope="col">{first}</th>
      <th scope="col" class="number">Calls</th>
      <th scope="col" class="number">Failed</th>
      <th scope="col" class="number">Spend {currency}</th>
      <th scope="col" class="number">p95</th>
    </>
  );
}

/** The keys of a team, those with the most calls first, with their limits. */
export function TeamKeys({ keys, report }: {
  keys: readonly KeyView[];
  report: HistoryReport;
}): JSX.Element {
  const shares = new Map(report.keys.map((share) => [share.id, share]));
  const callsOf = ({ id }: { id: string }) => shares.get(id)?.calls ?? 0;
  const known = new Set(keys.map(({ id }) => id));
  // Keys that were in the team, or no longer exist.
  const former = report.keys.filter(({ id }) => !known.has(id));
  const ordered = keys.toSorted((one, other) => callsOf(other) - callsOf(one));
  return (
    <section class="card flush shares" aria-label="Keys">
      <header>
        <h2>Keys</h2>
      </header>
      <div class="scroll" role="region" aria-label="Keys of the team" tabIndex={0}>
        <table class="subject-keys">
          <thead>
            <tr>
              <Heads first="Key" currency={report.currency} />
              <th scope="col">State</th>
              <th scope="col">Limits</th>
            </tr>
          </thead>
          <tbody>
            {ordered.map(({ id, name, state, use, limits }) => (
              <tr key={id}>
                <th scope="row">
                  <a href={toSubjectAddress({ of: "key", id })}>{name ?? id}</a>
                </th>
                <ShareCells of={shares.get(id)} />
                <td>{words(state)}</td>
                <td class="used">
                  <LimitUse use={use} limits={limits} />
                </td>
              </tr>
            ))}
            {former.map((share) => (
              <tr key={share.id}>
                <th scope="row">
                  {share.id === ""
                    ? "no key"
                    : <a href={toSubjectAddress({ of: "key", id: share.id })}>{share.id}</a>}
                </th>
                <ShareCells of={share} />
                <td>no longer in the team</td>
                <td />
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** A table of shares of calls. */
function ShareTable({ title, legend, first, shares, currency, name }: {
  title: string;
  legend?: string;
  /** Title of the first column. */
  first: string;
  shares: readonly HistoryShare[];
  currency: string;
  name: (id: string) => JSX.Element | string;
}): JSX.Element {
  return (
    <section class="card flush shares" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {legend !== undefined && <span class="legend">{legend}</span>}
      </header>
      <div class="scroll" role="region" aria-label={`Table of ${title}`} tabIndex={0}>
        <table>
          <thead>
            <tr>
              <Heads first={first} currency={currency} />
            </tr>
          </thead>
          <tbody>
            {shares.map((share) => (
              <tr key={share.id}>
                <th scope="row">{name(share.id)}</th>
                <ShareCells of={share} />
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** The teams with the most failed calls, then those with the most calls. */
export function TeamShares({ report }: { report: HistoryReport }): JSX.Element {
  const { teams, currency } = report;
  const shares = teams.toSorted((one, other) =>
    other.errors + other.refused - one.errors - one.refused || other.calls - one.calls
  );
  return (
    <ShareTable
      title="Calls by team"
      legend="the most failed calls first"
      first="Team"
      shares={shares}
      currency={currency}
      name={(id) => id === "" ? "no team" : <a href={toSubjectAddress({ of: "team", id })}>{id}</a>}
    />
  );
}

/** The shares of the providers. */
export function ProviderShares({ report }: { report: HistoryReport }): JSX.Element | null {
  const { providers, currency } = report;
  if (providers.length === 0) return null;
  return (
    <ShareTable
      title="Providers"
      first="Provider"
      shares={providers}
      currency={currency}
      name={(id) =>
        id === "" ? "none" : <a href={toSubjectAddress({ of: "provider", id })}>{id}</a>}
    />
  );
}
