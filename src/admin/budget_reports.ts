/**
 * Reports of budgets of keys, teams and callers with identity tokens: the used amount and its parts,
 * the date of renewal, and the date when the budget runs out at the average use.
 *
 * @module
 */
import { toNano } from "../config/cost.ts";
import type { IdentityConfig } from "../config/identity.ts";
import { TOKEN_ID_PREFIX } from "../config/key.ts";
import type { LimitMode, LimitSet } from "../config/limit_set.ts";
import { type Budget, formatMoney, periodEnd, periodStart } from "../config/units.ts";
import type { ClassAmounts } from "../exchange/billing.ts";
import type { GatewayKey, KeyRegistry } from "../keys/key_store.ts";
import type { TeamDirectory } from "../keys/team_directory.ts";
import {
  BUDGET_NAMES,
  type BudgetName,
  budgetUnitOf,
  isBudget,
  isMoney,
} from "../config/limit_kinds.ts";
import type { Limiter } from "../limits/limiter.ts";
import { DAY_MS, HOUR_MS, type UsageStep, UsageUnavailable } from "../usage/counts.ts";
import { readRecentCallers, type RecentCaller } from "../usage/recent_callers.ts";
import { readRecentUse, type RecentUse } from "../usage/recent_use.ts";
import type { UsageReportParts } from "../usage/report.ts";

/**
 * Parts of the used amount of a budget. A limit counts one number, so the parts are from stored
 * usage. Money is by current prices.
 */
export interface BudgetParts {
  /** Start of the usage: the first day of the period, or the first day that is kept. */
  readonly from: string;
  /** The amount that providers stated. */
  readonly stated: number;
  /** The amount that the gateway estimated, because the provider stated no usage. */
  readonly estimated: number;
  /**
   * The used amount that is not in usage: reservations of open calls, and charges that usage does
   * not have, or prices otherwise.
   */
  readonly rest: number;
  /**
   * Amounts without a price, by billing class. A budget of money is charged the dearest price of the
   * model for them, which is in `rest`.
   */
  readonly unpriced?: ClassAmounts;
}

/** One budget as administrators see it. */
export interface BudgetView {
  readonly of: "key" | "team";
  /** Id of the key or of the caller with an identity token, or name of the team. */
  readonly id: string;
  /** Name of the key. */
  readonly name?: string;
  /** Team of the key. */
  readonly team?: string;
  /** Plan of the caller with an identity token. */
  readonly plan?: string;
  /** `tokens`, or the currency. */
  readonly unit: string;
  readonly limit: number;
  /** The used amount, including reservations of running calls. */
  readonly used: number;
  /** Its parts; `null` if usage can't be read. */
  readonly parts: BudgetParts | null;
  readonly mode: LimitMode;
  readonly period: Budget["period"];
  /** Start of the next period, ISO 8601 in UTC. */
  readonly renews: string;
  /** Average daily use over the last 7 days or 24 hours; `null` if usage can't be read. */
  readonly perDay: number | null;
  /** Start of the time that the average covers; `null` if there was no use. */
  readonly paceSince: string | null;
  /**
   * Time when it runs out at the average use; `null` if it renews earlier or has already run out.
   */
  readonly runsOut: string | null;
}

/** A query for budgets. */
export interface BudgetQuery {
  /** Maximum number of keys and callers with a budget. */
  readonly limit: number;
  /** Only budgets of keys and callers after this id. */
  readonly after?: string | undefined;
  /** Only the budgets of the key with this id. */
  readonly key?: string | undefined;
  /** Only the budgets of this team. */
  readonly team?: string | undefined;
}

/** A page of budgets. */
export interface BudgetList {
  readonly budgets: readonly BudgetView[];
  /**
   * The value of `after` for the next page; `null` on the last page. Earlier pages can be empty.
   */
  readonly next: string | null;
}

/** Dependencies of {@link BudgetReports}. */
export interface BudgetReportParts extends UsageReportParts {
  readonly keys: Pick<KeyRegistry, "get" | "list">;
  readonly limiter: Limiter;
  readonly teams: Pick<TeamDirectory, "load">;
  /** Issuers of identity tokens. Their plans can have budgets. */
  readonly identity?: readonly IdentityConfig[] | undefined;
}

/** Number of keys that are examined for a page. Most keys can be without a budget. */
const MAX_SCANNED = 1000;
/** Number of owners whose limits are read at once. */
const ASKED_AT_ONCE = 50;
/**
 * Times that the average covers: a week has each day once, a day has each hour once. Milliseconds.
 */
const PACE_MS: Readonly<Record<Budget["period"], number>> = {
  day: DAY_MS,
  week: 7 * DAY_MS,
  month: 7 * DAY_MS,
};
/**
 * Budgets of a caller with an identity token are listed for this time after its last use.
 * Milliseconds.
 */
const LATELY_MS = 7 * DAY_MS;
/**
 * The shortest time that the average covers, so that a single call does not dominate it.
 * Milliseconds.
 */
const MIN_PACE_MS = HOUR_MS;

