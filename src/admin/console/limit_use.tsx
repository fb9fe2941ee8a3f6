/**
 * The use of limits: of a key, and of the teams that keys belong to.
 *
 * @module
 */
import type { JSX } from "preact";
import type { Limits, Team, Use } from "./client.ts";
import { amount, duration, money, percent } from "./format.ts";

/** Finds the budget of tokens or of money among the written ones. */
export function findBudget(limits: Limits | undefined, isMoney: boolean): string {
  return [limits?.budget ?? []].flat().map(String).find((text) => text.includes(" ") === isMoney) ?? "";
}

/** Describes the use of a limit: `budget 2M of 5M/month`, or `12.40 of 50 USD this month`. */
function Amounts({ of: { name, limit, used }, limits }: { of: Use; limits: Limits | undefined }): JSX.Element {
  if (name === "spend") {
    const [whole, period] = findBudget(limits, true).split("/");
    return (
      <span>
        <b>{money(used)}</b> of {whole} {period === "day" ? "today" : "this month"}
      </span>
    );
  }
  const written = name === "budget" ? findBudget(limits, false) : limits?.[name];
  return (
    <span>
      {name} <b>{amount(used)}</b> of {String(written ?? amount(limit))}
    </span>
  );
}

/** The use of all limits of one subject. */
export function LimitUse({ use, limits }: {
  use: readonly Use[] | undefined;
  limits: Limits | undefined;
}): JSX.Element {
  if (use === undefined || use.length === 0) return <span class="hint">no limits</span>;
  return (
    <ul class="uses">
      {use.map((each) => {
        const { name, limit, used, resetsIn } = each;
        return (
          <li key={name}>
            <Amounts of={each} limits={limits} />
            <meter min={0} max={limit} high={limit * 0.9} value={Math.min(used, limit)} aria-label={`${name} used`}>
              {percent(used / limit)}
            </meter>
            {resetsIn !== undefined && used > 0 && (
              <span class="hint">anew in {duration(Number.parseInt(resetsIn) * 1000)}</span>
            )}
          </li>
        );
      })}
      {limits?.mode === "observe" && <li class="hint">only observed</li>}
      {limits?.mode === "strict" && <li class="hint">strict</li>}
    </ul>
  );
}

/** The configured teams, and what their keys together have used. */
export function Teams({ teams }: { teams: readonly Team[] }): JSX.Element | null {
  if (teams.length === 0) return null;
  return (
    <section class="card">
      <header>
        <h2>Teams</h2>
        <span class="legend">what the keys of each have used together</span>
      </header>
      {teams.map(({ name, limits, use }) => (
        <div key={name} class="team" role="group" aria-label={`Team ${name}`}>
          <b class="name">{name}</b>
          <LimitUse use={use} limits={limits} />
        </div>
      ))}
    </section>
  );
}
