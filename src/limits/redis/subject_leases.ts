/**
 * The leases of an exchange: one for each of its subjects, from Redis, from blocks that this
 * gateway has reserved in advance, or by a local decision if Redis fails.
 *
 * | state      | reached by                              | next                             |
 * | ---------- | --------------------------------------- | -------------------------------- |
 * | undecided  | Redis failed, or was not asked          | local, or the call is refused    |
 * | decided    | a verdict of Redis or of blocks         | settled or undone, if it admits  |
 * | local      | `decideLocally`, if it was undecided    | synced to Redis when it answers  |
 *
 * The reply for an undecided subject can still arrive. If it admits the exchange, its amounts are
 * returned to Redis. If the effect in Redis is unknown, the local reservation is waived, so that
 * nothing is counted twice.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import { awaitOutcome, type FailedCallOutcome } from "../../storage/redis_command.ts";
import {
  type Amounts,
  isCountedByFirstLease,
  type LimitStatus,
  type LimitSubject,
  needsSlot,
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
   * lease is undecided if Redis failed, or if local decisions stay local. Does not reject.
   */
  async acquireFromRedis(subject: LimitSubject, reservation: Reservation): Promise<SubjectLease> {
    const { settlements, known, pool } = this.#parts;
    const layout = layoutOf(subject);
    if (settlements.hasQueued(subject.name)) void settlements.flush();
    const isLocal = known.find(subject.name)?.isLocal === true;
    const staysLocal = isLocal && this.#parts.membership.waitsForOthers;
    // Local decisions must be synced before Redis decides again.
    if (isLocal && !staysLocal) void sync(this.#parts);
    const blocks = !staysLocal && pool.usesBlocks(layout) ? pool.getOrAdd(layout) : undefined;
    const id = needsSlot(subject, reservation)
      ? `${this.#parts.id}-${++this.#acquired}`
      : undefined;
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

/** A subject, and the amounts that an exchange acquires of its limits. */
interface AskedSubject {
  readonly layout: SubjectLayout;
  /** Id of the exchange, if it needs a concurrency slot. */
  readonly id?: string | undefined;
  readonly wanted: WantedAmounts;
  /** The blocks from which the amounts are used; `undefined` to ask Redis. */
  readonly blocks: SubjectBlocks | undefined;
  readonly verdict?: SubjectVerdict;
}

/** States of a lease, see above. */
type LeaseState =
  | { readonly name: "undecided" }
  | { readonly name: "decided"; readonly verdict: SubjectVerdict }
  | { readonly name: "local"; readonly local: LocalLease };

/** Lease of one subject. */
export class SubjectLease {
  readonly layout: SubjectLayout;
  readonly #parts: LeaseParts;
  readonly #asked: AskedSubject;
  #state: LeaseState = { name: "undecided" };
  /** True if Redis can have counted it although the command failed. */
  #mayBeCounted = false;
  /** True if Redis has admitted it too late, and counts its slot, if it needs one. */
  #hasLateSlot = false;
  /** True once the exchange is over, or was refused. */
  #isOver = false;

  constructor(parts: LeaseParts, asked: AskedSubject) {
    this.#parts = parts;
    this.layout = asked.layout;
    this.#asked = asked;
    if (asked.verdict !== undefined) this.#state = { name: "decided", verdict: asked.verdict };
  }

  get #verdict(): SubjectVerdict | undefined {
    return this.#state.name === "decided" ? this.#state.verdict : undefined;
  }

  /** False if Redis failed, or was not asked. */
  get hasVerdict(): boolean {
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
    const { layout, blocks, wanted } = this.#asked;
    try {
      const verdict =
        await (blocks === undefined ? this.#askRedis(reservation) : blocks.useNext(wanted));
      this.#parts.exhausted.forget(verdict, layout, reservation);
      this.#state = { name: "decided", verdict };
    } catch (error) {
      // `SubjectBlocks.#reserve` returns a block that arrives too late.
      if (blocks !== undefined) {
        awaitOutcome(error, () => {}, (outcome) => this.#waiveIfUnknown(outcome));
      }
    }
  }

  /** Counts the admitted exchange locally after Redis failed. */
  decideLocally(reservation: Reservation): void {
    const { open } = this.#parts;
    const { id } = this.#asked;
    const local = this.#parts.local.count(this.layout, this.statuses, reservation);
    if (this.#mayBeCounted) local.waive();
    this.#state = { name: "local", local };
    if (id !== undefined) open.add(this.layout, id);
  }

  /** Ends an exchange that was admitted. @param isUndone True if there was no call after all */
  release(used: Amounts, isUndone: boolean): void {
    this.#isOver = true;
    const state = this.#state;
    switch (state.name) {
      case "undecided":
        throw new Error("Cannot settle: nothing was decided");
      case "local":
        return this.#releaseLocally(state.local, used, isUndone);
      case "decided":
        return isUndone ? this.undo() : this.#settle(state.verdict, used);
    }
  }

  #settle(verdict: SubjectVerdict, used: Amounts): void {
    const { layout, id, blocks, wanted } = this.#asked;
    const reserved = wanted.amounts;
    if (blocks !== undefined) return blocks.settle(verdict, reserved, used);
    const { open, settlements, known } = this.#parts;
    if (id !== undefined) open.delete(layout, id);
    const changes = toCorrections(layout, { ends: verdict.ends, reserved }, used);
    known.correct(layout, changes);
    if (id !== undefined || changes.length > 0) settlements.add(layout, id, changes);
  }

  #releaseLocally(local: LocalLease, used: Amounts, isUndone: boolean): void {
    const { open, settlements } = this.#parts;
    const { layout, id } = this.#asked;
    if (id !== undefined) open.delete(layout, id);
    local.release(used, isUndone);
    if (id !== undefined) settlements.add(layout, id, []);
    syncIfUp(this.#parts);
  }

  /** Returns all amounts of an exchange that was refused, or that made no call. */
  undo(): void {
    this.#isOver = true;
    const { open, settlements, known } = this.#parts;
    const { layout, id, blocks, wanted } = this.#asked;
    const reserved = wanted.amounts;
    const verdict = this.#verdict;
    if (this.#hasLateSlot && id !== undefined) {
      open.delete(layout, id);
      settlements.add(layout, id, []);
    }
    if (verdict?.isAdmitted !== true) return;
    if (blocks !== undefined) return blocks.undo(verdict, reserved);
    if (id !== undefined) open.delete(layout, id);
    const changes = toUndoing(layout, verdict, reserved);
    known.correct(layout, changes);
    settlements.add(layout, id, changes);
  }

  async #askRedis(reservation: Reservation): Promise<SubjectVerdict> {
    const { acquireCommand, known, open } = this.#parts;
    const { layout, id, wanted } = this.#asked;
    const countsRequests = !isCountedByFirstLease(layout.subject, reservation);
    const request = { layout, id: id ?? NO_SLOT, countsRequests, ...wanted };
    const verdict = await acquireCommand(request, {
      onOutcome: (outcome) => this.#onOutcome(outcome),
    });
    known.learn(layout, verdict, wanted.amounts);
    if (id !== undefined && verdict.isAdmitted) open.add(layout, id);
    return verdict;
  }

  /**
   * Returns the amounts that Redis admitted too late. The local decision counts instead. A
   * concurrency slot stays in use until the exchange is over, also before that decision: other
   * subjects can still be asked.
   */
  #onOutcome(outcome: FailedCallOutcome<SubjectVerdict>): void {
    this.#waiveIfUnknown(outcome);
    if (outcome.state !== "replied" || !outcome.reply.isAdmitted) return;
    const { open, settlements } = this.#parts;
    const { layout, id, wanted } = this.#asked;
    const ended = this.#isOver ? id : undefined;
    if (ended !== undefined) open.delete(layout, ended);
    else this.#hasLateSlot = true;
    settlements.add(layout, ended, toUndoing(layout, outcome.reply, wanted.amounts));
  }

  /** Waives the local reservation if the effect in Redis is unknown. */
  #waiveIfUnknown({ state }: FailedCallOutcome<unknown>): void {
    if (state !== "unknown") return;
    this.#mayBeCounted = true;
    if (this.#state.name === "local") this.#state.local.waive();
  }
}
