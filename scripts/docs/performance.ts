/**
 * The tables of performance, from the results of `npm run bench`.
 *
 * `scripts/bench/peers.json`, if it exists, is the `results.json` of another session. Peers that
 * only that session has, such as Portkey, are shown from there, with a note.
 */
import { existsSync, readFileSync } from "node:fs";
import type { Comparison, Result, Row } from "../bench/session.ts";
import { toTable } from "./parts.ts";

/** The results of a run of the bench. */
interface Session {
  /** ISO 8601. */
  readonly measuredAt: string;
  readonly machine: { readonly cpu: string };
  readonly versions: Readonly<Record<string, string>>;
  readonly effort: { readonly rounds: number; readonly seconds: number };
  readonly results: readonly Result[];
}

const MAIN = "scripts/bench/results.json";
const PEERS = "scripts/bench/peers.json";
const NONE = "–";

const read = (file: string): Session => JSON.parse(readFileSync(file, "utf8"));
const dayOf = ({ measuredAt }: Session): string => measuredAt.slice(0, 10);

/** Rounds throughput to the precision of two noisy cores. */
const toThroughput = (value: number): string =>
  (Math.round(value / 100) * 100).toLocaleString("en");
const toMicroseconds = (value: number): string => `${Math.round(value).toLocaleString("en")} µs`;
const toMilliseconds = (value: number): string => `${Math.round(value)} ms`;
const toMegabytes = (value: number): string => `${Math.round(value).toLocaleString("en")} MB`;
const toRatio = (value: number): string => value.toFixed(2);
const toTimes = (value: number): string => `${value.toFixed(1)} times`;
const toCost = (value: number): string => `${(1 / value).toFixed(1)} times`;

const isQuotable = ({ objections }: Row): boolean => objections.length === 0;

function rowsOf({ results }: Session, name: Result["name"]): readonly Row[] {
  return results.filter((result) => result.name === name).flatMap(({ rows }) => rows);
}

function figure(
  session: Session,
  name: Result["name"],
  subject: string,
  show: (value: number) => string,
): string {
  const row = rowsOf(session, name).find((each) => each.subject === subject);
  return row !== undefined && isQuotable(row) ? show(row.spread.median) : NONE;
}

function compared(
  session: Session,
  name: Result["name"],
  subject: string,
  show: (value: number) => string,
  of: (comparison: Comparison) => number | undefined = ({ spread }) => spread.median,
): string {
  const comparisons = session.results.filter((result) => result.name === name).flatMap((result) =>
    result.comparisons
  );
  const value =
    comparisons.filter((each) => each.isQuotable && each.subject === subject).map(of)[0];
  return value === undefined ? NONE : show(value);
}

/**
 * All measured subjects, the gateways first. Floors are left out: they are not usable as proxies.
 */
