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

/** A row of the table of goals. */
interface GoalRow {
  readonly name: Result["name"];
  readonly text: string;
  /** The unit of the points of its curve; streams if left out. */
  readonly points?: string;
  /** The end of its subjects' names. */
  readonly suffix?: string;
}

/** Measurements with goals, in the order of the table. */
const GOALS: readonly GoalRow[] = [
  { name: "paced", text: "processor time of an event" },
  { name: "paced-setup", text: "processor time of an event with its part of the set-up" },
  { name: "delay", text: "added to the delay of an event, p99.9, ms" },
  { name: "conversation", text: "processor time of a conversation of 1 MB" },
  { name: "streamed", text: "streams of 20 events without a pace, a second" },
  { name: "plain", text: "plain calls, a second" },
  { name: "connections", text: "plain calls, a second", points: "connections" },
  { name: "quiet", text: "memory of a quiet stream, kB" },
  { name: "tls", text: "processor time of a plain call over TLS" },
  { name: "tls-streamed", text: "processor time of a stream of 20 events over TLS" },
  {
    name: "workers",
    text: "plain calls a second of two workers, compared with one process",
    points: "connections",
    suffix: ", 2 workers",
  },
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

function cellOf(result: Result, runtime: string, suffix: string): string {
  const name = `gateway ${runtime}${suffix}`;
  const comparison = comparisonOf(result, name);
  const row = result.rows.find(({ subject }) => subject === name);
  if (row === undefined || row.objections.length > 0) return NONE;
  const value = result.name === "quiet" ? row.spread.median : comparison?.spread.median;
  if (value === undefined || !Number.isFinite(value)) return NONE;
  const goal = goalFor(result.name, name, result.at);
  if (goal === undefined) return toFigure(value);
  const peer = result.rows.find(({ subject }) => subject === goal.below)?.spread.median;
  return `${toFigure(value)} (${toText(goal)}: ${
    isWithin({ value, own: row.spread.median, peer }, goal)
      ? "met"
      : `missed${floorOf(result, runtime)}`
  })`;
}

/** True if a result has a goal on any runtime. */
const hasGoal = ({ name, at }: Result): boolean =>
  RUNTIMES.some((runtime) => goalFor(name, `gateway ${runtime}`, at) !== undefined);

/** The cells of a row; runtimes that a result does not have are left to the next one. */
function cellsOf(results: readonly Result[], suffix: string): string[] {
  return RUNTIMES.map((runtime) =>
    results.map((result) => cellOf(result, runtime, suffix)).find((cell) => cell !== NONE) ?? NONE
  );
}

/** @returns Each goal, with the result on each runtime */
export function makeGoals(): string {
  const { results } = readResults();
  const rows = GOALS.flatMap(({ name, text, points = "streams", suffix = "" }) => {
    const all = results.filter((result) => result.name === name && hasGoal(result));
    return Array.from(Map.groupBy(all, ({ at }) => at), ([at, alike]) => [
      at === undefined ? text : `${text}, ${at.toLocaleString("en")} ${points}`,
      ...cellsOf(alike, suffix),
    ]);
  });
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
