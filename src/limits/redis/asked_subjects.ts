/**
 * The subjects of an exchange: asking Redis for each, deciding alone where it fails, and the end.
 *
 * | state      | by                           | its end                                  |
 * | ---------- | ---------------------------- | ---------------------------------------- |
 * | admitted   | `taken`, from Redis or share | settled, or given back                   |
 * | refused    | `taken`, not admitted        | nothing to do                            |
 * | unanswered | `taken` is `undefined`       | decided here, or the exchange is refused |
 * | decided    | `local`                      | charged to Redis when it answers         |
 *
 * The answer of an unanswered subject may still come. If it admits the exchange, that is given
 * back. If it is unknown what Redis did, `isUnclear` is set, and what was reserved here is waived:
 * nothing is charged twice.
 *
 * @module
 */
import { type RedisClient, RedisFailed } from "../../storage/redis_client.ts";
import {
  type Amounts,
  isHeld,
  type LimitSubject,
  type Reservation,
  type Standing,
} from "../limiter.ts";
import type { Asked, BorrowedShares } from "./borrowed_shares.ts";
import type { ExhaustedWindows } from "./exhausted_windows.ts";
import type { KnownWindows } from "./known_windows.ts";
import type { LocalDecisions } from "./local_decisions.ts";
import type { OpenLeases } from "./open_leases.ts";
import {
  type Plan,
  planOf,
  readTaken,
  type Taken,
  toAcquireArguments,
  toAmountsTaken,
  toCountArguments,
} from "./plan.ts";
import { mayBeDone, type Settlements, toCorrections, toUndoing } from "./settlements.ts";

/** Parts of a limiter that subjects are asked with. */
export interface AskingParts {
  /** Id of this gateway. */
  readonly id: string;
  readonly client: RedisClient;
  /** The script that takes from all limits of a subject. */
  readonly acquire: ReturnType<RedisClient["script"]>;
  /** The script that counts requests. */
  readonly count: ReturnType<RedisClient["script"]>;
  readonly settlements: Settlements;
  readonly known: KnownWindows;
  readonly local: LocalDecisions;
  readonly open: OpenLeases;
  readonly shares: BorrowedShares;
  readonly exhausted: ExhaustedWindows;
  /** True while other gateways may not have charged yet what they let through in an outage. */
  readonly isWaiting: () => boolean;
}

/** Subjects that were asked, or decided on, for exchanges of this gateway. */
export class AskedSubjects {
  readonly #parts: AskingParts;
  #acquired = 0;

  constructor(parts: AskingParts) {
    this.#parts = parts;
  }

  /** Asks Redis to admit an exchange to one subject. Does not reject. */
  async ask(subject: LimitSubject, reservation: Reservation): Promise<Asked> {
    const { settlements, known, shares } = this.#parts;
    const plan = planOf(subject);
    if (settlements.hasPending(subject.name)) void settlements.flush();
    const isLost = known.find(subject.name)?.isLost === true;
    const isAlone = isLost && this.#parts.isWaiting();
    // What was let through in an outage has to be there before Redis says what is left.
    if (isLost && !isAlone) void this.charge();
    if (!isAlone && shares.divides(plan)) return await this.#takeNextShare(plan, reservation);
    const isPlace = plan.concurrency !== undefined && !isHeld(subject, reservation);
    const id = isPlace ? `${this.#parts.id}-${++this.#acquired}` : undefined;
    const reserved = toAmountsTaken(plan, reservation);
    const one: Asked = { plan, id, reserved, taken: undefined };
    return isAlone ? one : await this.#askRedis(one, reservation);
  }

  /** Decides here on a subject for which Redis failed: counts an exchange that is admitted. */
  decide(one: Asked, standings: readonly Standing[], reservation: Reservation): void {
    const { local, open } = this.#parts;
    one.local = local.admit(one.plan, standings, reservation);
    if (one.isUnclear === true) one.local.waive();
    if (one.id !== undefined) open.add(one.plan, one.id);
  }