/** A key, caller or team with a budget. */
interface BudgetOwner {
  readonly of: "key" | "team";
  readonly id: string;
  readonly limits: LimitSet;
  /** Facts about a key, or a caller. */
  readonly about?: {
    readonly name?: string | undefined;
    readonly team?: string | undefined;
    readonly plan?: string;
  };
}

/** A page of owners, and the id that the next page begins after. */
interface OwnerPage {
  readonly owners: readonly BudgetOwner[];
  readonly next: string | null;
}

/** A budget and its use. */
interface BudgetUse {
  readonly owner: BudgetOwner;
  readonly name: BudgetName;
  readonly budget: Budget;
  readonly unit: string;
  /** In tokens, or in 10^-9 of the currency. */
  readonly used: number;
}

const hasBudget = (limits: LimitSet): boolean =>
  BUDGET_NAMES.some((name) => limits[name] !== undefined);

/** Reports of the budgets of keys, callers and teams. */
export class BudgetReports {
  readonly #parts: BudgetReportParts;

  constructor(parts: BudgetReportParts) {
    this.#parts = parts;
  }

  /**
   * Lists budgets of teams, in the order of the configuration; then of keys, the newest first; then
   * of callers whose identity tokens were in use in the last week, by id.
   *
   * @throws {KeyStoreError} If the keys can't be read
   */
  async list(query: BudgetQuery): Promise<BudgetList> {
    const { owners, next } = await this.#find(query);
    const uses: BudgetUse[] = [];
    for (let from = 0; from < owners.length; from += ASKED_AT_ONCE) {
      const some = owners.slice(from, from + ASKED_AT_ONCE);
      uses.push(
        ...(await Promise.all(some.map((owner) => this.#usesOf(owner)))).flat(),
      );
      await this.#parts.rest();
    }
    const now = this.#parts.now();
    const { hoursMs, daysMs } = this.#parts.config.usage;
    const recent = await this.#read(
      uses,
      "hour",
      ({ period }) => now - Math.min(PACE_MS[period], hoursMs),
    );
    const inPeriod = await this.#read(
      uses,
      "day",
      ({ period }) => Math.max(periodStart(period, now), now - daysMs),
    );
    const budgets = uses.map((use, at) => ({
      ...toView(use, recent?.[at], now),
      parts: toParts(use, inPeriod?.[at]),
    }));
    return { budgets, next };
  }

  /** Finds the keys, callers and teams of a page. */
  async #find(query: BudgetQuery): Promise<OwnerPage> {
    const { limit, after, key: id, team } = query;
    const { keys, teams } = this.#parts;
    const isWhole = id === undefined && team === undefined;
    const owners = Object.entries(after === undefined ? await teams.load() : {})
      .map(([id, team]): BudgetOwner => ({ of: "team", id, limits: team.limits }))
      .filter((each) => hasBudget(each.limits) && (isWhole || each.id === team));
    if (id?.startsWith(TOKEN_ID_PREFIX)) return await this.#findCallers(owners, { limit: 1, id });
    if (!isWhole) {
      const key = id === undefined ? undefined : await keys.get(id);
      return { owners: [...owners, ...toOwners(key)], next: null };
    }
    if (after?.startsWith(TOKEN_ID_PREFIX)) {
      return await this.#findCallers(owners, { limit, after });
    }
    const listed = await keys.list({ limit: MAX_SCANNED, after });
    let found = 0;
    for (const key of listed) {
      const some = toOwners(key);
      owners.push(...some);
      if ((found += some.length) >= limit) return { owners, next: key.id };
    }
    if (listed.length === MAX_SCANNED) return { owners, next: listed.at(-1)?.id ?? null };
    return await this.#findCallers(owners, { limit: limit - found });
  }

