/**
 * A gateway's share of large limits: blocks of requests, tokens and money that it reserves in
 * advance and uses without asking. Redis counts a block as used from the moment it is lent, so that
 * no limit is exceeded. The unused part of a block is returned.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { Late } from "../../storage/redis_command.ts";
import { Block } from "./block.ts";
import type { KnownWindows } from "./known_windows.ts";
import { isOfCalls, type WindowedLimit } from "../limit_kinds.ts";
import { type Amounts, roomFor, type Standing, unitOf } from "../limiter.ts";
import { type CountedLimit, ofLimit, type Plan, type Taken } from "./plan.ts";
import { NO_PLACE } from "./scripts.ts";
import { type Settlements, toUndoing } from "./settlements.ts";
import type { Take } from "./take.ts";

/** Time after which an unused share is returned. Milliseconds. */
const IDLE_MS = 2000;

/** Division of limits into blocks. */
export interface Division {
  /** The smallest limits that are divided. */
  readonly min: Readonly<Record<WindowedLimit, number>>;
  /** Divisor of a limit for the largest block. */
  readonly parts: number;
}

/** Parts of a limiter that shares use. */
export interface Lender {
  readonly clock: Clock;
  readonly take: Take;
  /** Number of gateways that share the limits. */
  readonly gateways: () => number;
  readonly settlements: Settlements;
  /** Receives the state that Redis returns. */
  readonly known: KnownWindows;
  readonly division: Division;
}

/** Share of the limits of one subject. */
export class BorrowedShare {
  /** The plan of the subject. A key that is read again has a new plan with the same limits. */
  plan: Plan;
  readonly #lender: Lender;
  /** A block of each limit, in the order of {@link Plan.counted}. */
  readonly #blocks: readonly Block[];
  /** Amounts for which exchanges wait until the next blocks. */
  readonly #waiting = new Set<readonly number[]>();
  /**
   * Sums of these amounts. Blocks that were lent for them are not returned before these exchanges
   * have used them.
   */
  readonly #awaited: number[];
  #borrowing: Promise<Taken> | undefined;
  #usedAt = -Infinity;
  #isOver = false;

  constructor(plan: Plan, lender: Lender) {
    this.plan = plan;
    this.#lender = lender;
    this.#blocks = plan.counted.map(({ limit }) => new Block(limit, lender.division.parts));
    this.#awaited = plan.counted.map(() => 0);
  }

  /**
   * Uses the blocks. Returns `undefined` if too little of one remains.
   *
   * @param amounts Amounts to use, in the order of {@link Plan.counted}
   * @param begun True for each window that began when these blocks were lent for this exchange
   */
  take(amounts: readonly number[], begun: readonly boolean[] = []): Taken | undefined {
    const now = this.#lender.clock.monotonic();
    const blocks = this.#blocks;
    const { isObserved } = this.plan;
    for (let index = 0; index < blocks.length; index++) {
      const [block, room] = [blocks[index], this.#roomFor(index, amounts)];
      if (block?.hasRoom(room, now) !== true) return undefined;
      // Exchanges that used more than they reserved can have used up the limit.
      if (!isObserved && block.isReached(room, now)) return undefined;
    }
    const standings = this.#standings(now);
    const ends: number[] = [];
    for (let index = 0; index < blocks.length; index++) {
      ends.push(ofLimit(blocks, index).take(ofLimit(amounts, index)));
    }
    this.#usedAt = now;
    return { isAdmitted: true, standings, ends, begun };
  }

  /**
   * Uses the next blocks. All waiting exchanges share one call to Redis.
   *
   * @param amounts Amounts to use, in the order of {@link Plan.counted}
   */
  async takeNext(amounts: readonly number[]): Promise<Taken> {
    this.#await(amounts, 1);
    try {
      for (let begun: readonly boolean[] = [];;) {
        const taken = this.take(amounts, begun);
        if (taken !== undefined) return taken;
        this.#borrowing ??= this.#borrow().finally(() => this.#borrowing = undefined);
        const borrowed = await this.#borrowing;
        begun = borrowed.begun;
        if (!this.#isReached(amounts)) continue;
        const standings = this.#standings(this.#lender.clock.monotonic());
        return { isAdmitted: false, standings, ends: [], begun: [] };
      }
    } finally {
      this.#await(amounts, -1);
      this.#reduce((block, index, now) =>
        this.#isOver ? ofLimit(this.#awaited, index) : this.#mostOf(block, index, now)
      );
    }
  }

  /**
   * Settles the amounts of an exchange: its unused amounts are added to the blocks, and its excess
   * is subtracted.
   */
  settle({ ends }: Taken, amounts: readonly number[], used: Amounts): void {
    const { counted } = this.plan;
    const now = this.#lender.clock.monotonic();
    for (let index = 0; index < counted.length; index++) {
      const limit = counted[index];
      if (limit === undefined || isOfCalls(limit.name)) continue;
      const change = used[unitOf(limit.name)] - ofLimit(amounts, index);
      this.#correct(index, ofLimit(ends, index), change, now);
    }
  }

  /** Returns the amounts of an exchange that is not carried out. */
  giveBack({ ends, begun }: Taken, amounts: readonly number[]): void {
    const now = this.#lender.clock.monotonic();
    for (const [index, amount] of amounts.entries()) {
      this.#correct(index, ofLimit(ends, index), -amount, now, begun[index] === true);
    }
  }

  /** Returns the remaining amounts if the share was not used for some time. */
  giveBackIdle(): void {
    if (this.#lender.clock.monotonic() - this.#usedAt >= IDLE_MS && this.#waiting.size === 0) {
      this.#reduce(() => 0);
    }
  }

  /**
   * Ends the share: returns the remaining amounts, and later the unused amounts of its exchanges.
   */
  end(): void {
    this.#reduce(() => 0);
    this.#isOver = true;
  }

  /** Returns the room that an exchange needs in a block. @param amounts Amounts that it needs */
  #roomFor(index: number, amounts: readonly number[]): number {
    return roomFor(ofLimit(this.plan.counted, index).name, ofLimit(amounts, index));
  }

