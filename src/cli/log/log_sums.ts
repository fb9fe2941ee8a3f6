/**
 * Sums of the access log, by the parts of its lines.
 *
 * @module
 */
import type { Dimension } from "../../config/dimensions.ts";
import { endKindOf } from "../../observe/live/exchange_filter.ts";
import { binOf, BINS, nameEnd, percentile } from "../../observe/live/live_report.ts";
import { alignColumns } from "../table.ts";
import { toDuration } from "./print_entry.ts";
import type { LogEntry } from "./log_entry.ts";

const toTime = ({ startedAt }: LogEntry, length: number): string =>
  new Date(startedAt).toISOString().slice(0, length);

/** Part to sum by. */
export type SumPart =
  | ("key" | "team" | "provider" | "model" | "operation" | "outcome" | "code" | "status")
  | Dimension
  | ("hour" | "day");

/** The group name of an entry, by part. */
const PARTS: Readonly<Record<SumPart, (entry: LogEntry) => string | undefined>> = {
  key: ({ keyId }) => keyId,
  team: ({ team }) => team,
  provider: ({ provider }) => provider,
  model: ({ model }) => model,
  operation: ({ operation }) => operation,
  outcome: ({ outcome }) => outcome,
  code: (entry) => entry.outcome === "ok" ? entry.code : nameEnd(entry),
  status: ({ status }) => String(status),
  user: ({ attribution }) => attribution?.user,
  session: ({ attribution }) => attribution?.session,
  agent: ({ attribution }) => attribution?.agent,
  client: ({ attribution }) => attribution?.client,
  project: ({ attribution }) => attribution?.project,
  hour: (entry) => `${toTime(entry, 13)}:00Z`,
  day: (entry) => toTime(entry, 10),
};

/** Names of the parts. */
export const SUM_PARTS: readonly SumPart[] = Object.keys(PARTS) as SumPart[]; // keys of a constant

/** Limit of separate groups, of 2 kB each. Entries of further groups are summed up as one. */
const MAX_GROUPS = 10_000;
/**
 * The longest name of a group. The access log writes no longer names, so a longer one counts as
 * other.
 */
const MAX_NAME = 300;
const OTHER = "(other)";
const NONE = "(none)";

/**
 * Durations as a histogram, so that memory does not grow with their number. Percentiles are at most
 * 5 % off.
 */
class Durations {
  readonly #bins = new Uint32Array(BINS);

  add(ms: number): void {
    const bin = binOf(ms);
    this.#bins[bin] = (this.#bins[bin] as number) + 1; // each bin is below BINS
  }

  percentiles(): { p50: number | undefined; p95: number | undefined; p99: number | undefined } {
    const sparse = Array.from(this.#bins.entries()).filter(([, count]) => count > 0).flat();
    const of = (share: number) => percentile([sparse], share);
    return { p50: of(0.5), p95: of(0.95), p99: of(0.99) };
  }
}

/** Sums of one group. */
class Group {
  readonly names: readonly string[];
  calls = 0;
  errors = 0;
  refused = 0;
  tokens = 0;
  /** The estimated part of `tokens`. */
  estimated = 0;
  readonly duration = new Durations();
  readonly firstToken = new Durations();

  /** @param names Its name in each part */
  constructor(names: readonly string[]) {
    this.names = names;
  }

  add(entry: LogEntry): void {
    const { durationMs, firstTokenMs, tokens = 0, isEstimated } = entry;
    const kind = endKindOf(entry);
    this.calls++;
    if (kind === "errors") this.errors++;
    if (kind === "refused") this.refused++;
    this.tokens += tokens;
    if (isEstimated) this.estimated += tokens;
    this.duration.add(durationMs);
    if (firstTokenMs !== undefined) this.firstToken.add(firstTokenMs);
  }
}

const number = (value: number): string => value.toLocaleString("en");

/** Sums by some parts, and the total. */
export class LogSums {
  readonly #parts: readonly SumPart[];
  readonly #groups = new Map<string, Group>();
  readonly #total: Group;

  constructor(parts: readonly SumPart[]) {
    this.#parts = parts;
    this.#total = new Group(parts.map((_, index) => index === 0 ? "total" : ""));
  }

  /** Adds an entry. */
  add(entry: LogEntry): void {
    this.#total.add(entry);
    let names = this.#parts.map((part) => {
      const name = PARTS[part](entry) ?? NONE;
      return name.length > MAX_NAME ? OTHER : name;
    });
    if (this.#groups.size >= MAX_GROUPS && !this.#groups.has(names.join("\0"))) {
      names = names.map(() => OTHER);
    }
    const name = names.join("\0");
    let group = this.#groups.get(name);
    if (group === undefined) this.#groups.set(name, group = new Group(names));
    group.add(entry);
  }

  /** Returns the groups: by time if they have one, else those with the most calls first. */
  #sorted(): Group[] {
    const time = this.#parts.findIndex((part) => part === "hour" || part === "day");
    const timeOf = ({ names }: Group) => names[time] ?? "";
    return Array.from(this.#groups.values()).sort((one, other) => {
      const oneTime = timeOf(one);
      const otherTime = timeOf(other);
      if (oneTime !== otherTime) return oneTime < otherTime ? -1 : 1;
      return other.calls - one.calls;
    });
  }

  /** Returns the sums as a table. Tokens with `~` are partly estimated. */
  toTable(): string {
    const measures = ["p50", "p95", "p99"] as const;
    const head = [
      ...this.#parts.map((part) => part.toUpperCase()),
      ...["CALLS", "ERRORS", "REFUSED", "TOKENS"],
      ...measures.map((name) => name.toUpperCase()),
      ...measures.map((name) => `FIRST ${name.toUpperCase()}`),
    ];
    const rows = [...this.#sorted(), this.#total].map((group) => {
      const took = group.duration.percentiles();
      const first = group.firstToken.percentiles();
      return [
        ...group.names,
        ...[group.calls, group.errors, group.refused].map(number),
        `${group.estimated > 0 ? "~" : ""}${number(group.tokens)}`,
        ...measures.map((name) => toDuration(took[name])),
        ...measures.map((name) => toDuration(first[name])),
      ];
    });
    return `${alignColumns(head, rows, (column) => column >= this.#parts.length)}\n`;
  }

  /** Returns the sums for programs: the groups and the total. */
  toJson(): unknown {
    const toSums = (group: Group) => ({
      calls: group.calls,
      errors: group.errors,
      refused: group.refused,
      tokens: group.tokens,
      estimatedTokens: group.estimated,
      durationMs: group.duration.percentiles(),
      firstTokenMs: group.firstToken.percentiles(),
    });
    const toNames = (group: Group) =>
      Object.fromEntries(this.#parts.map((part, index) => [part, group.names[index]]));
    return {
      by: this.#parts,
      rows: this.#sorted().map((group) => ({ ...toNames(group), ...toSums(group) })),
      total: toSums(this.#total),
    };
  }
}
