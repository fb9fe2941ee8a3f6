/**
 * The leases of an exchange: one for each of its subjects, from Redis, from blocks that this
 * gateway has reserved in advance, or by a local decision if Redis fails.
 *
 * | state      | reached by                              | next                             |
 * | ---------- | --------------------------------------- | -------------------------------- |
 * | unanswered | `ask`, if Redis failed                  | local, or the call is refused    |
 * | admitted   | a verdict of Redis or of blocks         | settled or undone                |
 * | refused    | a verdict of Redis or of blocks         | none                             |
 * | local      | `decideLocally`, if it was unanswered   | synced to Redis when it answers  |
 *
 * The answer for an unanswered subject can still arrive. If it admits the exchange, its amounts are
 * returned to Redis. If the effect in Redis is unknown, the local reservation is waived, so that
 * nothing is counted twice.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import { awaitLate, type Late } from "../../storage/redis_command.ts";
import {
  type Amounts,
  isCountedByFirstLease,
  type LimitStatus,
  type LimitSubject,
  type Reservation,
} from "../limiter.ts";
import type { AcquireCommand, SubjectVerdict } from "./acquire.ts";
import type { BlockPool } from "./block_pool.ts";
import type { ExhaustedWindows } from "./exhausted_windows.ts";
import type { KnownWindows } from "./known_windows.ts";
import type { LocalDecisions, LocalLease } from "./local_decisions.ts";
import type { Membership } from "./membership.ts";
import type { OpenSlots } from "./open_slots.ts";
import { NO_SLOT } from "./scripts.ts";
import { type Settlements, toCorrections, toUndoing } from "./settlements.ts";
import type { SubjectBlocks } from "./subject_blocks.ts";
import { layoutOf, type SubjectLayout, toWanted, type WantedAmounts } from "./subject_layout.ts";

/** Parts of a limiter that leases use. */
export interface LeaseParts {
  /** Id of this gateway. */
  readonly id: string;
  readonly client: RedisClient;
  readonly acquireCommand: AcquireCommand;
  readonly settlements: Settlements;
  readonly known: KnownWindows;
  readonly membership: Membership;
  readonly local: LocalDecisions;
  readonly open: OpenSlots;
  readonly pool: BlockPool;
  readonly exhausted: ExhaustedWindows;
}

/** Acquires the leases of this gateway's exchanges. */
export class SubjectLeases {
  readonly #parts: LeaseParts;
  #acquired = 0;

  constructor(parts: LeaseParts) {
    this.#parts = parts;
  }