  /** Ends an exchange for a subject that has admitted it, or on which this gateway has decided. */
  release(one: Asked, used: Amounts, isUndone: boolean): void {
    const { open, settlements, known } = this.#parts;
    const { plan, id, taken, share, local, reserved } = one;
    if (isUndone && local === undefined) return this.giveBack(one);
    if (share !== undefined && taken !== undefined) return share.settle(taken, reserved, used);
    if (id !== undefined) open.delete(plan, id);
    if (local !== undefined) {
      local.release(used, isUndone);
      if (id !== undefined) settlements.add(plan, id, []);
      return this.chargeIfUp();
    }
    const changes = toCorrections(plan, { ends: taken?.ends ?? [], reserved }, used);
    known.correct(plan, changes);
    if (id !== undefined || changes.length > 0) settlements.add(plan, id, changes);
  }

  /** Gives back what a refused exchange, or one without a call, has taken of a subject. */
  giveBack({ plan, id, taken, share, reserved }: Asked): void {
    if (taken?.isAdmitted !== true) return;
    if (share !== undefined) return share.giveBack(taken, reserved);
    const { open, settlements, known } = this.#parts;
    if (id !== undefined) open.delete(plan, id);
    const changes = toUndoing(plan, taken, reserved);
    known.correct(plan, changes);
    settlements.add(plan, id, changes);
  }

  /** Charges what this gateway has let through alone. */
  charge(): Promise<void> {
    const { settlements, local } = this.#parts;
    return settlements.charge(local.bills());
  }

  /** Charges it, unless Redis is away. */
  chargeIfUp(): void {
    if (this.#parts.client.health.isUp) void this.charge();
  }

  async #askRedis(one: Asked, reservation: Reservation): Promise<Asked> {
    const { client, known, open, exhausted } = this.#parts;
    const { plan, id, reserved } = one;
    const read = (answer: unknown) => readTaken(answer, plan);
    const call = this.#toCall(one, !isHeld(plan.subject, reservation));
    try {
      const taken = await client.run(call, read);
      known.learn(plan, taken, reserved);
      if (id !== undefined && taken.isAdmitted) open.add(plan, id);
      exhausted.forget(taken, plan, reservation);
      return { ...one, taken };
    } catch (error) {
      // Where Redis admits the exchange after all, it gets that back: the decision of this gateway
      // is charged instead.
      this.#awaitLate(one, error, (answer) => this.#giveBackLate(one, read(answer)));
      return one;
    }
  }

  /** Returns the call that admits an exchange. @param isNew True if it takes a request */
  #toCall({ plan, id, reserved }: Asked, isNew: boolean): Parameters<RedisClient["run"]>[0] {
    const { acquire, count } = this.#parts;
    if (isNew && plan.isCounter) {
      return (redis) => count(redis, [plan.countsKey], toCountArguments(plan, 1));
    }
    const args = toAcquireArguments(plan, id ?? "-", reserved);
    return (redis) => acquire(redis, [plan.countsKey, plan.openKey], args);
  }

  /** Takes what an exchange needs of the next blocks of a share. */
  async #takeNextShare(plan: Plan, reservation: Reservation): Promise<Asked> {
    const { shares, exhausted } = this.#parts;
    const share = shares.of(plan);
    const reserved = toAmountsTaken(plan, reservation);
    const one: Asked = { plan, id: undefined, reserved, taken: undefined };
    try {
      const taken = await share.takeNext(reserved);
      exhausted.forget(taken, plan, reservation);
      return { ...one, taken, share };
    } catch (error) {
      this.#awaitLate(one, error, () => {});
      return one;
    }
  }

  /**
   * Waits for the answer to a call that failed. What Redis may have counted is not charged once
   * more.
   */
  #awaitLate(one: Asked, error: unknown, answered: (answer: unknown) => void): void {
    const late = error instanceof RedisFailed ? error.late : undefined;
    late?.then(answered).catch((cause: unknown) => {
      if (!mayBeDone(cause)) return;
      one.isUnclear = true;
      one.local?.waive();
    });
  }

  /** Gives back what Redis admitted too late. A place stays while the exchange is open. */
  #giveBackLate({ plan, id, reserved }: Asked, taken: Taken): void {
    if (!taken.isAdmitted) return;
    const { open, settlements } = this.#parts;
    const isOver = id !== undefined && !open.has(plan, id);
    if (isOver) open.delete(plan, id);
    settlements.add(plan, isOver ? id : undefined, toUndoing(plan, taken, reserved));
  }
}
