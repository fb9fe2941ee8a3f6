/**
 * Decisions of one gateway while the store of all gateways can't be reached: against its share of each limit, and charged
 * to the store when it is back, as far as the windows are not over.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { type Amounts, type LimitSubject, NO_AMOUNTS, type Reservation, reservedOf, type Standing } from "./limiter.ts";
import { type Count, MemoryLimiter, type WindowCounts } from "./memory_limiter.ts";
import type { Plan, Windowed } from "./redis_plan.ts";

/** Maximum number of subjects that are charged later. */
const MAX_UNPAID = 100_000;

/** One exchange, as it was decided for one subject. */
export interface LocalLease {
  /** Ends of the windows in the store, once it was charged there. */
  ends: readonly number[] | undefined;
  /** Amounts that were reserved, in the order of {@link Plan.counted}. */
  readonly reserved: readonly number[];
  /** Releases the exchange here, while it was not charged in the store. */
  release: (used: Amounts, isUndone?: boolean) => void;
}

/** Subject that the store has to be charged for. */
interface Unpaid {
  readonly plan: Plan;
  readonly open: Set<LocalLease>;
  /** Amounts that the store may have counted already, in the order of {@link Plan.counted}. */
  waived: readonly number[];
  isBeingPaid: boolean;
}

/** Bill for the use of a subject in windows that are not over. */
export interface Bill {
  readonly plan: Plan;
  /** Amounts, in the order of {@link Plan.counted}. */
  readonly used: readonly number[];
  /**
   * Tells what became of it.
   *
   * @param ends Ends of the windows in which it was charged; `undefined` if it was not
   */
  settle(ends: readonly number[] | undefined): void;
}

/** Limiter of a gateway that is on its own for a while. */
export class LocalDecisions {
  readonly #clock: Clock;
  readonly #limiter: MemoryLimiter;
  readonly #unpaid = new Map<string, Unpaid>();

  /**
   * @param clock Source of its times
   * @param share Number by which each limit is divided
   */
  constructor(clock: Clock, share: () => number) {
    this.#clock = clock;
    this.#limiter = new MemoryLimiter(clock, share);
  }

  /** Returns the state of the limits of a subject. */
  standings(subject: LimitSubject): Standing[] {
    return this.#limiter.standings([subject]);
  }

  /**
   * Counts an exchange that is admitted.
   *
   * @param plan The plan of the subject
   * @param standings State of its limits
   * @param reservation Amounts to reserve
   */
  admit(plan: Plan, standings: readonly Standing[], reservation: Reservation): LocalLease {
    const { subject } = plan;
    const release = this.#limiter.admit([subject], reservation);
    const unpaid = this.#unpaid.get(subject.name) ?? { plan, open: new Set(), waived: [], isBeingPaid: false };
    const lease: LocalLease = {
      ends: undefined,
      reserved: standings.filter(({ name }) => name !== "concurrency").map((one) => reservedOf(one, reservation)),
      release(used, isUndone) {
        unpaid.open.delete(lease);
        release(used, isUndone);
      },
    };
    unpaid.open.add(lease);
    if (this.#unpaid.size < MAX_UNPAID) this.#unpaid.set(subject.name, unpaid);
    return lease;
  }

  /**
   * Waives what an exchange has reserved: the store may have counted it, and nothing is charged twice.
   *
   * @param plan The plan of the subject
   * @param lease The lease
   */
  waive({ subject: { name } }: Plan, { reserved }: LocalLease): void {
    const unpaid = this.#unpaid.get(name);
    if (unpaid !== undefined) unpaid.waived = reserved.map((amount, index) => amount + (unpaid.waived[index] ?? 0));
  }

  /** Lists what is to be charged. Each bill has to be settled. */
  *bills(): Iterable<Bill> {
    for (const [name, unpaid] of this.#unpaid) {
      const { plan, open, waived, isBeingPaid } = unpaid;
      if (isBeingPaid) continue;
      const counts = this.#limiter.counts(name);
      const now = { monotonic: this.#clock.monotonic(), wall: this.#clock.now() };
      const isLive = (limit: Windowed) => (counts?.[limit].until ?? 0) > now[clockOf(limit)];
      const owed = plan.counted.map((limit) => isLive(limit.name) ? counts?.[limit.name].used ?? 0 : 0);
      const used = owed.map((amount, index) => Math.max(0, amount - (waived[index] ?? 0)));
      if (counts !== undefined && owed.some((amount) => amount > 0)) {
        unpaid.isBeingPaid = true;
        yield { plan, used, settle: (ends) => this.#settle(unpaid, counts, ends) };
      } else if (open.size === 0) this.#unpaid.delete(name);
    }
  }

  /** Forgets what was charged. What is still open is settled in the store from now on. */
  #settle(unpaid: Unpaid, paid: WindowCounts, ends: readonly number[] | undefined): void {
    unpaid.isBeingPaid = false;
    if (ends === undefined) return;
    unpaid.waived = [];
    const { plan: { subject: { name } }, open } = unpaid;
    const counts = this.#limiter.counts(name);
    if (counts !== undefined) this.#limiter.putBack(name, subtract(counts, paid));
    for (const lease of Array.from(open)) {
      lease.release(NO_AMOUNTS);
      lease.ends = ends;
    }
  }
}

const clockOf = (name: Windowed) => name === "requests" || name === "tokens" ? "monotonic" : "wall";

/** Subtracts counts, as far as they are of the same windows. */
function subtract(counts: WindowCounts, paid: WindowCounts): WindowCounts {
  const rest = (one: Count, other: Count): Count =>
    one.until === other.until ? { used: Math.max(0, one.used - other.used), until: one.until } : one;
  return {
    requests: rest(counts.requests, paid.requests),
    tokens: rest(counts.tokens, paid.tokens),
    budget: rest(counts.budget, paid.budget),
    spend: rest(counts.spend, paid.spend),
  };
}