  /** Begins (1) or ends (-1) the wait of an exchange. */
  #await(amounts: readonly number[], count: 1 | -1): void {
    if (count === 1) this.#waiting.add(amounts);
    else this.#waiting.delete(amounts);
    for (const index of amounts.keys()) {
      this.#awaited[index] = ofLimit(this.#awaited, index) + count * this.#roomFor(index, amounts);
    }
  }

  /**
   * Returns the largest amount that a block keeps: the largest block that is allowed now, or the
   * awaited amount.
   */
  #mostOf(block: Block, index: number, now: number): number {
    return Math.max(ofLimit(this.#awaited, index), block.largest(this.#lender.gateways(), now));
  }

  /** Reduces each block to an amount, and returns the rest. */
  #reduce(mostOf: (block: Block, index: number, now: number) => number): void {
    const now = this.#lender.clock.monotonic();
    for (const [index, limit] of this.plan.counted.entries()) {
      const block = this.#blocks[index];
      if (block?.isLive(now)) {
        this.#pay(limit, block.ends, -block.reduce(mostOf(block, index, now)));
      }
    }
  }

  /** Returns whether too little of a limit remains, by the last answer of Redis. */
  #isReached(amounts: readonly number[]): boolean {
    const now = this.#lender.clock.monotonic();
    if (this.plan.isObserved) return false;
    return this.#blocks.some((block, index) => block.isReached(this.#roomFor(index, amounts), now));
  }

  /** Corrects a used amount in the block, or in Redis if the block is of another window. */
  #correct(index: number, ends: number, change: number, now: number, isUndone = false): void {
    if (change === 0 && !isUndone) return;
    const [limit, block] = [this.plan.counted[index], this.#blocks[index]];
    if (limit === undefined || block === undefined) return;
    const isOfBlock = block.ends === ends && block.isLive(now);
    if (this.#isOver || !isOfBlock) return this.#pay(limit, ends, change, isUndone);
    const owed = block.correct(change);
    const rest = owed > 0 ? owed : -block.reduce(this.#mostOf(block, index, now));
    this.#pay(limit, ends, rest, isUndone);
  }

  /** Changes the count in Redis. */
  #pay(limit: CountedLimit, ends: number, change: number, isUndone = false): void {
    if (change === 0 && !isUndone) return;
    const changes = [{ limit, ends, change, isUndone }];
    this.#lender.known.correct(this.plan, changes);
    this.#lender.settlements.add(this.plan, undefined, changes);
  }

  /**
   * State of the limits as this gateway knows it. The remaining part of its blocks counts as
   * unused.
   */
  #standings(now: number): Standing[] {
    const { subject, counted } = this.plan;
    const standings: Standing[] = [];
    for (let index = 0; index < counted.length; index++) {
      const [limit, block] = [counted[index], this.#blocks[index]];
      if (limit === undefined || block === undefined) continue;
      const { name } = limit;
      standings.push({
        subject,
        name,
        limit: limit.limit,
        used: block.used,
        resetMs: block.resetMs(now),
      });
    }
    return standings;
  }

  /**
   * Reserves blocks in advance: as much as is needed, or as there is room for. Blocks that arrive
   * too late are returned.
   */
  async #borrow(): Promise<Taken> {
    const { plan } = this;
    const { clock, take, settlements, known, gateways } = this.#lender;
    // Returned amounts must arrive before Redis computes the remaining amount.
    if (settlements.hasPending(plan.subject.name)) void settlements.flush();
    const askedAt = clock.monotonic();
    const wanted = this.#blocks.map((block, index) => {
      return block.want(
        Array.from(this.#waiting, (amounts) => this.#roomFor(index, amounts)),
        askedAt,
        gateways(),
      );
    });
    const grantedOf = ({ isAdmitted, standings }: Taken) =>
      wanted.map(({ most }, index) => {
        const { limit, used } = ofLimit(standings, index);
        if (!isAdmitted) return 0;
        return plan.isObserved ? most : Math.max(0, Math.min(most, limit - used));
      });
    const late = (one: Late<Taken>) => {
      if (one.state !== "answered" || !one.answer.isAdmitted) return;
      settlements.add(plan, undefined, toUndoing(plan, one.answer, grantedOf(one.answer)));
    };
    const amounts = wanted.map(({ most }) => most);
    const taken = await take(
      { plan, id: NO_PLACE, takesRequests: true, amounts, wanted },
      { late },
    );
    const granted = grantedOf(taken);
    known.learn(plan, taken, granted);
    const answeredAt = clock.monotonic();
    for (const [index, block] of this.#blocks.entries()) {
      const { used, resetMs } = ofLimit(taken.standings, index);
      // Redis has looked at its clock in between.
      const [endsAt, latestEnd] = [askedAt + resetMs, answeredAt + resetMs];
      block.add(ofLimit(granted, index), {
        used,
        ends: ofLimit(taken.ends, index),
        endsAt,
        latestEnd,
        askedAt,
      });
    }
    return taken;
  }
}
