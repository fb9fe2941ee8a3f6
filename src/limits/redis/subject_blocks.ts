/**
 * Blocks of the limits of one subject: requests, tokens and money that a gateway reserves in
 * advance and uses without asking. Redis counts a block as used from the moment it is reserved, so
 * no limit is exceeded. The unused part of a block is returned.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { FailedCallOutcome } from "../../storage/redis_command.ts";
import { Block } from "./block.ts";
import type { KnownWindows } from "./known_windows.ts";
import { isOfCalls, type WindowedLimit } from "../../config/limit_kinds.ts";
import { type Amounts, type LimitStatus, unitOf } from "../limiter.ts";
import {
  type CountedLimit,
  itemAt,
  type SubjectLayout,
  type WantedAmounts,
} from "./subject_layout.ts";
import { NO_SLOT } from "./scripts.ts";
import { type Settlements, toUndoing } from "./settlements.ts";
import type { AcquireCommand, SubjectVerdict } from "./acquire.ts";

/** Time after which unused blocks are returned. Milliseconds. */
const IDLE_MS = 2000;

/** Sizes of limits and of their blocks. */
export interface BlockSizes {
  /** The smallest limits that have blocks. */
  readonly minLimits: Readonly<Record<WindowedLimit, number>>;
  /** Number of the largest blocks that add up to a limit. */
  readonly perLimit: number;
}

/** Parts of a limiter that blocks use. */
export interface BlockParts {
  readonly clock: Clock;
  readonly acquireCommand: AcquireCommand;
  /** Number of gateways that share the limits. */
  readonly gateways: () => number;
  readonly settlements: Settlements;
  /** Receives the statuses that Redis returns. */
  readonly known: KnownWindows;
  readonly sizes: BlockSizes;
}

/** The blocks of one subject. */
export class SubjectBlocks {
  /** The layout of the subject. A key that is read again has a new layout with the same limits. */
  layout: SubjectLayout;
  readonly #parts: BlockParts;
  /** A block of each limit, in the order of {@link SubjectLayout.counted}. */
  readonly #blocks: readonly Block[];
  /** Amounts of the exchanges that wait for the next blocks. */
  readonly #queue = new Set<WantedAmounts>();
  /**
   * Sums of the rooms that they need. Blocks that were reserved for them are not returned before these
   * exchanges have used them.
   */
  readonly #queuedSums: number[];
  #reserving: Promise<SubjectVerdict> | undefined;
  #usedAt = -Infinity;
  #hasEnded = false;

  constructor(layout: SubjectLayout, parts: BlockParts) {
    this.layout = layout;
    this.#parts = parts;
    this.#blocks = layout.counted.map(({ limit }) => new Block(limit, parts.sizes.perLimit));
    this.#queuedSums = layout.counted.map(() => 0);
  }

  /**
   * Uses the blocks. Returns `undefined` if too little of one remains.
   *
   * @param begun True for each window that began when these blocks were reserved for it
   */
  use(
    { amounts, rooms }: WantedAmounts,
    begun: readonly boolean[] = [],
  ): SubjectVerdict | undefined {
    const now = this.#parts.clock.monotonic();
    const blocks = this.#blocks;
    const { isObserved } = this.layout;
    for (let index = 0; index < blocks.length; index++) {
      const [block, room] = [blocks[index], itemAt(rooms, index)];
      if (block?.hasRoom(room, now) !== true) return undefined;
      // Exchanges that used more than they reserved can have used up the limit.
      if (!isObserved && block.isReached(room, now)) return undefined;
    }
    const statuses = this.#statuses(now);
    const ends: number[] = [];
    for (let index = 0; index < blocks.length; index++) {
      ends.push(itemAt(blocks, index).use(itemAt(amounts, index)));
    }
    this.#usedAt = now;
    return { isAdmitted: true, statuses, ends, begun };
  }