  /**
   * Adds the callers whose identity tokens were in use recently. Adds none if usage can't be read.
   */
  async #findCallers(
    owners: readonly BudgetOwner[],
    { limit, after, id }: Pick<BudgetQuery, "limit" | "after"> & { id?: string },
  ): Promise<OwnerPage> {
    const { identity = [], now, config } = this.#parts;
    const plans = listPlans(identity);
    const limitsOf = (caller: string, plan: string) =>
      plans.get(caller.split(":", 2).join(":") + `:${plan}`);
    if (plans.size === 0) return { owners, next: null };
    const isWanted = (caller: string, plan: string) => limitsOf(caller, plan) !== undefined;
    const query = {
      from: now() - Math.min(LATELY_MS, config.usage.hoursMs),
      limit: limit + 1,
      after,
      id,
      isWanted,
    };
    const found = await readRecentCallers(query, this.#parts).catch(
      (error): readonly RecentCaller[] => {
        if (error instanceof UsageUnavailable) return [];
        throw error;
      },
    );
    const callers = found.slice(0, limit).map(({ id, team, plan }): BudgetOwner => {
      const limits = limitsOf(id, plan);
      if (limits === undefined) throw new Error("Cannot list a caller: its plan is unknown");
      return { of: "key", id, limits, about: { team, plan } };
    });
    return {
      owners: [...owners, ...callers],
      next: found.length > limit ? callers.at(-1)?.id ?? null : null,
    };
  }

  async #usesOf(owner: BudgetOwner): Promise<BudgetUse[]> {
    const { of, id, limits } = owner;
    const statuses = await this.#parts.limiter.status({ name: `${of}:${id}`, limits });
    return statuses.flatMap(({ name, used }) => {
      if (!isBudget(name)) return [];
      const budget = limits[name];
      if (budget === undefined) return [];
      return [{ owner, name, budget, unit: budgetUnitOf(name, limits), used }];
    });
  }

  /**
   * Reads the use since a time; `undefined` if usage can't be read.
   *
   * @param startOf Returns the time for a budget, milliseconds since 1970
   */
  async #read(
    uses: readonly BudgetUse[],
    step: UsageStep,
    startOf: (budget: Budget) => number,
  ): Promise<readonly (RecentUse & { readonly from: number })[] | undefined> {
    const subjects = uses.map(({ owner, budget }) => ({
      kind: owner.of,
      id: owner.id,
      from: startOf(budget),
    }));
    try {
      const found = await readRecentUse(subjects, this.#parts, step);
      return found.map((use, at) => ({ ...use, from: subjects[at]?.from ?? NaN }));
    } catch (error) {
      if (error instanceof UsageUnavailable) return undefined;
      throw error;
    }
  }
}

/** Returns a key as an owner if it has a budget and is usable. */
function toOwners(key: GatewayKey | undefined): BudgetOwner[] {
  if (key?.limits === undefined || key.revokedAt !== undefined || !hasBudget(key.limits)) return [];
  return [{ of: "key", id: key.id, limits: key.limits, about: { name: key.name, team: key.team } }];
}

/** Returns the limits of each plan with a budget, by the prefix of its callers' ids. */
function listPlans(identity: readonly IdentityConfig[]): ReadonlyMap<string, LimitSet> {
  const plans = identity.flatMap((issuer) =>
    Object.entries(issuer.plans).map(([plan, limits]): [string, LimitSet] => [
      `${TOKEN_ID_PREFIX}${issuer.name}:${plan}`,
      limits,
    ])
  );
  return new Map(plans.filter(([, limits]) => hasBudget(limits)));
}

/** Returns the use since the start of the averaged time: in tokens, or in 10^-9 of the currency. */
function recentAmount(recent: RecentUse | undefined, { name }: BudgetUse): number {
  if (recent === undefined) return 0;
  return isMoney(name) ? toNano(recent.cost) : recent.tokens;
}

/** Returns an amount in the unit of reports: tokens, or money in its currency. */
const toReported = (amount: number, { name }: BudgetUse): number =>
  isMoney(name) ? Number(formatMoney(amount)) : Math.round(amount);

/** Divides the used amount of a budget. */
function toParts(
  use: BudgetUse,
  found: RecentUse & { readonly from: number } | undefined,
): BudgetParts | null {
  if (found === undefined) return null;
  const { tokens, estimatedTokens, cost, estimatedCost, unpriced, from } = found;
  const isOfMoney = isMoney(use.name);
  const estimated = isOfMoney ? toNano(estimatedCost) : estimatedTokens;
  const known = isOfMoney ? toNano(cost) : tokens;
  return {
    from: new Date(from - from % DAY_MS).toISOString(),
    stated: toReported(Math.max(0, known - estimated), use),
    estimated: toReported(estimated, use),
    rest: toReported(Math.max(0, use.used - known), use),
    ...(isOfMoney && unpriced !== undefined && { unpriced }),
  };
}

/** Describes a budget, without its parts. */
function toView(
  use: BudgetUse,
  recent: RecentUse | undefined,
  now: number,
): Omit<BudgetView, "parts"> {
  const { owner, unit, used } = use;
  const { of, id, about } = owner;
  const { limit, period } = use.budget;
  const toAmount = (amount: number): number => toReported(amount, use);
  const renewsAt = periodEnd(period, now);
  const since = recent?.since;
  const amount = recentAmount(recent, use);
  const perMs = since === undefined ? 0 : amount / Math.max(now - since, MIN_PACE_MS);
  const runsOutAt = used < limit && perMs > 0 ? now + (limit - used) / perMs : Infinity;
  return {
    of,
    id,
    ...(about?.name !== undefined && { name: about.name }),
    ...(about?.team !== undefined && { team: about.team }),
    ...(about?.plan !== undefined && { plan: about.plan }),
    unit,
    limit: toAmount(limit),
    used: toAmount(used),
    mode: owner.limits.mode ?? "enforce",
    period,
    renews: new Date(renewsAt).toISOString(),
    perDay: recent === undefined ? null : toAmount(perMs * DAY_MS),
    paceSince: since === undefined ? null : new Date(since).toISOString(),
    runsOut: runsOutAt < renewsAt ? new Date(runsOutAt).toISOString() : null,
  };
}
