/**
 * The table of usage: a row for each key, team, model, provider or operation, with its share and
 * its cost.
 *
 * @module
 */
import type { JSX } from "preact";
import { amount, cost, ESTIMATED, percent } from "./format.ts";
import type { UsageOrder } from "../../usage/query.ts";
import type { UsageLine } from "../../usage/report.ts";
import type { UsageSums } from "../../usage/sums.ts";
import { bucketLabel } from "./usage_chart.tsx";
import { amountOf, type UsageData } from "./usage_data.ts";
import {
  type Dimension,
  DIMENSIONS,
  dimensionsOf,
  labelOf,
  MEASURES,
  nextDimension,
  valueOf,
} from "./usage_query.ts";

/** Columns of numbers, with their titles. */
const COLUMNS: readonly [name: UsageOrder & keyof UsageSums, title: string, about: string][] = [
  ["tokens", "Tokens", "Input, output, and tokens that were stated only as a sum"],
  ["requests", "Calls", "Calls that were sent to a provider"],
  ["failed", "Failed", "Calls that the provider refused, or that never reached it"],
  [
    "estimated",
    "Estimated",
    "Calls whose tokens the gateway estimated, because the provider stated none",
  ],
  ["input", "Input", "Tokens of prompts"],
  ["cached", "Cached", "Input tokens from the provider's cache"],
  ["output", "Output", "Tokens of answers"],
  ["reasoning", "Reasoning", "Output tokens that the caller does not see"],
];
/** Returns the number of tokens that the gateway estimated. */
export const estimatedTokens = ({ estimatedInput, estimatedOutput }: UsageSums): number =>
  estimatedInput + estimatedOutput;

/** Sums that can include estimated tokens, with functions that return the estimated part. */
const ESTIMATES: Readonly<Partial<Record<keyof UsageSums, (sums: UsageSums) => number>>> = {
  input: ({ estimatedInput }) => estimatedInput,
  output: ({ estimatedOutput }) => estimatedOutput,
  tokens: estimatedTokens,
};

/**
 * The mark of an amount that includes estimated tokens. In rows of earlier versions their number is
 * unknown.
 */
function Estimated({ of: sums, part, toText }: {
  of: UsageSums;
  part: number;
  toText: (part: number) => string;
}): JSX.Element | null {
  const isKnown = estimatedTokens(sums) > 0; // in a report by class, they are all that is known
  if (sums.estimated === 0 && !isKnown) return null;
  if (isKnown && part === 0) return null;
  return (
    <abbr title={`${isKnown ? toText(part) : "in part"} estimated by the gateway`}>
      {ESTIMATED}
    </abbr>
  );
}

/** The mark of a cost that is a lower bound, because something has no price. */
function LowerBound({ of: sums }: { of: UsageSums }): JSX.Element | null {
  if (!sums.costIsPartial) return null;
  const classes = Object.entries(sums.unpricedClasses ?? {});
  const missing = classes.map(([name, value]) => `${name} ${amount(value)}`).join(", ");
  return <abbr class="bound" title={`At least: no price for ${missing}`}>&gt;=</abbr>;
}

/** The cost of a row's tokens that have a price. */
export function Cost({ of: sums }: { of: UsageSums }): JSX.Element {
  if (sums.cost === null) return <span class="hint">{sums.tokens > 0 ? "no price" : "–"}</span>;
  return (
    <>
      <LowerBound of={sums} />
      <Estimated of={sums} part={Number(sums.estimatedCost)} toText={cost} />
      {cost(Number(sums.cost))}
      {sums.unpriced > 0 && <span class="hint">{amount(sums.unpriced)} unpriced</span>}
    </>
  );
}

function Numbers(
  { of: sums, currency }: { of: UsageSums; currency: string },
): JSX.Element {
  return (
    <>
      <td class="number" data-label={`Cost ${currency}`}>
        <Cost of={sums} />
      </td>
      {COLUMNS.map(([name, title]) => {
        const value = Number(sums[name]);
        const part = ESTIMATES[name]?.(sums);
        return (
          <td
            key={name}
            data-label={title}
            class={`number${name === "failed" && value > 0 ? " failed" : ""}`}
          >
            {part !== undefined && <Estimated of={sums} part={part} toText={amount} />}
            {amount(value)}
          </td>
        );
      })}
    </>
  );
}

