/**
 * Reports of usage: sums by key, team, provider, model, operation or time, page by page. They are
 * computed in turns, so that other work of the process does not wait for a report of a million
 * rows.
 *
 * @module
 */
import { type Attribution, type Dimension, isDimension } from "../config/dimensions.ts";
import type { Config } from "../config/config.ts";
import { readAttributed, valueOfDimension } from "./attributed.ts";
import {
  type Payer,
  payerOf,
  type Rest,
  ROWS_A_TURN,
  type UsageRange,
  type UsageRow,
  type UsageStore,
} from "./counts.ts";
import {
  isTimeDimension,
  isWanted,
  toRange,
  type UsageDimension,
  type UsageExportQuery,
  type UsageQuery,
  UsageRefusal,
} from "./query.ts";
import { compareGroups, readCursor, toCursor } from "./report_order.ts";
import { RowPricing } from "./row_cost.ts";
import { addRow, type Group, newGroup, toSums, type UsageSums } from "./sums.ts";
import { type KeyNames, TeamLookup } from "./teams.ts";
import { FirstItems, keepTop } from "./top_groups.ts";
import { inParts } from "./usage_memory.ts";
import { WideMap } from "./wide_map.ts";

/** One row of a report: its values of the dimensions, and its sums. */
export type UsageLine = UsageSums & Partial<Readonly<Record<UsageDimension | "name", string>>>;

/** A report of usage. */
export interface UsageReport {
  /** Start and end of the report, in whole hours or days, ISO 8601 in UTC. */
  readonly from: string;
  readonly to: string;
  readonly by: readonly UsageDimension[];
  /** Dimensions of attribution that usage is counted by. */
  readonly counted: readonly Dimension[];
  readonly currency: string;
  /** Backend that stores usage. */
  readonly backend: UsageStore["backend"];
  readonly rows: readonly UsageLine[];
  /** Number of rows after this page. `totals` includes them. */
  readonly left: number;
  /** The value of `after` for the next page; `null` on the last page. */
  readonly next: string | null;
  readonly totals: UsageSums;
}

/** One row of an export. */
export type UsageExportRow = UsageSums & Attribution & {
  /** Period of the row, and its start, ISO 8601 in UTC. */
  readonly step: UsageRange["step"];
  readonly from: string;
  readonly key: string;
  readonly provider: string;
  readonly model: string;
  readonly operation: string;
  readonly team: string;
  readonly currency: string;
  /** See `tariff.ts`; the empty text for the standard tariff. */
  readonly tariff: string;
  readonly payer: Payer;
};

/** Dependencies of the reports. */
export interface UsageReportParts {
  readonly usage: Pick<UsageStore, "backend" | "read">;
  readonly config: Pick<
    Config,
    "attribution" | "prices" | "currency" | "providers" | "usage"
  >;
  /** Source of the names and the teams of keys. */
  readonly keys: KeyNames;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
  /** Lets other work of the process run. */
  readonly rest: Rest;
}

/**
 * Maximum number of groups, about 400 bytes each. All of them are in memory until the last row is
 * added.
 */
const MAX_GROUPS = 1_000_000;

/** Number of exported rows per turn. An exported row is more work: it has all sums. */
const EXPORTED_A_TURN = ROWS_A_TURN / 4;

/** Returns the value of a dimension. The class is not known here: its place is empty. */
function nameOf(part: UsageDimension, row: UsageRow, teams: TeamLookup): string {
  if (part === "team") return teams.of(row);
  if (part === "tariff") return row.tariff ?? STANDARD;
  if (part === "class") return "";
  if (part === "payer") return payerOf(row);
  if (isDimension(part)) return valueOfDimension(row.attribution, part);
  if (!isTimeDimension(part)) return row[part];
  const time = new Date(row.at).toISOString();
  return part === "hour" ? `${time.slice(0, 13)}:00Z` : time.slice(0, part === "day" ? 10 : 7);
}

/** Name of the standard tariff in reports. */
const STANDARD = "(standard)";

/** Computes reports. */
export class UsageReports {
  /** Lets other work of the process run. */
  readonly rest: Rest;
  readonly #parts: UsageReportParts;

  constructor(parts: UsageReportParts) {
    this.#parts = parts;
    this.rest = parts.rest;
  }

