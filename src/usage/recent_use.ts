/**
 * Recent use of some keys and teams, from the stored hours or days. It shows how fast budgets are
 * used, and which part of their use providers stated.
 *
 * @module
 */
import type { ClassAmounts } from "../exchange/billing.ts";
import { ROWS_A_TURN, STEP_MS, type UsageRow, type UsageStep } from "./counts.ts";
import type { UsageReportParts } from "./report.ts";
import { RowPricing } from "./row_cost.ts";
import { addRow, type Group, newGroup, tokensOf } from "./sums.ts";
import { TeamLookup } from "./teams.ts";

/** The keys to sum: one key, or all keys that are currently in a team. */
export interface RecentSubject {
  readonly kind: "key" | "team";
  /** Id of the key, or name of the team. */
  readonly id: string;
  /** Start of the time, milliseconds since 1970. The whole hour or day that contains it counts. */
  readonly from: number;
}

/** Use since a time. */
export interface RecentUse {
  readonly tokens: number;
  /** The tokens among them that the gateway estimated. */
  readonly estimatedTokens: number;
  /** Cost by current prices, in 10^-24 of the currency. */
  readonly cost: bigint;
  /** The part of the cost that is for estimated tokens. */
  readonly estimatedCost: bigint;
  /** Amounts without a price, which the cost leaves out. */
  readonly unpriced: ClassAmounts | undefined;
  /**
   * Start of the first hour or day with any use, milliseconds since 1970; `undefined` without any
   * use.
   */
  readonly since: number | undefined;
}

/** Running sums of one subject. */
interface Growing extends RecentSubject {
  readonly group: Group;
  since: number | undefined;
}

/** Indexes sums by the id of their key or team. */
function indexOf(growing: readonly Growing[], kind: RecentSubject["kind"]) {
  const index = new Map<string, Growing[]>();
  for (const one of growing) {
    if (one.kind !== kind) continue;
    const others = index.get(one.id);
    if (others === undefined) index.set(one.id, [one]);
    else others.push(one);
  }
  return index;
}

/** Returns the start of the hour or day that contains a time. */
const startOf = (time: number, step: UsageStep): number =>
  Math.floor(time / STEP_MS[step]) * STEP_MS[step];

function toUse({ group, since }: Growing): RecentUse {
  const { counts, cost = 0n, estimatedCost, unpricedClasses } = group;
  return {
    tokens: tokensOf(counts),
    estimatedTokens: counts.estimatedInput + counts.estimatedOutput,
    cost,
    estimatedCost,
    unpriced: unpricedClasses,
    since,
  };
}

/**
 * Adds up the recent use of keys and teams, in one pass and in turns.
 *
 * @param step Whether stored hours or days are read: days are kept for longer
 * @returns The use of each subject, in the given order
 * @throws {UsageUnavailable} If usage, or the team of a key, can't be read
 */
export async function readRecentUse(
  subjects: readonly RecentSubject[],
  parts: UsageReportParts,
  step: UsageStep,
): Promise<readonly RecentUse[]> {
  const { usage, config, keys, now, rest } = parts;
  const growing = subjects.map(({ kind, id, from }): Growing => ({
    kind,
    id,
    from: startOf(from, step),
    group: newGroup([]),
    since: undefined,
  }));
  const ofKeys = indexOf(growing, "key");
  const ofTeams = indexOf(growing, "team");
  const pricing = new RowPricing(config);
  const teams = new TeamLookup(keys);
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
  const from = growing.reduce((first, one) => Math.min(first, one.from), startOf(now(), step));
  const range = {
    step,
    from,
    to: startOf(now(), step) + STEP_MS[step],
    key: key ? only.id : undefined,
  };
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
  return growing.map(toUse);
}
