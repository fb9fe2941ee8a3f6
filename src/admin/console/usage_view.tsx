/**
 * The view of usage and cost: over time, in a table, and the budgets.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAddress } from "./address.ts";
import { BudgetGauges } from "./budget_gauges.tsx";
import { fetchFile } from "./client.ts";
import { amount, cost, ESTIMATED, estimated, percent } from "./format.ts";
import { Problem, useAct } from "./parts.tsx";
import type { Snapshot } from "./store.ts";
import type { UsageLine } from "../../usage/report.ts";
import type { UsageSums } from "../../usage/sums.ts";
import { UsageChart } from "./usage_chart.tsx";
import {
  hasText,
  saveFile,
  toBuckets,
  toCsv,
  toSeries,
  type UsageData,
  useUsage,
} from "./usage_data.ts";
import { DimensionFields, NarrowedList, RangeFields } from "./usage_fields.tsx";
import {
  type Dimension,
  DIMENSIONS,
  dimensionsOf,
  drillDown,
  labelOf,
  MEASURES,
  newShown,
  PART_NAMES,
  readShown,
  type Shown,
  type ShownParts,
  toExportQuery,
  toShownParts,
} from "./usage_query.ts";
import { estimatedTokens, type Order, UsageTable } from "./usage_table.tsx";

/** Number of rows shown at first. */
const SHOWN_AT_ONCE = 50;
/** Names in place of a team. */
const NO_TEAM: readonly string[] = ["(none)", "(removed)", "(identity tokens)"];

/** Address of the view when it was last left, to be restored on return. */
let left: ShownParts | undefined;