  /**
   * @throws {UsageRefusal} If it asks for a time that is not kept, or for too many groups
   * @throws {UsageUnavailable} If usage can't be read
   */
  async report(query: UsageQuery): Promise<UsageReport> {
    const { config, now, rest } = this.#parts;
    const { by, sort, top, limit } = query;
    const after = readCursor(query);
    const range = toRange(query, by, config.usage, now());
    const { groups: all, total } = await this.#addUp(query, range);
    const groups = top === undefined ? all : await keepTop(all, { by, sort, top }, rest);
    const order = compareGroups(query);
    const page = new FirstItems(limit, order);
    let found = 0;
    for (const some of inParts(groups)) {
      for (const [, group] of some) {
        if (after !== undefined && order(group, after) <= 0) continue;
        page.add(group);
        found++;
      }
      await rest();
    }
    const rows: Group[] = [];
    for (const some of inParts(page.drain())) {
      rows.push(...some);
      await rest();
    }
    const last = rows[0];
    const left = found - rows.length;
    return {
      from: new Date(range.from).toISOString(),
      to: new Date(range.to).toISOString(),
      by,
      counted: config.attribution.usage,
      currency: config.currency,
      backend: this.#parts.usage.backend,
      rows: await this.#toLines(by, rows.reverse()),
      left,
      next: left > 0 && last !== undefined ? toCursor(last, query) : null,
      totals: toSums(total),
    };
  }

  /**
   * Yields the rows themselves, some at a time. Rows with the same names and time can occur several
   * times and must be added.
   *
   * @throws {UsageRefusal} If it asks for a time that is not kept
   * @throws {UsageUnavailable} If usage can't be read
   */
  async *export(query: UsageExportQuery): AsyncIterable<readonly UsageExportRow[]> {
    const { usage, config, keys, now, rest } = this.#parts;
    const range = toRange(query, query.by === undefined ? [] : [query.by], config.usage, now());
    const { step } = range;
    const { currency } = config;
    const pricing = new RowPricing(config);
    const teams = new TeamLookup(keys);
    for await (const rows of usage.read(range)) {
      const asked = rows.filter((row) => isWanted(row, query));
      await teams.learn(asked);
      const wanted = query.team === undefined
        ? asked
        : asked.filter((row) => teams.of(row) === query.team);
      for (const some of inParts(wanted, EXPORTED_A_TURN)) {
        const exported = some.map((row) => {
          const { at, key, provider, model, operation, tariff = "" } = row;
          const group = newGroup([]);
          addRow(group, row, pricing.costOf(row));
          return {
            step,
            from: new Date(at).toISOString(),
            key,
            provider,
            model,
            operation,
            team: teams.of(row),
            ...toSums(group),
            currency,
            tariff,
            payer: payerOf(row),
            ...readAttributed(row.attribution),
          };
        });
        await rest(); // to write them is as much work as to add them up
        yield exported;
        await rest();
      }
      await rest(); // needed too if none of many rows is wanted
    }
  }

  /** Adds up the rows of a query by its dimensions. */
  async #addUp(
    query: UsageQuery,
    range: UsageRange,
  ): Promise<{ groups: WideMap<Group>; total: Group }> {
    const { usage, config, keys, rest } = this.#parts;
    const groups = new WideMap<Group>();
    const total = newGroup([]);
    const pricing = new RowPricing(config);
    const classIndex = query.by.indexOf("class");
    const groupOf = (names: readonly string[]) => {
      const id = names.join("\0");
      let group = groups.get(id);
      if (group === undefined) groups.add(id, group = newGroup(names));
      return group;
    };
    const teams = new TeamLookup(keys);
    let sinceRest = 0;
    for await (const all of usage.read(range)) {
      const asked = all.filter((row) => isWanted(row, query));
      const rows = query.team === undefined ? asked : await teams.ofTeam(asked, query.team);
      if (query.by.includes("team")) await teams.learn(rows);
      for (const row of rows) {
        const names = query.by.map((part) => nameOf(part, row, teams));
        const cost = pricing.costOf(row);
        addRow(total, row, cost);
        if (classIndex < 0) {
          addRow(groupOf(names), row, cost);
          continue;
        }
        for (const { name, amount, row: part, cost: ofPart } of pricing.byClass(row)) {
          addRow(groupOf(names.with(classIndex, name)), part, ofPart, amount);
        }
      }
      if (groups.size > MAX_GROUPS) {
        throw new UsageRefusal("by", `more than ${MAX_GROUPS} rows: export them instead`);
      }
      sinceRest += all.length;
      if (sinceRest < ROWS_A_TURN) continue;
      sinceRest = 0;
      await rest();
    }
    return { groups, total };
  }

  /** Creates the rows of the report. Keys have their display names if these can be looked up. */
  async #toLines(by: readonly UsageDimension[], groups: readonly Group[]): Promise<UsageLine[]> {
    const { keys, rest } = this.#parts;
    const keyIndex = by.indexOf("key");
    const lines: UsageLine[] = [];
    for (const some of inParts(groups)) {
      const made = some.map(async (group) => {
        const id = group.names[keyIndex];
        const key = id === undefined ? undefined : await keys.get(id).catch(() => undefined);
        const about = Object.fromEntries(by.map((part, index) => [part, group.names[index]]));
        return { ...about, ...(key?.name !== undefined && { name: key.name }), ...toSums(group) };
      });
      lines.push(...await Promise.all(made));
      await rest();
    }
    return lines;
  }
}