function Share({ of: share }: { of: number }): JSX.Element {
  return (
    <td class="number share" data-label="Share">
      <span>{percent(share)}</span>
      {share > 0 && <i style={{ width: `${Math.max(share * 100, 1)}%` }} />}
    </td>
  );
}

function Name({ line, dimension, onOpen }: {
  line: UsageLine;
  dimension: Dimension;
  onOpen: (() => void) | undefined;
}): JSX.Element {
  const label = labelOf(line, dimension);
  return (
    <th scope="row">
      {onOpen === undefined ? <span class="label">{label}</span> : (
        <button
          type="button"
          class="plain"
          title={`Open ${DIMENSIONS[dimension].toLowerCase()} ${label}`}
          onClick={onOpen}
        >
          <span class="label">{label}</span>
        </button>
      )}
      {dimension === "class" && line.amount !== undefined && (
        <span class="hint">{amount(line.amount)}</span>
      )}
      {dimension === "key" && line.name !== undefined && <span class="mono hint">{line.key}</span>}
    </th>
  );
}

/** Order of the rows: a column and a direction. */
export interface Order {
  readonly name: UsageOrder | Dimension;
  readonly isUp: boolean;
}

/** The heading of a column, which orders the rows. */
function Heading({ name, title, about, order, onSort }: {
  name: UsageOrder | Dimension;
  title: string;
  about?: string;
  order: Order;
  onSort: (name: UsageOrder | Dimension) => void;
}): JSX.Element {
  const isSorted = order.name === name;
  const direction = order.isUp ? "ascending" : "descending";
  return (
    <th
      scope="col"
      class={name in DIMENSIONS ? "" : "number"}
      aria-sort={isSorted ? direction : undefined}
    >
      <button type="button" class="plain" title={about} onClick={() => onSort(name)}>
        {title}
        {isSorted && <span aria-hidden="true">{order.isUp ? "↑" : "↓"}</span>}
      </button>
    </th>
  );
}

/** The headings of the table. */
function Headings({ data, order, onSort }: {
  data: UsageData;
  order: Order;
  onSort: (name: UsageOrder | Dimension) => void;
}): JSX.Element {
  const { shown, table } = data;
  const title = `Of ${MEASURES[shown.measure].toLowerCase()}`;
  return (
    <thead>
      <tr>
        {dimensionsOf(shown).map((each) => (
          <Heading key={each} name={each} title={DIMENSIONS[each]} {...{ order, onSort }} />
        ))}
        {shown.then === "time" && <th scope="col">Time, UTC</th>}
        <th scope="col" class="number" title={title}>Share</th>
        <Heading
          name="cost"
          title={`Cost ${table.currency}`}
          about="By current prices"
          {...{ order, onSort }}
        />
        {COLUMNS.map(([name, title, about]) => (
          <Heading key={name} {...{ name, title, about, order, onSort }} />
        ))}
      </tr>
    </thead>
  );
}

/** The table. */
export function UsageTable({ data, rows, order, onSort, onOpen }: {
  data: UsageData;
  rows: readonly UsageLine[];
  order: Order;
  onSort: (name: UsageOrder | Dimension) => void;
  onOpen: (line: UsageLine) => void;
}): JSX.Element {
  const { shown } = data;
  const { step } = data.period;
  const { totals } = data.table;
  const { measure, then } = shown;
  const dimensions = dimensionsOf(shown);
  const whole = amountOf(totals, measure);
  const canOpen = nextDimension(shown) !== undefined;
  return (
    <div class="scroll" role="region" aria-label="Usage" tabIndex={0}>
      <table class="usage">
        <Headings data={data} order={order} onSort={onSort} />
        <tbody>
          {rows.map((line) => (
            <tr key={[...dimensions, step].map((each) => line[each]).join("\n")}>
              {dimensions.map((each) => (
                <Name
                  key={each}
                  line={line}
                  dimension={each}
                  onOpen={canOpen ? () => onOpen(line) : undefined}
                />
              ))}
              {then === "time" && <td class="time">{bucketLabel(valueOf(line, step), step)}</td>}
              <Share of={whole === 0 ? 0 : amountOf(line, measure) / whole} />
              <Numbers of={line} currency={data.table.currency} />
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row" colSpan={dimensions.length + (then === "time" ? 1 : 0)}>Total</th>
            <Share of={whole === 0 ? 0 : 1} />
            <Numbers of={totals} currency={data.table.currency} />
          </tr>
        </tfoot>
      </table>
    </div>
  );
}