function Tiles({ of: data }: { of: UsageData }): JSX.Element {
  const { totals, currency } = data.table;
  const { requests, tokens, input, output, failed } = totals;
  const isEstimated = totals.estimated > 0;
  const known = estimatedTokens(totals);
  // Rows of earlier versions have only the number of calls.
  const share = known > 0 ? known / tokens : totals.estimated / Math.max(requests, 1);
  const calls = `${amount(totals.estimated)} calls`;
  const bound = totals.costIsPartial ? ">= " : "";
  const spent = totals.cost === null
    ? "–"
    : bound + estimated(cost(Number(totals.cost)), isEstimated);
  const tiles: [label: string, value: string, more: string][] = [
    [
      `Cost ${currency}`,
      spent,
      totals.costIsPartial ? "a part has no price" : "by current prices",
    ],
    [
      "Tokens",
      estimated(amount(tokens), isEstimated),
      `${amount(input)} input, ${amount(output)} output`,
    ],
    ["Calls", amount(requests), `${amount(failed)} failed`],
    ["Estimated", percent(share), known > 0 ? `${amount(known)} tokens, ${calls}` : calls],
  ];
  return (
    <dl class="tiles usage-tiles">
      {tiles.map(([label, value, more]) => (
        <div class="tile" key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
          <dd class="more">{more}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Describes the estimated share of calls, tokens and money, if it is known. */
function tellEstimated(totals: UsageSums): string {
  const { requests, tokens, estimatedCost } = totals;
  const calls = `the tokens of ${amount(totals.estimated)} of ${amount(requests)} calls`;
  const known = estimatedTokens(totals);
  if (known === 0) {
    return `${calls}. Earlier versions did not count how many tokens these are.`;
  }
  const money = totals.cost === null
    ? ""
    : `, ${cost(Number(estimatedCost))} of ${cost(Number(totals.cost))} in cost`;
  return `${calls}, ${amount(known)} of ${amount(tokens)} tokens${money}.`;
}

/** Hints that explain the amounts. */
function Hints({ of: data }: { of: UsageData }): JSX.Element {
  const { totals, backend } = data.table;
  const models = data.unpriced.map(({ model }) => model).join(", ");
  return (
    <div class="hints">
      {totals.unpriced > 0 && (
        <p>
          <b>{amount(totals.unpriced)} tokens have no price</b>{" "}
          and are no part of the cost{models !== "" && `, most of them of ${models}`}. Set{" "}
          <code>prices</code> in the configuration: they apply to the past too.
        </p>
      )}
      {totals.estimated > 0 && (
        <p class="hint">
          {ESTIMATED}{" "}
          marks amounts with tokens that the gateway estimated, because the provider stated none:
          {" "}
          {tellEstimated(totals)}
        </p>
      )}
      {totals.unmetered > 0 && (
        <p class="hint">
          {amount(totals.unmetered)} calls can have a cost that no answer stated.
        </p>
      )}
      {backend === "memory" && (
        <p class="hint">
          Kept in memory: lost when the gateway ends.
        </p>
      )}
    </div>
  );
}

function Downloads({ of: data, rows }: {
  of: UsageData;
  rows: UsageData["table"]["rows"];
}): JSX.Element {
  const { table, shown, period } = data;
  const { isBusy, error, act } = useAct();
  const name = `usage-${table.from.slice(0, 10)}-${table.to.slice(0, 10)}`;
  const saveShown = () =>
    saveFile(`${name}.csv`, new Blob([toCsv(table, rows)], { type: "text/csv" }));
  const saveAll = () =>
    act(async () => saveFile(`${name}-full.csv`, await fetchFile(toExportQuery(shown, period))));
  return (
    <>
      <button type="button" onClick={saveShown}>CSV of these rows</button>
      <button type="button" disabled={isBusy} onClick={saveAll}>Full export</button>
      <Problem error={error} />
    </>
  );
}

const isDimension = (name: Order["name"]): name is Dimension => name in DIMENSIONS;

/** Sorts rows, which arrive with the largest first, in another order. */
function arrange(rows: readonly UsageLine[], { name, isUp }: Order): readonly UsageLine[] {
  if (!isDimension(name)) return isUp ? rows.toReversed() : rows;
  const sorted = rows.toSorted((one, other) =>
    labelOf(one, name).localeCompare(labelOf(other, name))
  );
  return isUp ? sorted : sorted.reverse();
}

function Rows(
  { data, onShown }: { data: UsageData; onShown: (shown: Shown) => void },
): JSX.Element {
  const [text, setText] = useState("");
  const [count, setCount] = useState(SHOWN_AT_ONCE);
  const [own, setOwn] = useState<Order | undefined>(undefined);
  const { table, shown } = data;
  const order = own ?? { name: shown.sort, isUp: false };
  const named = table.rows.filter((line) =>
    hasText(line, dimensionsOf(shown), text.trim().toLowerCase())
  );
  const found = arrange(named, order);
  const onSort = (name: Order["name"]) => {
    if (name === order.name) return setOwn({ name, isUp: !order.isUp });
    setOwn(isDimension(name) ? { name, isUp: true } : undefined);
    if (!isDimension(name) && name !== shown.sort) onShown({ ...shown, sort: name });
  };
  return (
    <>
      <div class="toolbar">
        <input
          type="search"
          class="grow"
          aria-label="Filter rows"
          placeholder="Filter rows by name"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <Downloads of={data} rows={found} />
      </div>
      <section class="card flush">
        {found.length === 0
          ? (
            <p class="empty">
              {table.rows.length === 0 ? "Nothing was used in this time." : "No row has this name."}
            </p>
          )
          : (
            <UsageTable
              data={data}
              rows={found.slice(0, count)}
              order={order}
              onSort={onSort}
              onOpen={(line) => onShown(drillDown(shown, line))}
            />
          )}
      </section>
      <div class="toolbar">
        <span class="hint grow">
          {Math.min(count, found.length)} of {found.length} rows
          {table.left > 0 &&
            `, the largest of ${amount(table.rows.length + table.left)}: the full export has all`}
        </span>
        {found.length > count && (
          <button type="button" onClick={() => setCount(count * 4)}>Show more</button>
        )}
      </div>
    </>
  );
}

function Report({ data, theme, onShown }: {
  data: UsageData;
  theme: string;
  onShown: (shown: Shown) => void;
}): JSX.Element {
  const { shown, chart } = data;
  const { step } = data.period;
  const { by, measure } = shown;
  const drawn = useMemo(() => {
    const buckets = toBuckets(chart, step);
    return { buckets, step, series: toSeries(chart, buckets, shown) };
  }, [data]);
  const unit = measure === "cost" ? ` in ${data.table.currency}` : "";
  const title = `${MEASURES[measure]}${unit} by ${by} and ${step}`;
  return (
    <>
      <Tiles of={data} />
      <UsageChart
        title={title}
        theme={theme}
        format={measure === "cost" ? cost : amount}
        {...drawn}
      />
      <Hints of={data} />
      <Rows
        key={JSON.stringify([by, shown.then, shown.narrowed])}
        data={data}
        onShown={onShown}
      />
    </>
  );
}

/**
 * The state of the view in the page's address, and a function that changes it. `isChosen` is false
 * for an address without a state, before the first change.
 */
function useShown(): [shown: Shown, onShown: (shown: Shown) => void, isChosen: boolean] {
  const [initial] = useState(() => newShown(Date.now()));
  const [parts, setParts] = useAddress("usage", PART_NAMES);
  const isChosen = Object.keys(parts).length > 0;
  const read = readShown(parts, initial);
  const shown = useRef(read);
  // The same state stays the same object, so that nothing is loaded again.
  if (JSON.stringify(shown.current) !== JSON.stringify(read)) shown.current = read;
  const onShown = (next: Shown) => setParts(toShownParts(next, initial));
  useEffect(() => {
    if (!isChosen && left !== undefined) setParts(left);
  }, []);
  useEffect(() => {
    if (isChosen) left = parts;
  }, [parts]);
  return [shown.current, onShown, isChosen];
}

/** The view. */
export function Usage(
  { snapshot, theme }: { snapshot: Snapshot; theme: string },
): JSX.Element {
  const now = snapshot.report?.now ?? Date.now();
  const [shown, onShown, isChosen] = useShown();
  const { data, error, isLoading } = useUsage(shown);
  useEffect(() => {
    // If no key has a team, groups by key.
    if (data === undefined || isChosen) return;
    const isTold = data.table.rows.some(({ team }) => !NO_TEAM.includes(team ?? ""));
    onShown(isTold ? shown : { ...shown, by: "key" });
  }, [data]);
  return (
    <>
      <h1 class="sr">Usage</h1>
      <RangeFields shown={shown} onShown={onShown} />
      <DimensionFields
        shown={shown}
        onShown={onShown}
        isLoading={isLoading}
        counted={data?.table.counted ?? []}
      />
      <NarrowedList shown={shown} onShown={onShown} />
      <Problem error={error} />
      {data !== undefined && <Report data={data} theme={theme} onShown={onShown} />}
      <BudgetGauges shown={shown} now={now} />
    </>
  );
}
