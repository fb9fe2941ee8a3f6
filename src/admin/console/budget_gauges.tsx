/**
 * Gauges of the budgets of teams and keys: the used amount, the renewal, and the date when the
 * budget runs out.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { BudgetList, BudgetParts, BudgetView } from "../budget_reports.ts";
import { formatCount } from "../../config/units.ts";
import { toAddress, toTeamKeys } from "./address.ts";
import { call } from "./client.ts";
import { amount, cost, duration, estimated, exactCost, percent, when } from "./format.ts";
import { nowIn } from "./limit_use.tsx";
import { Pill, Problem } from "./parts.tsx";
import type { Shown } from "./usage_query.ts";

/** Interval at which budgets are read again. Milliseconds. */
const REFRESH_MS = 60_000;
/** Number of gauges shown at first. */
const SHOWN_AT_ONCE = 12;
/** Maximum number of pages to read, each of up to 1000 keys. */
const MAX_PAGES = 5;

/** Reads the first pages of budgets; `isCut` if there are more. */
async function readBudgets(): Promise<{ budgets: readonly BudgetView[]; isCut: boolean }> {
  const budgets: BudgetView[] = [];
  let after: string | null = null;
  for (let page = 0; page < MAX_PAGES; page++) {
    const query: URLSearchParams = new URLSearchParams({
      limit: "1000",
      ...(after !== null && { after }),
    });
    const found: BudgetList = await call<BudgetList>("GET", `v1/budgets?${query}`);
    budgets.push(...found.budgets);
    after = found.next;
    if (after === null) break;
  }
  return { budgets, isCut: after !== null };
}

function endOf({ used, limit, runsOut }: BudgetView): number {
  if (used >= limit) return 0;
  return runsOut === null ? Infinity : Date.parse(runsOut);
}

/** Order of urgency: used up, then by the date when it runs out, then by the used part. */
function compare(one: BudgetView, other: BudgetView): number {
  const first = endOf(one);
  const second = endOf(other);
  return first === second ? other.used / other.limit - one.used / one.limit : first - second;
}

function isNarrowedTo({ of, id, team }: BudgetView, { narrowed }: Shown): boolean {
  const { key, team: wanted } = narrowed;
  if (key !== undefined) return of === "key" && id === key.value;
  return wanted === undefined || (of === "team" ? id : team ?? "(none)") === wanted.value;
}

/** Describes the average daily use. */
function paceOf({ perDay, unit }: BudgetView): string {
  if (perDay === null) return "pace unknown";
  if (perDay === 0) return "no recent use";
  const text = unit === "tokens" ? amount(Math.round(perDay)) : cost(perDay);
  return `${text} ${unit} a day`;
}

/** Time before the end of a budget from which on no time is named: each call changes it. */
const IMMINENT_MS = 5 * 60_000;

function Outlook({ of: budget, now }: { of: BudgetView; now: number }): JSX.Element {
  const { used, limit, perDay, runsOut } = budget;
  if (used >= limit) return <Pill kind="bad">used up</Pill>;
  const pace = paceOf(budget);
  if (runsOut === null) {
    return (
      <span class="hint">{pace}{perDay !== null && perDay > 0 && ": lasts until it renews"}</span>
    );
  }
  return (
    <>
      <Pill kind="warn">
        {Date.parse(runsOut) - now < IMMINENT_MS
          ? "about to run out"
          : `will run out about ${when(runsOut, now)}`}
      </Pill>
      <span class="hint">{pace}</span>
    </>
  );
}

/** Smallest amount of a budget that is named as a part: rounding makes smaller ones. */
const SMALLEST = 0.0001;

/** The parts of the used amount: stated, estimated, and not in usage. */
function Parts({ of: parts, text }: {
  of: BudgetParts | null;
  text: (value: number) => string;
}): JSX.Element {
  if (parts === null) return <span class="hint">parts unknown: usage can't be read</span>;
  const { stated, rest, unpriced = {} } = parts;
  const missing = Object.entries(unpriced).map(([name, value]) => `${name} ${amount(value)}`);
  return (
    <div class="parts">
      <span class="hint">{text(stated)} stated</span>
      {parts.estimated > 0 && (
        <span class="hint">{estimated(text(parts.estimated), true)} estimated</span>
      )}
      {rest >= SMALLEST && <span class="hint">{text(rest)} reserved or not in usage</span>}
      {missing.length > 0 && <span class="hint">without a price: {missing.join(", ")}</span>}
    </div>
  );
}

