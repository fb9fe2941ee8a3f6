/**
 * The tables of streams and of goals, from the results of `npm run bench`.
 *
 * `scripts/bench/streams.json`, if it exists, is the `results.json` of a separate session that
 * measured streams. Its results replace results of the same name from the main session.
 */
import { existsSync, readFileSync } from "node:fs";
import { goalFor, isWithin, toText } from "../bench/goals.ts";
import type { Comparison, Result } from "../bench/session.ts";
import { toTable } from "./parts.ts";

interface Session {
  readonly measuredAt: string;
  readonly results: readonly Result[];
}

const MAIN = "scripts/bench/results.json";
const STREAMS = "scripts/bench/streams.json";
const NONE = "–";
const NOT_YET = "Not measured yet.";

/** Measurements with goals, in the order of the table. */
const GOALS: readonly { readonly name: Result["name"]; readonly text: string }[] = [
  { name: "paced", text: "processor time of an event" },
  { name: "delay", text: "added to the delay of an event, p99.9, ms" },
  { name: "conversation", text: "processor time of a conversation of 1 MB" },
  { name: "streamed", text: "streams of 20 events without a pace, a second" },
  { name: "plain", text: "plain calls, a second" },
  { name: "quiet", text: "memory of a quiet stream, kB" },
];
const RUNTIMES = ["bun", "deno", "node 26", "node 20"];

function readResults(): { readonly days: readonly string[]; readonly results: readonly Result[] } {
  const sessions = [STREAMS, MAIN].filter((file) => existsSync(file)).map((file): Session =>
    JSON.parse(readFileSync(file, "utf8"))
  );
  const [first, second] = sessions;
  const names = new Set(first?.results.map(({ name }) => name));
  const results = [
    ...first?.results ?? [],
    ...second?.results.filter(({ name }) => !names.has(name)) ?? [],
  ];
  return { days: sessions.map(({ measuredAt }) => measuredAt.slice(0, 10)), results };
}

const toFigure = (value: number): string =>
  value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(value >= 10 ? 1 : 2);

const comparisonOf = ({ comparisons }: Result, name: string): Comparison | undefined =>
  comparisons.find(({ subject }) => subject === name);

/**
 * @returns The result of the runtime's floor, which a gateway can hardly exceed; empty if it was
 * not measured
 */
function floorOf(result: Result, runtime: string): string {
  const value = comparisonOf(result, `floor ${runtime}`)?.spread.median;
  return value === undefined || !Number.isFinite(value) ? "" : `, the floor ${toFigure(value)}`;
}

function cellOf(result: Result, runtime: string): string {
  const name = `gateway ${runtime}`;
  const comparison = comparisonOf(result, name);
  const row = result.rows.find(({ subject }) => subject === name);
  if (row === undefined || row.objections.length > 0) return NONE;
  const value = result.name === "quiet" ? row.spread.median : comparison?.spread.median;
  if (value === undefined || !Number.isFinite(value)) return NONE;
  const goal = goalFor(result.name, name);
  if (goal === undefined) return toFigure(value);
  return `${toFigure(value)} (${toText(goal)}: ${
    isWithin(value, goal) ? "met" : `missed${floorOf(result, runtime)}`
  })`;
}

/** @returns Each goal, with the result on each runtime */
export function makeGoals(): string {
  const { results } = readResults();
  const rows = GOALS.flatMap(({ name, text }) =>
    results.filter((result) => result.name === name).map((result) => [
      result.at === undefined ? text : `${text}, ${result.at.toLocaleString("en")} streams`,
      ...RUNTIMES.map((runtime) => cellOf(result, runtime)),
    ])
  );
  return toTable(["compared with ten bare lines", "Bun", "Deno", "Node 26", "Node 20"], rows);
}

/** @returns Processor time for an event, and its delay, for all measured subjects */
export function makePaced(): string {
  const { days, results } = readResults();
  const curve = results.filter(({ name }) => name === "paced" || name === "paced-alone");
  if (curve.length === 0) return NOT_YET;
  const subjects = new Set(curve.flatMap(({ rows }) => rows.map(({ subject }) => subject)));
  const cell = (result: Result, subject: string) => {
    const row = result.rows.find((each) => each.subject === subject);
    if (row === undefined || row.objections.length > 0) return NONE;
    return `${toFigure(row.spread.median)} µs, ${toFigure(row.details.p999Ms ?? NaN)} ms`;
  };
  const head = ["", ...curve.map(({ title }) => title.replace(/: an event$/, ""))];
  const rows = Array.from(
    subjects,
    (subject) => [subject, ...curve.map((result) => cell(result, subject))],
  );
  return `${toTable(head, rows)}\n\nProcessor time of an event, and p99.9 of its delay. ${
    days[0]
  }.`;
}
