/**
 * The use of limits: of a key, of a provider, and of the teams that keys belong to.
 *
 * @module
 */
import type { JSX } from "preact";
import type { WrittenLimits } from "../../config/limit_set.ts";
import type { LimitName } from "../../config/limit_kinds.ts";
import type { LimitUse as Use } from "../limit_use.ts";
import { amount, cost, percent, rate, span } from "./format.ts";

/** Share of a limit at which its bar warns. */
const HIGH = 0.9;

/** Display names of limits. */
export const LABELS: Readonly<Record<LimitName, string>> = {
  requests: "Requests",
  tokens: "Tokens",
  budget: "Budget of tokens",
  spend: "Budget of money",
  concurrency: "Open at once",
};

/** Finds the written budget of tokens or of money. */
export function findBudget(limits: WrittenLimits | undefined, isMoney: boolean): string {
  return [limits?.budget ?? []].flat().map(String).find((text) => text.includes(" ") === isMoney) ??
    "";
}

/** Names the current period of a budget. */
export const nowIn = (period: string | undefined): string =>
  period === "day" ? "today" : `this ${period}`;

/** Describes the maximum of a limit: `600 per minute`, `5M tokens this month`, `50 USD today`. */
function toMost({ name, limit }: Use, limits: WrittenLimits | undefined): string {
  if (name !== "budget" && name !== "spend") return rate(String(limits?.[name] ?? amount(limit)));
  const [whole, period] = findBudget(limits, name === "spend").split("/");
  const unit = name === "budget" ? " tokens" : "";
  return `${whole ?? amount(limit)}${unit} ${nowIn(period)}`;
}

function Limit({ of, limits }: { of: Use; limits: WrittenLimits | undefined }): JSX.Element {
  const { name, limit, used, resetsIn } = of;
  const label = LABELS[name];
  return (
    <li>
      <span class="what">
        <span>{label}</span>{" "}
        <span>
          <b>{name === "spend" ? cost(used) : amount(used)}</b> of {toMost(of, limits)}
        </span>
      </span>
      <meter
        min={0}
        max={limit}
        high={limit * HIGH}
        value={Math.min(used, limit)}
        aria-label={`${label} used`}
      >
        {percent(used / limit)}
      </meter>
      {resetsIn !== undefined && used > 0 && (
        <span class="hint">renews in {span(Number.parseInt(resetsIn) * 1000)}</span>
      )}
    </li>
  );
}

/** The use of all limits of one subject. `team` is the team whose limits apply to a key too. */
export function LimitUse({ use, limits, team }: {
  use: readonly Use[] | undefined;
  limits: WrittenLimits | undefined;
  team?: string | undefined;
}): JSX.Element {
  if (use === undefined || use.length === 0) {
    return (
      <span class="hint">
        {team === undefined ? "no limits" : `only the limits of team ${team}`}
      </span>
    );
  }
  return (
    <>
      <ul class="uses">
        {use.map((each) => <Limit key={each.name} of={each} limits={limits} />)}
      </ul>
      {limits?.mode === "observe" && <span class="hint">only observed: no call is refused</span>}
      {limits?.mode === "strict" && (
        <span class="hint">strict: calls that could exceed a limit are refused too</span>
      )}
    </>
  );
}
