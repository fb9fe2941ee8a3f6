/**
 * Recent use of some keys and teams, from the stored hours. It shows how fast budgets are used.
 *
 * @module
 */
import { HOUR_MS, ROWS_A_TURN, type UsageRow } from "./counts.ts";
import type { UsageReportParts } from "./report.ts";
import { RowPricing } from "./row_cost.ts";
import { addRow, type Group, newGroup, tokensOf } from "./sums.ts";
import { Teams } from "./teams.ts";

/** The keys to sum: one key, or all keys that are currently in a team. */
export interface RecentSubject {
  readonly kind: "key" | "team";
  /** Id of the key, or name of the team. */
  readonly id: string;
  /** Start of the time, milliseconds since 1970. The whole hour that contains it counts. */
  readonly from: number;
}

/** Use since a time. */
export interface RecentUse {
  readonly tokens: number;
  /** Cost by current prices, in 10^-24 of the currency. */
  readonly cost: bigint;
  /** Start of the first hour with any use, milliseconds since 1970; `undefined` without any use. */
  readonly since: number | undefined;
}

/** Running sums of one subject. */
interface Growing {
  readonly from: number;
  readonly group: Group;
  since: number | undefined;
}

const hourOf = (time: number): number => Math.floor(time / HOUR_MS) * HOUR_MS;

/** Indexes sums by the id of their key or team. */
function indexOf(
  subjects: readonly RecentSubject[],
  growing: readonly Growing[],
  kind: RecentSubject["kind"],
) {
  const index = new Map<string, Growing[]>();
  for (const [at, { kind: each, id }] of subjects.entries()) {
    const one = growing[at];
    if (each === kind && one !== undefined) index.set(id, [...index.get(id) ?? [], one]);
  }
  return index;
}

/**
 * Adds up the recent use of keys and teams, in one pass and in turns.
 *
 * @returns The use of each subject, in the given order
 * @throws {UsageUnavailable} If usage, or the team of a key, can't be read
 */
export async function readRecentUse(
  subjects: readonly RecentSubject[],
  parts: UsageReportParts,
): Promise<readonly RecentUse[]> {
  const { usage, config, keys, now, rest } = parts;
  const growing = subjects.map(({ from }): Growing => ({
    from: hourOf(from),
    group: newGroup([]),
    since: undefined,
  }));
  const [ofKeys, ofTeams] = [indexOf(subjects, growing, "key"), indexOf(subjects, growing, "team")];
  const pricing = new RowPricing(config);
  const teams = new Teams(keys);
  const add = (all: readonly Growing[] = [], row: UsageRow) => {
    for (const one of all) {
      if (row.at < one.from) continue;
      addRow(one.group, row, pricing.costOf(row));
      one.since = Math.min(row.at, one.since ?? row.at);
    }
  };
  const [only, ...others] = subjects;
  const key = only?.kind === "key" &&
    others.every(({ kind, id }) => kind === "key" && id === only.id);
  const from = growing.reduce((first, one) => Math.min(first, one.from), hourOf(now()));
  const range = {
    step: "hour",
    from,
    to: hourOf(now()) + HOUR_MS,
    key: key ? only.id : undefined,
  } as const;
  let sinceRest = 0;
  for await (const rows of subjects.length === 0 ? [] : usage.read(range)) {
    if (ofTeams.size > 0) await teams.learn(rows);
    for (const row of rows) {
      add(ofKeys.get(row.key), row);
      if (ofTeams.size > 0) add(ofTeams.get(teams.of(row)), row);
    }
    sinceRest += rows.length;
    if (sinceRest < ROWS_A_TURN) continue;
    sinceRest = 0;
    await rest();
  }
  return growing.map(({ group, since }) => ({
    tokens: tokensOf(group.counts),
    cost: group.cost ?? 0n,
    since,
  }));
}