  /** Uses the next blocks. All queued exchanges are in one call to Redis. */
  async useNext(wanted: WantedAmounts): Promise<SubjectVerdict> {
    this.#changeQueue(wanted, 1);
    try {
      let verdict = this.use(wanted);
      // Other exchanges of the queue can use up the next blocks too.
      while (verdict === undefined) {
        this.#reserving ??= this.#reserve().finally(() => this.#reserving = undefined);
        const { begun } = await this.#reserving;
        verdict = this.use(wanted, begun) ?? this.#refusalOf(wanted);
      }
      return verdict;
    } finally {
      this.#changeQueue(wanted, -1);
      this.#shrink((block, index, now) =>
        this.#hasEnded ? itemAt(this.#queuedSums, index) : this.#mostOf(block, index, now)
      );
    }
  }

  /**
   * Settles the amounts of an exchange: its unused amounts are added to the blocks, and its excess
   * is subtracted.
   */
  settle({ ends }: SubjectVerdict, amounts: readonly number[], used: Amounts): void {
    const { counted } = this.layout;
    const now = this.#parts.clock.monotonic();
    for (let index = 0; index < counted.length; index++) {
      const limit = counted[index];
      if (limit === undefined || isOfCalls(limit.name)) continue;
      const change = used[unitOf(limit.name)] - itemAt(amounts, index);
      this.#correct(index, itemAt(ends, index), change, now);
    }
  }

  /** Returns the amounts of an exchange that is not carried out. */
  undo({ ends, begun }: SubjectVerdict, amounts: readonly number[]): void {
    const now = this.#parts.clock.monotonic();
    for (const [index, amount] of amounts.entries()) {
      this.#correct(index, itemAt(ends, index), -amount, now, begun[index] === true);
    }
  }

  /** Returns the remaining amounts if they were not used for some time. */
  returnIdle(): void {
    if (this.#parts.clock.monotonic() - this.#usedAt >= IDLE_MS && this.#queue.size === 0) {
      this.#shrink(() => 0);
    }
  }

  /**
   * Ends the use of blocks: returns the remaining amounts, and later the unused amounts of its
   * exchanges.
   */
  end(): void {
    this.#shrink(() => 0);
    this.#hasEnded = true;
  }

  /** Adds an exchange to the queue (1), or removes it (-1). */
  #changeQueue(wanted: WantedAmounts, sign: 1 | -1): void {
    if (sign === 1) this.#queue.add(wanted);
    else this.#queue.delete(wanted);
    for (const [index, room] of wanted.rooms.entries()) {
      this.#queuedSums[index] = itemAt(this.#queuedSums, index) + sign * room;
    }
  }

  /**
   * Returns the largest amount that a block keeps: the largest block that is allowed now, or the
   * queued amounts.
   */
  #mostOf(block: Block, index: number, now: number): number {
    return Math.max(itemAt(this.#queuedSums, index), block.largest(this.#parts.gateways(), now));
  }

  /** Shrinks each block to an amount, and returns the rest. */
  #shrink(mostOf: (block: Block, index: number, now: number) => number): void {
    const now = this.#parts.clock.monotonic();
    for (const [index, limit] of this.layout.counted.entries()) {
      const block = this.#blocks[index];
      if (block?.isLive(now)) {
        this.#correctRedis(limit, block.ends, -block.shrink(mostOf(block, index, now)));
      }
    }
  }

  /** Returns the refusal if too little of a limit remains, by the last reply of Redis. */
  #refusalOf({ rooms }: WantedAmounts): SubjectVerdict | undefined {
    if (this.layout.isObserved) return undefined;
    const now = this.#parts.clock.monotonic();
    const isReached = this.#blocks.some((block, index) =>
      block.isReached(itemAt(rooms, index), now)
    );
    return isReached
      ? { isAdmitted: false, statuses: this.#statuses(now), ends: [], begun: [] }
      : undefined;
  }

  /** Corrects a used amount in the block, or in Redis if the block is of another window. */
  #correct(index: number, ends: number, change: number, now: number, endsWindow = false): void {
    if (change === 0 && !endsWindow) return;
    const [limit, block] = [this.layout.counted[index], this.#blocks[index]];
    if (limit === undefined || block === undefined) return;
    const isOfBlock = block.ends === ends && block.isLive(now);
    if (this.#hasEnded || !isOfBlock) return this.#correctRedis(limit, ends, change, endsWindow);
    const excess = block.correct(change);
    const rest = excess > 0 ? excess : -block.shrink(this.#mostOf(block, index, now));
    this.#correctRedis(limit, ends, rest, endsWindow);
  }

  /** Corrects a used amount in Redis. */
  #correctRedis(limit: CountedLimit, ends: number, change: number, endsWindow = false): void {
    if (change === 0 && !endsWindow) return;
    const changes = [{ limit, ends, change, endsWindow }];
    this.#parts.known.correct(this.layout, changes);
    this.#parts.settlements.add(this.layout, undefined, changes);
  }

  /**
   * Status of the limits as this gateway knows it. The remaining part of its blocks counts as
   * unused.
   */
  #statuses(now: number): LimitStatus[] {
    const { subject, counted } = this.layout;
    const statuses: LimitStatus[] = [];
    for (let index = 0; index < counted.length; index++) {
      const [limit, block] = [counted[index], this.#blocks[index]];
      if (limit === undefined || block === undefined) continue;
      const { name } = limit;
      statuses.push({
        subject,
        name,
        limit: limit.limit,
        used: block.used,
        resetMs: block.resetMs(now),
      });
    }
    return statuses;
  }

  /**
   * Reserves blocks in advance: as much as is needed, or as there is room for. Blocks that arrive
   * too late are returned.
   */
  async #reserve(): Promise<SubjectVerdict> {
    const { layout } = this;
    const { clock, acquireCommand, settlements, known, gateways } = this.#parts;
    // Returned amounts must arrive before Redis computes the remaining amount.
    if (settlements.hasQueued(layout.subject.name)) void settlements.flush();
    const askedAt = clock.monotonic();
    const wanted = this.#blocks.map((block, index) => {
      return block.want(
        Array.from(this.#queue, ({ rooms }) => itemAt(rooms, index)),
        askedAt,
        gateways(),
      );
    });
    const reservedIn = ({ isAdmitted, statuses }: SubjectVerdict) =>
      wanted.map(({ most }, index) => {
        const { limit, used } = itemAt(statuses, index);
        if (!isAdmitted) return 0;
        return layout.isObserved ? most : Math.max(0, Math.min(most, limit - used));
      });
    const onOutcome = (outcome: FailedCallOutcome<SubjectVerdict>) => {
      if (outcome.state !== "replied" || !outcome.reply.isAdmitted) return;
      settlements.add(
        layout,
        undefined,
        toUndoing(layout, outcome.reply, reservedIn(outcome.reply)),
      );
    };
    // Ask for the most, and be content with the least.
    const amounts = wanted.map(({ most }) => most);
    const rooms = wanted.map(({ least }) => least);
    const verdict = await acquireCommand(
      { layout, id: NO_SLOT, countsRequests: true, amounts, rooms },
      { onOutcome },
    );
    const reserved = reservedIn(verdict);
    known.learn(layout, verdict, reserved);
    const answeredAt = clock.monotonic();
    for (const [index, block] of this.#blocks.entries()) {
      const { used, resetMs } = itemAt(verdict.statuses, index);
      // Redis has read its clock between the two times.
      block.add(itemAt(reserved, index), {
        used,
        ends: itemAt(verdict.ends, index),
        until: askedAt + resetMs,
        latestUntil: answeredAt + resetMs,
        askedAt,
      });
    }
    return verdict;
  }
}
