/**
 * The use of budgets as this process knows it: for a gauge, and for alerts when a budget is nearly
 * or fully used.
 *
 * The values are from calls: each lease has the amount that was used before, and its end adds the
 * amount of the call. The limiter is asked only if a budget refuses a call and is not known to be
 * used up.
 *
 * @module
 */
import { type Budget, periodEnd } from "../config/units.ts";
import type { Clock } from "../exchange/clock.ts";
import { BUDGET_NAMES, type BudgetName, budgetUnitOf, isBudget } from "../config/limit_kinds.ts";
import {
  type Amounts,
  type Limiter,
  type LimitStatus,
  type LimitSubject,
  unitOf,
} from "./limiter.ts";

/** Used parts of a budget at which an alert is sent, in ascending order. */
export const THRESHOLDS: readonly number[] = [0.8, 1];
/** The most budgets that are watched at once. The least recently used ones are dropped. */
export const MAX_WATCHED = 1000;
/**
 * Shortest time between two requests for the status of a budget that refuses calls. Milliseconds.
 */
const ASK_EVERY_MS = 1000;

/** A budget whose use has reached a threshold. Amounts are tokens, or 10^-9 of the currency. */
export interface ReachedBudget {
  /** Name of the subject, such as `team:search`. */
  readonly subject: string;
  readonly name: BudgetName;
  /** `tokens`, or the currency. */
  readonly unit: string;
  readonly limit: number;
  readonly used: number;
  readonly period: Budget["period"];
  /** End of the period, milliseconds since 1970. */
  readonly until: number;
  /** One of {@link THRESHOLDS}. */
  readonly threshold: number;
}

/**
 * Receives budgets that have reached a threshold, once per period in this process. Does not throw.
 */
export type OnReached = (reached: ReachedBudget) => void;

/** A watched budget. */
interface Watched extends Omit<ReachedBudget, "threshold"> {
  used: number;
  /** Number of thresholds that were reported. */
  reported: number;
  /** Monotonic time of the last request for its status. */
  askedAt: number;
}

interface BudgetStatus extends LimitStatus {
  readonly name: BudgetName;
}

/**
 * Returns whether a limit is a budget that is counted as a whole. A local decision
 * knows only a share.
 */
function isWholeBudget(status: LimitStatus): status is BudgetStatus {
  const { subject, name, limit } = status;
  return isBudget(name) && subject.limits[name]?.limit === limit;
}

/** Watch of the budgets that calls use. */
export class BudgetWatch {
  readonly #clock: Clock;
  /** Budgets by subject and name, most recently used last. */
  readonly #watched = new Map<string, Watched>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Lists the used part of each budget, with its subject and unit. Periods that are over are
   * skipped.
   */
  *ratios(): Iterable<readonly [labels: readonly [subject: string, unit: string], ratio: number]> {
    const now = this.#clock.now();
    for (const { subject, unit, used, limit, until } of this.#watched.values()) {
      if (until > now) yield [[subject, unit], used / limit];
    }
  }

  /**
   * Notes the budgets of an admitted exchange.
   *
   * @param statuses State of its limits before
   * @returns Function that notes the use of the exchange at its end; `undefined` if it counts
   * against no budget
   */
  noteAdmitted(
    statuses: readonly LimitStatus[],
    onReached: OnReached | undefined,
  ): ((used: Amounts) => void) | undefined {
    let found: [Watched, LimitStatus][] | undefined;
    for (const status of statuses) {
      if (!isWholeBudget(status)) continue;
      const watched = this.#watch(status.subject, status.name);
      setUsed(watched, status.used, onReached);
      (found ??= []).push([watched, status]);
    }
    return found && ((used) => {
      const now = this.#clock.now();
      for (const [watched, before] of found) {
        // Other calls can have used more since the lease was made.
        const least = before.used + used[unitOf(watched.name)];
        if (watched.until > now && least > watched.used) setUsed(watched, least, onReached);
      }
    });
  }

  /**
   * Notes that a budget has refused an exchange. Asks for its status if it is not known to be used
   * up.
   */
  noteRefused(
    subjects: readonly LimitSubject[],
    limiter: Limiter,
    onReached: OnReached | undefined,
  ): void {
    for (const subject of subjects) {
      for (const name of BUDGET_NAMES) {
        if (subject.limits[name] === undefined) continue;
        const watched = this.#watch(subject, name);
        const now = this.#clock.monotonic();
        if (watched.used >= watched.limit || now - watched.askedAt < ASK_EVERY_MS) continue;
        watched.askedAt = now;
        limiter.status(subject).then(
          (statuses) => void this.noteAdmitted(statuses, onReached),
          () => {},
        );
      }
    }
  }

  /** Finds the status of a budget in its current period, or creates it. */
  #watch({ name: subject, limits }: LimitSubject, name: BudgetName): Watched {
    const key = `${subject}\n${name}`;
    const budget = limits[name];
    if (budget === undefined) throw new Error("Cannot watch a budget: its subject has none");
    const { limit, period } = budget;
    const unit = budgetUnitOf(name, limits);
    const known = this.#watched.get(key);
    this.#watched.delete(key);
    const now = this.#clock.now();
    const isSame = known?.limit === limit && known.period === period && known.unit === unit;
    const isCurrent = isSame && known.until > now;
    const watched = isCurrent ? known : {
      subject,
      name,
      unit,
      limit,
      used: 0,
      period,
      until: periodEnd(period, now),
      reported: 0,
      askedAt: -Infinity,
    };
    this.#watched.set(key, watched);
    if (this.#watched.size > MAX_WATCHED) {
      const [oldest] = this.#watched.keys();
      if (oldest !== undefined) this.#watched.delete(oldest);
    }
    return watched;
  }
}

/** Sets the used part of a budget, and reports the thresholds that it has reached. */
function setUsed(watched: Watched, used: number, onReached: OnReached | undefined): void {
  watched.used = used;
  if (onReached === undefined) return;
  for (
    let threshold = THRESHOLDS[watched.reported];
    threshold !== undefined;
    threshold = THRESHOLDS[watched.reported]
  ) {
    if (used < threshold * watched.limit) return;
    watched.reported++;
    const { subject, name, unit, limit, period, until } = watched;
    onReached({ subject, name, unit, limit, used, period, until, threshold });
  }
}
