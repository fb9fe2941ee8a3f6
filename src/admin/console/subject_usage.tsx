/**
 * The usage of a team, a key or a provider by one dimension, such as the model or the user.
 *
 * @module
 */
import type { JSX } from "preact";
import type { UsageLine, UsageReport } from "../../usage/report.ts";
import { type Subject, toAddress, useAddressQuery } from "./address.ts";
import { call } from "./client.ts";
import { amount } from "./format.ts";
import { Problem, usePolled } from "./parts.tsx";
import {
  type Dimension,
  DIMENSION_NAMES,
  DIMENSIONS,
  labelOf,
  offeredDimensions,
  valueOf,
} from "./usage_query.ts";
import { Cost } from "./usage_table.tsx";

const DEFAULT_DIMENSION = "model";
/** Number of rows on the page. The view of usage has all. */
const SHOWN_ROWS = 10;

/** Returns the address of the view of usage, which has no range of an hour. */
function toUsage({ of, id }: Subject, last: string, parts: Record<string, string>): string {
  return toAddress("usage", { [of]: id, range: last === "30d" ? "30d" : "24h", ...parts });
}

function Row({ line, by, subject, last }: {
  line: UsageLine;
  by: Dimension;
  subject: Subject;
  last: string;
}): JSX.Element {
  const label = labelOf(line, by);
  const value = valueOf(line, by);
  const next = by === "model" ? "key" : "model";
  return (
    <tr>
      <th scope="row">
        {by === "class"
          ? label
          : <a href={toUsage(subject, last, { by: next, [by]: value })}>{label}</a>}
      </th>
      <td class="number">{amount(line.requests)}</td>
      <td class="number">{amount(line.failed)}</td>
      <td class="number">{amount(line.tokens)}</td>
      <td class="number">
        <Cost of={line} />
      </td>
    </tr>
  );
}

function Table({ report, children }: {
  report: UsageReport;
  children: (line: UsageLine) => JSX.Element;
}): JSX.Element {
  const [by = DEFAULT_DIMENSION] = report.by as Dimension[]; // as it was asked for
  return (
    <div class="scroll" role="region" aria-label="Table of usage" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">{DIMENSIONS[by]}</th>
            <th scope="col" class="number">Calls</th>
            <th scope="col" class="number">Failed</th>
            <th scope="col" class="number">Tokens</th>
            <th scope="col" class="number">Cost {report.currency}</th>
          </tr>
        </thead>
        <tbody>{report.rows.map(children)}</tbody>
      </table>
    </div>
  );
}

/** The usage of a subject, by the dimension in the page's address. */
export function SubjectUsage({ subject, last }: { subject: Subject; last: string }): JSX.Element {
  const { of, id } = subject;
  const asked = useAddressQuery(of).get("by");
  const by = DIMENSION_NAMES.find((name) => name === asked && name !== of) ?? DEFAULT_DIMENSION;
  const query = { by, [of]: id, last, sort: "tokens", limit: String(SHOWN_ROWS) };
  const { value: report, error } = usePolled(
    () => call<UsageReport>("GET", `v1/usage?${new URLSearchParams(query)}`),
    [of, id, last, by],
  );
  const offered = offeredDimensions(report?.counted ?? [], [by])
    .filter((name) => name !== of && !(of === "key" && name === "team"));
  return (
    <section class="card flush shares" aria-label="Usage">
      <header>
        <h2>Usage</h2>
        <select
          class="narrow"
          aria-label="Usage by"
          value={by}
          onChange={(event) =>
            location.hash = toAddress(of, { id, last, by: event.currentTarget.value })}
        >
          {offered.map((name) => (
            <option key={name} value={name}>by {DIMENSIONS[name].toLowerCase()}</option>
          ))}
        </select>
        <a href={toUsage(subject, last, { by })}>all</a>
      </header>
      <Problem error={error} />
      {report?.rows.length === 0 && <p class="empty">Nothing was used in this time.</p>}
      {report !== undefined && report.rows.length > 0 && (
        <Table report={report}>
          {(line) => (
            <Row
              key={valueOf(line, by)}
              line={line}
              by={by}
              subject={subject}
              last={last}
            />
          )}
        </Table>
      )}
      {report !== undefined && report.left > 0 && (
        <p class="hint more">and {amount(report.left)} more</p>
      )}
    </section>
  );
}