function subjectsOf(session: Session): string[] {
  const all = new Set(
    ["plain", "streamed"].flatMap((name) => rowsOf(session, name as Result["name"])).map(
      ({ subject }) => subject,
    ),
  );
  all.delete("provider alone");
  const proxies = Array.from(all).filter((name) => !name.startsWith("floor "));
  const rank = (name: string) => name.startsWith("gateway") ? 0 : name.startsWith("bare") ? 1 : 2;
  return proxies.toSorted((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

const capitalize = (label: string): string => label.charAt(0).toUpperCase() + label.slice(1);

/** The runtimes of subjects such as `gateway node 26`. */
const gatewaysOf = (session: Session): string[] =>
  subjectsOf(session).filter((name) => name.startsWith("gateway ")).map((name) =>
    name.slice("gateway ".length)
  );

/** The name of a subject for people. */
export const toName = (subject: string): string =>
  subject.replace(/^gateway (.*)/, (_, label: string) => `**Sallyport** on ${capitalize(label)}`)
    .replace(/^bare (.*)/, (_, label: string) => `ten bare lines on ${capitalize(label)}`)
    .replace(/^portkey /, "Portkey ");

function toPeerRow(session: Session, subject: string): string[] {
  return [
    toName(subject),
    figure(session, "plain", subject, toThroughput),
    figure(session, "streamed", subject, toThroughput),
    figure(session, "single", subject, toMicroseconds),
    figure(session, "first", subject, toMicroseconds),
  ];
}

/**
 * @param mainFile Results of a whole run
 * @param peersFile Results of a separate session; the file can be missing
 * @returns The comparison of all subjects, and how and on which machine they were measured
 */
export function makePeers(mainFile: string = MAIN, peersFile: string = PEERS): string {
  const main = read(mainFile);
  const rows = subjectsOf(main).map((subject) => toPeerRow(main, subject));
  const notes: string[] = [];
  if (existsSync(peersFile)) {
    const other = read(peersFile);
    const more = subjectsOf(other).filter((subject) => !subjectsOf(main).includes(subject));
    rows.push(...more.map((subject) => toPeerRow(other, subject)));
    const own = gatewaysOf(other).map((name) =>
      `on ${capitalize(name)} ${figure(other, "plain", `gateway ${name}`, toThroughput)} and ${
        figure(other, "streamed", `gateway ${name}`, toThroughput)
      }`
    );
    notes.push(
      `${more.map(toName).join(" and ")}: measured apart, on ${
        dayOf(other)
      }; there the gateway passed ${own.join(", ")} a second.`,
    );
  }
  const versions = Object.entries(main.versions).map((pair) => pair.join(" ")).join(", ");
  notes.unshift(
    `${
      dayOf(main)
    }, ${main.machine.cpu}, one core each, loopback; medians of ${main.effort.rounds} turns.\n`,
    `Versions: ${versions}.\n`,
    "A dash: not measured, or the load generator was the bottleneck.",
  );
  const head = [
    "",
    "plain, a second",
    "streams of 20 events, a second",
    "one plain call, p50",
    "first byte, p50",
  ];
  return `${toTable(head, rows)}\n\n${notes.join("\n")}`;
}

/** @returns The cost of the gateway compared with ten lines on the same runtime */
export function makeCosts(): string {
  const session = read(MAIN);
  const runtimes = gatewaysOf(session);
  const row = (title: string, cell: (gateway: string, bare: string) => string) => [
    title,
    ...runtimes.map((runtime) => cell(`gateway ${runtime}`, `bare ${runtime}`)),
  ];
  const beside =
    (name: Result["name"], show: (value: number) => string) => (gateway: string, bare: string) =>
      `${figure(session, name, gateway, show)} (${figure(session, name, bare, show)})`;
  const against = (name: Result["name"], show: (value: number) => string) => (gateway: string) =>
    compared(session, name, gateway, show);
  return toTable(["compared with ten bare lines", ...runtimes.map(capitalize)], [
    row("plain calls a second, as a share of theirs", against("plain", toRatio)),
    row("streams of 20 events a second, as a share of theirs", against("streamed", toRatio)),
    row("added to the p50 of a plain call, 1 connection", against("single", toMicroseconds)),
    row("added to the first byte of a stream, p50", against("first", toMicroseconds)),
    row("cost of a call with 1 MB in one message, by throughput", against("large", toCost)),
    row(
      "processor time of a call with 1 MB in a thousand messages",
      against("conversation", toTimes),
    ),
    row(
      "processor time of a stream of two events, with its set-up and end",
      against("setup", toTimes),
    ),
    row(
      "p99.9 of the delay of an event, 1,000 streams of 20 events a second (theirs)",
      beside("delay", toMilliseconds),
    ),
    row("from the start to the first answer (theirs)", beside("startup", toMilliseconds)),
    row("memory after all of this (theirs)", beside("memory", toMegabytes)),
  ]);
}

/** @returns Throughput by the number of connections, for the gateways and for bare lines */
export function makeConnections(): string {
  const session = read(MAIN);
  const curve = session.results.filter(({ name }) => name === "connections");
  const subjects = subjectsOf(session).filter((name) => /^(?:gateway|bare) /.test(name));
  const rows = curve.map((result) => [
    String(result.at),
    ...subjects.map((subject) =>
      figure({ ...session, results: [result] }, "connections", subject, toThroughput)
    ),
  ]);
  return toTable(["connections", ...subjects], rows);
}

/** @returns Throughput by the number of keys */
export function makeKeys(): string {
  const session = read(MAIN);
  const runtimes = gatewaysOf(session);
  const rows = rowsOf(session, "keys");
  const counts = new Set(
    rows.map(({ subject }) => /, ([\d,]+) keys$/.exec(subject)?.[1] ?? "").filter(Boolean),
  );
  return toTable(
    ["keys", ...runtimes.map(capitalize)],
    Array.from(counts, (count) => [
      count,
      ...runtimes.map((runtime) =>
        figure(session, "keys", `gateway ${runtime}, ${count} keys`, toThroughput)
      ),
    ]),
  );
}

/** @returns The cost of log and metrics */
export function makeObservers(): string {
  const session = read(MAIN);
  const toShare = (value: number) =>
    value < 1 ? `${Math.round((1 / value - 1) * 100)} %` : "less than the noise";
  const runtimes = gatewaysOf(session);
  const cells = runtimes.map((runtime) =>
    compared(session, "observers", `gateway ${runtime}`, toShare, ({ byCpu }) => byCpu?.median)
  );
  return toTable(["", ...runtimes.map(capitalize)], [["more processor time a request", ...cells]]);
}