function Gauge({ of: budget, now }: { of: BudgetView; now: number }): JSX.Element {
  const { of, id, name, team, unit, limit, used, parts, mode, period, renews } = budget;
  const title = of === "team" ? `Team ${id}` : name ?? id;
  const isOfTokens = unit === "tokens";
  const text = isOfTokens ? amount : cost;
  const isEstimated = parts !== null && parts.estimated > 0;
  const most = isOfTokens ? formatCount(limit) : exactCost(limit);
  return (
    <li>
      <div class="whose">
        <a
          class="label"
          href={of === "team" ? toTeamKeys(id) : toAddress("keys", { search: id })}
        >
          <b>{title}</b>
        </a>
        {of === "key" && name !== undefined && <span class="mono hint">{id}</span>}
        {team !== undefined && (
          <span class="hint">
            team <a href={toTeamKeys(team)}>{team}</a>
          </span>
        )}
      </div>
      <meter
        min={0}
        max={limit}
        high={limit * 0.9}
        value={Math.min(used, limit)}
        aria-label={`Budget of ${title}`}
      >
        {percent(used / limit)}
      </meter>
      <div class="whose">
        <span>
          <b>{estimated(text(used), isEstimated)}</b> of {most} {unit} {nowIn(period)}
        </span>
        <span class="hint">{percent(used / limit)}</span>
        {mode !== "enforce" && (
          <span class="hint">{mode === "observe" ? "only observed" : mode}</span>
        )}
      </div>
      <Parts of={parts} text={text} />
      <div class="outlook">
        <Outlook of={budget} now={now} />
        <span class="hint">
          renews {when(renews, now)}, in {duration(Math.max(60_000, Date.parse(renews) - now))}
        </span>
      </div>
    </li>
  );
}

/** The budgets of one team or key. */
export function BudgetCards({ budgets, now }: {
  budgets: readonly BudgetView[];
  now: number;
}): JSX.Element {
  return (
    <section class="card" aria-label="Budgets">
      <header>
        <h2>Budgets</h2>
        <span class="hint">with their forecast; dates in UTC</span>
      </header>
      {budgets.length === 0 && <p class="empty">No budget.</p>}
      <ul class="gauges">
        {budgets.map((each) => <Gauge key={each.unit} of={each} now={now} />)}
      </ul>
    </section>
  );
}

function useBudgets() {
  const [list, setList] = useState<Awaited<ReturnType<typeof readBudgets>> | undefined>(undefined);
  const [error, setError] = useState<unknown>(undefined);
  useEffect(() => {
    let isGone = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const reload = async () => {
      try {
        const found = document.hidden ? undefined : await readBudgets();
        if (isGone) return;
        if (found !== undefined) setList(found);
        setError(undefined);
      } catch (thrown) {
        if (isGone) return;
        setError(thrown);
      }
      timer = setTimeout(reload, REFRESH_MS);
    };
    reload();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, []);
  return { list, error };
}

/** The budgets that match the view's filters, the most urgent first. */
export function BudgetGauges({ shown, now }: { shown: Shown; now: number }): JSX.Element {
  const { list, error } = useBudgets();
  const [isWhole, setWhole] = useState(false);
  const found = list?.budgets.filter((each) => isNarrowedTo(each, shown)).sort(compare) ?? [];
  return (
    <section class="card" aria-label="Budgets">
      <header>
        <h2>Budgets</h2>
        <span class="hint">the most urgent first; dates in UTC</span>
      </header>
      <Problem error={error} />
      {list !== undefined && found.length === 0 && (
        <p class="empty">
          {list.budgets.length === 0
            ? "None yet. Keys get one in the view of keys, teams by sallyport teams."
            : "None of the ones shown here."}
        </p>
      )}
      <ul class="gauges">
        {(isWhole ? found : found.slice(0, SHOWN_AT_ONCE)).map((each) => (
          <Gauge key={`${each.of} ${each.id} ${each.unit}`} of={each} now={now} />
        ))}
      </ul>
      {!isWhole && found.length > SHOWN_AT_ONCE && (
        <button
          type="button"
          onClick={() => setWhole(true)}
        >
          Show all {found.length}
        </button>
      )}
      {found.length > 0 && (
        <p class="hint">
          The pace is the average of the last 7 days (of a budget for a day: of the last 24 hours),
          or since the first use in them, at least an hour. What was stated and estimated is from
          the usage of the same period, money by current prices.{list?.isCut &&
            " There are more keys than were looked through."}
        </p>
      )}
    </section>
  );
}
