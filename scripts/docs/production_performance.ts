/**
 * The tables of calls over TLS, of scenarios and of workers, from the results of `npm run bench`.
 *
 * `scripts/bench/production.json`, if it exists, is the `results.json` of a separate session that
 * measured these. Its results replace results of the same name from the main session.
 */
import { existsSync, readFileSync } from "node:fs";
import type { MeasurementName } from "../bench/names.ts";
import type { Comparison, Result, Row } from "../bench/session.ts";
import { toTable } from "./parts.ts";

const MAIN = "scripts/bench/results.json";
const PRODUCTION = "scripts/bench/production.json";
const NONE = "–";
const NOT_YET = "Not measured yet.";

const TLS: readonly MeasurementName[] = ["tls", "tls-streamed", "tls-single", "tls-first"];
const SCENARIOS: readonly MeasurementName[] = [
  "key-flood",
  "head-of-line",
  "argument-deltas",
  "session-replay",
];

/** All results of the two sessions. */
function readResults(files: readonly string[]): readonly Result[] {
  const [first = [], second = []] = files.filter((file) => existsSync(file)).map((
    file,
  ): readonly Result[] => JSON.parse(readFileSync(file, "utf8")).results);
  const names = new Set(first.map(({ name }) => name));
  return [...first, ...second.filter(({ name }) => !names.has(name))];
}

const toFigure = (value: number): string =>
  Math.abs(value) >= 100
    ? Math.round(value).toLocaleString("en")
    : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);

const isWrong = ({ answers }: Row): boolean => answers !== undefined && answers.wrong > 0;

/** A figure, and the comparison with ten bare lines. */
function toTime(row: Row, { unit, compare }: Result, comparison: Comparison | undefined): string {
  if (row.objections.length > 0) return NONE;
  const figure = `${toFigure(row.spread.median)} ${unit.replace(/ of processor time$/, "")}`;
  if (comparison === undefined) return figure;
  const { median } = comparison.spread;
  return compare === "ratio"
    ? `${figure} (${median.toFixed(2)} × bare)`
    : `${figure} (${median < 0 ? "" : "+"}${toFigure(median)})`;
}

/** The number of checked answers, or of wrong ones. */
function toTruth(row: Row): string {
  const { answers } = row;
  if (answers === undefined) return NONE;
  const count = answers.count.toLocaleString("en");
  return isWrong(row) ? `${answers.wrong.toLocaleString("en")} of ${count} WRONG` : `all ${count}`;
}

/** The figures of some measurements, each next to a column for truth. */
function toFigures(results: readonly Result[], names: readonly MeasurementName[]): string {
  const wanted = names.flatMap((name) => results.filter((result) => result.name === name));
  if (wanted.length === 0) return NOT_YET;
  const subjects = new Set(wanted.flatMap(({ rows }) => rows.map(({ subject }) => subject)));
  const rows = Array.from(subjects, (subject) => [
    subject,
    ...wanted.flatMap((result) => {
      const row = result.rows.find((each) => each.subject === subject);
      if (row === undefined) return [NONE, NONE];
      const comparison = result.comparisons.find((each) => each.subject === subject);
      return [toTime(row, result, comparison), toTruth(row)];
    }),
  ]);
  const head = ["", ...wanted.flatMap(({ title }) => [title, "answers right"])];
  return toTable(head, rows);
}

/** @returns Processor time and latency over TLS on both sides */
export function makeTls(files: readonly string[] = [PRODUCTION, MAIN]): string {
  return toFigures(readResults(files), TLS);
}

/** @returns The scenarios of AIGatewayBench */
export function makeScenarios(files: readonly string[] = [PRODUCTION, MAIN]): string {
  return toFigures(readResults(files), SCENARIOS);
}

/** @returns Throughput and processor time of one process and of two workers */
export function makeWorkers(files: readonly string[] = [PRODUCTION, MAIN]): string {
  const results = readResults(files).filter(({ name }) => name === "workers");
  if (results.length === 0) return NOT_YET;
  const subjects = new Set(results.flatMap(({ rows }) => rows.map(({ subject }) => subject)));
  const points = Array.from(new Set(results.map(({ at }) => at)));
  const cellsOf = (subject: string) =>
    points.flatMap((point) => {
      const row = results.filter(({ at }) => at === point).flatMap(({ rows }) => rows)
        .find((each) => each.subject === subject);
      if (row === undefined || row.objections.length > 0) return [NONE, NONE];
      return [toFigure(row.spread.median), `${toFigure(row.details.cpuUs ?? NaN)} µs`];
    });
  const head = ["", ...points.flatMap((at) => [`${at} connections, a second`, "CPU of a call"])];
  return toTable(head, Array.from(subjects, (subject) => [subject, ...cellsOf(subject)]));
}
