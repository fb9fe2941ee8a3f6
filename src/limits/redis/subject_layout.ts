/**
 * Subjects as the scripts of Redis use them: their keys, their limits, and the amounts of
 * exchanges.
 *
 * @module
 */
import {
  AMOUNT_UNITS,
  type AmountUnit,
  isWindowed,
  type WindowedLimit,
} from "../../config/limit_kinds.ts";
import {
  type Amounts,
  limitsOf,
  type LimitSubject,
  type Reservation,
  reservedOf,
  roomFor,
} from "../limiter.ts";
import { MOST_COUNTED, type WindowLength } from "./scripts.ts";

/**
 * Names of the fields with counts. The end of each window is in the field with the same name and a
 * `u`.
 */
const FIELDS: Readonly<Record<WindowedLimit, string>> = {
  requests: "r",
  tokens: "t",
  budget: "b",
  spend: "s",
};

/** A limit that is counted. */
export interface CountedLimit {
  readonly name: WindowedLimit;
  readonly field: string;
  readonly limit: number;
  readonly window: WindowLength;
}

/** Keys and limits of one subject. */
export interface SubjectLayout {
  readonly subject: LimitSubject;
  /**
   * Hash of the used amounts. All keys of a subject share a hash tag, and therefore a slot of a
   * Cluster.
   */
  readonly countsKey: string;
  /** Sorted set of open exchanges. */
  readonly openKey: string;
  readonly counted: readonly CountedLimit[];
  readonly concurrency: number | undefined;
  readonly isObserved: boolean;
  /** True if only requests are limited. */
  readonly limitsOnlyRequests: boolean;
}

const layouts = new WeakMap<LimitSubject["limits"], SubjectLayout>();

/** Returns the layout of a subject. It is the same object while the limits are the same object. */
export function layoutOf(subject: LimitSubject): SubjectLayout {
  const known = layouts.get(subject.limits);
  if (known?.subject.name === subject.name) return known;
  const { name, limits } = subject;
  const counted: CountedLimit[] = [];
  for (const [limitName, limit] of limitsOf(subject)) {
    if (!isWindowed(limitName)) {
      // The scripts and this folder count one limit of open calls. Another one does not compile here,
      // until they count it too.
      limitName satisfies "concurrency";
      continue;
    }
    const rule = limits[limitName];
    if (rule === undefined) continue;
    const window = "period" in rule ? rule.period : rule.windowMs;
    counted.push({ name: limitName, field: FIELDS[limitName], limit, window });
  }
  const layout: SubjectLayout = {
    subject,
    countsKey: `sallyport:{${name}}:counts`,
    openKey: `sallyport:{${name}}:open`,
    counted,
    concurrency: limits.concurrency,
    isObserved: limits.mode === "observe",
    limitsOnlyRequests: limits.concurrency === undefined && counted.length === 1 &&
      counted[0]?.name === "requests",
  };
  layouts.set(limits, layout);
  return layout;
}

/**
 * Returns an item of a list in the order of {@link SubjectLayout.counted}.
 *
 * @throws {Error} If the list is of another layout
 */
export function itemAt<Item>(items: readonly Item[], index: number): Item {
  const item = items[index];
  if (item === undefined) throw new Error("Cannot count: the list is not of these limits");
  return item;
}

/** Returns an amount as Redis counts it: a whole number that is exact, and never -0. */
export function toWholeCount(amount: number): number {
  const capped = Math.max(-MOST_COUNTED, Math.min(amount, MOST_COUNTED));
  return Number.isNaN(capped) ? 0 : Math.ceil(capped) + 0;
}

/** Returns amounts as Redis counts them. */
export function toCountable(amounts: Amounts): Amounts {
  if (AMOUNT_UNITS.every((unit) => amounts[unit] <= MOST_COUNTED)) return amounts;
  const counted: Record<AmountUnit, number> = { ...amounts };
  for (const unit of AMOUNT_UNITS) counted[unit] = toWholeCount(amounts[unit]);
  return counted;
}

/** Amounts that an exchange acquires, in the order of {@link SubjectLayout.counted}. */
export interface WantedAmounts {
  readonly amounts: readonly number[];
  /** Room that each limit must have; 0 for any. */
  readonly rooms: readonly number[];
}

/** Returns the amounts that an exchange acquires. */
export function toWanted(
  { subject, counted }: SubjectLayout,
  reservation: Reservation,
): WantedAmounts {
  const amounts: number[] = [];
  const rooms: number[] = [];
  for (const { name, limit } of counted) {
    const status = { subject, name, limit };
    amounts.push(reservedOf(status, reservation));
    rooms.push(roomFor(status, reservation));
  }
  return { amounts, rooms };
}