  /** Acquires a lease from the blocks of a subject. `undefined` if too little of them remains. */
  acquireFromBlocks(subject: LimitSubject, reservation: Reservation): SubjectLease | undefined {
    const blocks = this.#parts.pool.find(subject);
    if (blocks === undefined) return undefined;
    const { layout } = blocks;
    const wanted = toWanted(layout, reservation);
    const verdict = blocks.use(wanted);
    return verdict && new SubjectLease(this.#parts, { layout, wanted, verdict, blocks });
  }

  /**
   * Acquires a lease of one subject from Redis, directly or by reserving its next blocks there. The
   * lease is unanswered if Redis failed, or if local decisions stay local. Does not reject.
   */
  async acquireFromRedis(subject: LimitSubject, reservation: Reservation): Promise<SubjectLease> {
    const { settlements, known, pool } = this.#parts;
    const layout = layoutOf(subject);
    if (settlements.hasPending(subject.name)) void settlements.flush();
    const isLocal = known.find(subject.name)?.isLocal === true;
    const staysLocal = isLocal && this.#parts.membership.waitsForOthers;
    // Local decisions must be synced before Redis decides again.
    if (isLocal && !staysLocal) void sync(this.#parts);
    const blocks = !staysLocal && pool.usesBlocks(layout) ? pool.getOrAdd(layout) : undefined;
    const needsSlot = layout.concurrency !== undefined &&
      !isCountedByFirstLease(subject, reservation);
    const id = needsSlot ? `${this.#parts.id}-${++this.#acquired}` : undefined;
    const wanted = toWanted(layout, reservation);
    const lease = new SubjectLease(this.#parts, { layout, id, wanted, blocks });
    if (!staysLocal) await lease.ask(reservation);
    return lease;
  }

  /** Sends to Redis the amounts that only this gateway has counted, unless Redis is away. */
  syncIfUp(): void {
    syncIfUp(this.#parts);
  }
}

function sync({ settlements, local }: LeaseParts): Promise<void> {
  return settlements.sync(local.counts.unsynced());
}

function syncIfUp(parts: LeaseParts): void {
  if (parts.client.health.isUp) void sync(parts);
}

interface SubjectRequest {
  readonly layout: SubjectLayout;
  /** Id of the exchange, if it needs a concurrency slot. */
  readonly id?: string | undefined;
  readonly wanted: WantedAmounts;
  /** The blocks from which the amounts are used; `undefined` to ask Redis. */
  readonly blocks: SubjectBlocks | undefined;
  readonly verdict?: SubjectVerdict;
}

/** Lease of one subject, in one of the states above. */
export class SubjectLease {
  readonly layout: SubjectLayout;
  readonly #parts: LeaseParts;
  readonly #request: SubjectRequest;
  #verdict: SubjectVerdict | undefined;
  #local: LocalLease | undefined;
  /** True if Redis can have counted it although the command failed. */
  #mayBeCounted = false;

  constructor(parts: LeaseParts, request: SubjectRequest) {
    this.#parts = parts;
    this.layout = request.layout;
    this.#request = request;
    this.#verdict = request.verdict;
  }

  /** False if Redis failed. */
  get isAnswered(): boolean {
    return this.#verdict !== undefined;
  }

  get isRefused(): boolean {
    return this.#verdict?.isAdmitted === false;
  }

  /** Status of its limits before the exchange: by the verdict, or by this gateway's share. */
  get statuses(): readonly LimitStatus[] {
    return this.#verdict?.statuses ?? this.#parts.local.statuses(this.layout);
  }

  /** Asks Redis, or uses the next blocks. Does not reject. */
  async ask(reservation: Reservation): Promise<void> {
    const { layout, blocks, wanted } = this.#request;
    try {
      const verdict = await (blocks?.useNext(wanted) ?? this.#askRedis(reservation));
      this.#parts.exhausted.forget(verdict, layout, reservation);
      this.#verdict = verdict;
    } catch (error) {
      // A block that arrives too late is returned to Redis by other code.
      if (blocks !== undefined) awaitLate(error, () => {}, (late) => this.#waiveIfUnknown(late));
    }
  }

  /** Counts the admitted exchange locally after Redis failed. */
  decideLocally(reservation: Reservation): void {
    const { local, open } = this.#parts;
    const { id } = this.#request;
    this.#local = local.count(this.layout, this.statuses, reservation);
    if (this.#mayBeCounted) this.#local.waive();
    if (id !== undefined) open.add(this.layout, id);
  }

  /** Ends an exchange that was admitted. @param isUndone True if there was no call after all */
  release(used: Amounts, isUndone: boolean): void {
    const { open, settlements, known } = this.#parts;
    const { layout, id, blocks, wanted } = this.#request;
    const reserved = wanted.amounts;
    const local = this.#local;
    const verdict = this.#verdict;
    if (isUndone && local === undefined) return this.undo();
    if (blocks !== undefined && verdict !== undefined) {
      return blocks.settle(verdict, reserved, used);
    }
    if (id !== undefined) open.delete(layout, id);
    if (local !== undefined) {
      local.release(used, isUndone);
      if (id !== undefined) settlements.add(layout, id, []);
      return syncIfUp(this.#parts);
    }
    if (verdict === undefined) throw new Error("Cannot settle: nothing was decided");
    const changes = toCorrections(layout, { ends: verdict.ends, reserved }, used);
    known.correct(layout, changes);
    if (id !== undefined || changes.length > 0) settlements.add(layout, id, changes);
  }

  /** Returns all amounts of an exchange that was refused, or that made no call. */
  undo(): void {
    const { layout, id, blocks, wanted } = this.#request;
    const reserved = wanted.amounts;
    const verdict = this.#verdict;
    if (verdict?.isAdmitted !== true) return;
    if (blocks !== undefined) return blocks.undo(verdict, reserved);
    const { open, settlements, known } = this.#parts;
    if (id !== undefined) open.delete(layout, id);
    const changes = toUndoing(layout, verdict, reserved);
    known.correct(layout, changes);
    settlements.add(layout, id, changes);
  }

  async #askRedis(reservation: Reservation): Promise<SubjectVerdict> {
    const { acquireCommand, known, open } = this.#parts;
    const { layout, id, wanted } = this.#request;
    const countsRequests = !isCountedByFirstLease(layout.subject, reservation);
    const request = { layout, id: id ?? NO_SLOT, countsRequests, ...wanted };
    const verdict = await acquireCommand(request, { late: (late) => this.#answeredLate(late) });
    known.learn(layout, verdict, wanted.amounts);
    if (id !== undefined && verdict.isAdmitted) open.add(layout, id);
    return verdict;
  }

  /**
   * Returns the amounts that Redis admitted too late. The local decision counts instead. A
   * concurrency slot stays in use while the exchange is open.
   */
  #answeredLate(late: Late<SubjectVerdict>): void {
    this.#waiveIfUnknown(late);
    if (late.state !== "answered" || !late.answer.isAdmitted) return;
    const { open, settlements } = this.#parts;
    const { layout, id, wanted } = this.#request;
    const isOver = id !== undefined && !open.has(layout, id);
    if (isOver) open.delete(layout, id);
    settlements.add(
      layout,
      isOver ? id : undefined,
      toUndoing(layout, late.answer, wanted.amounts),
    );
  }

  /** Waives the local reservation if the effect in Redis is unknown. */
  #waiveIfUnknown({ state }: Late<unknown>): void {
    if (state !== "unknown") return;
    this.#mayBeCounted = true;
    this.#local?.waive();
  }
}
