/**
 * The subjects of an exchange: the request to Redis for each, the local decision if Redis fails,
 * and the end.
 *
 * | state      | by                              | its end                                  |
 * | ---------- | ------------------------------- | ---------------------------------------- |
 * | unanswered | `ask`, where Redis failed       | decided here, or the exchange is refused |
 * | admitted   | `taken`, from Redis or a share  | settled, or given back                   |
 * | refused    | `taken`, not admitted           | nothing to do                            |
 * | decided    | `decide`, where it was not asked | charged to Redis when it answers        |
 *
 * The answer for an unanswered subject can still arrive. If it admits the exchange, its amounts are
 * returned to Redis. If the effect in Redis is unknown, the local reservation is waived, so that
 * nothing is charged twice.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import { awaitLate, type Late } from "../../storage/redis_command.ts";
import {
  type Amounts,
  isHeld,
  type LimitSubject,
  type Reservation,
  type Standing,
} from "../limiter.ts";
import type { BorrowedShare } from "./borrowed_share.ts";
import type { BorrowedShares } from "./borrowed_shares.ts";
import type { ExhaustedWindows } from "./exhausted_windows.ts";
import type { KnownWindows } from "./known_windows.ts";
import type { LocalDecisions, LocalLease } from "./local_decisions.ts";
import type { OpenLeases } from "./open_leases.ts";
import { type Plan, planOf, type Taken, toAmountsTaken } from "./plan.ts";
import { NO_PLACE } from "./scripts.ts";
import { type Settlements, toCorrections, toUndoing } from "./settlements.ts";
import type { Take } from "./take.ts";

/** Parts of a limiter with which subjects are asked for. */
export interface AskingParts {
  /** Id of this gateway. */
  readonly id: string;
  readonly client: RedisClient;
  readonly take: Take;
  readonly settlements: Settlements;
  readonly known: KnownWindows;
  readonly local: LocalDecisions;
  readonly open: OpenLeases;
  readonly shares: BorrowedShares;
  readonly exhausted: ExhaustedWindows;
  /** True while other gateways can have uncharged calls that they admitted in an outage. */
  readonly isWaiting: () => boolean;
}

/** Asks for the subjects of exchanges of this gateway. */
export class AskedSubjects {
  readonly #parts: AskingParts;
  #acquired = 0;

  constructor(parts: AskingParts) {
    this.#parts = parts;
  }

  /**
   * Uses the amount that an exchange needs from the share of a subject, if enough of it remains.
   */
  take(subject: LimitSubject, reservation: Reservation): AskedSubject | undefined {
    const share = this.#parts.shares.find(subject);
    if (share === undefined) return undefined;
    const reserved = toAmountsTaken(share.plan, reservation);
    const taken = share.take(reserved);
    return taken && new AskedSubject(this.#parts, { plan: share.plan, reserved, taken, share });
  }

  /** Asks Redis to admit an exchange to one subject. Does not reject. */
  async ask(subject: LimitSubject, reservation: Reservation): Promise<AskedSubject> {
    const { settlements, known, shares } = this.#parts;
    const plan = planOf(subject);
    if (settlements.hasPending(subject.name)) void settlements.flush();
    const isLost = known.find(subject.name)?.isLost === true;
    const isAlone = isLost && this.#parts.isWaiting();
    // Calls that were admitted in an outage must be charged before Redis decides.
    if (isLost && !isAlone) void this.charge();
    const share = !isAlone && shares.divides(plan) ? shares.of(plan) : undefined;
    const isPlace = plan.concurrency !== undefined && !isHeld(subject, reservation);
    const id = isPlace ? `${this.#parts.id}-${++this.#acquired}` : undefined;
    const reserved = toAmountsTaken(plan, reservation);
    const one = new AskedSubject(this.#parts, { plan, id, reserved, share });
    if (!isAlone) await one.ask(reservation);
    return one;
  }

  /** Charges the calls that this gateway has admitted alone. */
  charge(): Promise<void> {
    return charge(this.#parts);
  }

  /** The same, unless Redis is away. */
  chargeIfUp(): void {
    chargeIfUp(this.#parts);
  }
}

function charge({ settlements, local }: AskingParts): Promise<void> {
  return settlements.charge(local.bills());
}

function chargeIfUp(parts: AskingParts): void {
  if (parts.client.health.isUp) void charge(parts);
}

interface Asked {
  readonly plan: Plan;
  /** Id of the exchange, if it needs a concurrency slot. */
  readonly id?: string | undefined;
  /** Amounts that were reserved, in the order of {@link Plan.counted}. */
  readonly reserved: readonly number[];
  /** The share from which the amounts are used; `undefined` to ask Redis. */
  readonly share: BorrowedShare | undefined;
  readonly taken?: Taken;
}

/** One subject of an exchange, in one of the states above. */
export class AskedSubject {
  readonly plan: Plan;
  readonly #parts: AskingParts;
  readonly #asked: Asked;
  #taken: Taken | undefined;
  #local: LocalLease | undefined;
  /** True if Redis can have counted it although the command failed. */
  #isUnclear = false;

  constructor(parts: AskingParts, asked: Asked) {
    this.#parts = parts;
    this.plan = asked.plan;
    this.#asked = asked;
    this.#taken = asked.taken;
  }

  /** False if Redis failed. */
  get isAnswered(): boolean {
    return this.#taken !== undefined;
  }

  get isRefused(): boolean {
    return this.#taken?.isAdmitted === false;
  }

  /** State of its limits before the exchange, in Redis or in the share of this gateway. */
  get standings(): readonly Standing[] {
    return this.#taken?.standings ?? this.#parts.local.standings(this.plan);
  }

  /** Asks Redis, or uses the next blocks of its share. Does not reject. */
  async ask(reservation: Reservation): Promise<void> {
    const { plan, share, reserved } = this.#asked;
    try {
      const taken = await (share?.takeNext(reserved) ?? this.#askRedis(reservation));
      this.#parts.exhausted.forget(taken, plan, reservation);
      this.#taken = taken;
    } catch (error) {
      // A block that arrives too late is returned to Redis by other code.
      if (share !== undefined) awaitLate(error, () => {}, (late) => this.#doubt(late));
    }
  }

  /** Decides locally after Redis failed, and counts the admitted exchange. */
  decide(reservation: Reservation): void {
    const { local, open } = this.#parts;
    const { id } = this.#asked;
    this.#local = local.admit(this.plan, this.standings, reservation);
    if (this.#isUnclear) this.#local.waive();
    if (id !== undefined) open.add(this.plan, id);
  }

  /** Ends an exchange that was admitted. @param isUndone True if there was no call after all */
  release(used: Amounts, isUndone: boolean): void {
    const { open, settlements, known } = this.#parts;
    const { plan, id, share, reserved } = this.#asked;
    const local = this.#local;
    const taken = this.#taken;
    if (isUndone && local === undefined) return this.giveBack();
    if (share !== undefined && taken !== undefined) return share.settle(taken, reserved, used);
    if (id !== undefined) open.delete(plan, id);
    if (local !== undefined) {
      local.release(used, isUndone);
      if (id !== undefined) settlements.add(plan, id, []);
      return chargeIfUp(this.#parts);
    }
    if (taken === undefined) throw new Error("Cannot settle: nothing was decided");
    const changes = toCorrections(plan, { ends: taken.ends, reserved }, used);
    known.correct(plan, changes);
    if (id !== undefined || changes.length > 0) settlements.add(plan, id, changes);
  }

  /** Returns the amounts of an exchange that was refused, or that made no call. */
  giveBack(): void {
    const { plan, id, share, reserved } = this.#asked;
    const taken = this.#taken;
    if (taken?.isAdmitted !== true) return;
    if (share !== undefined) return share.giveBack(taken, reserved);
    const { open, settlements, known } = this.#parts;
    if (id !== undefined) open.delete(plan, id);
    const changes = toUndoing(plan, taken, reserved);
    known.correct(plan, changes);
    settlements.add(plan, id, changes);
  }

  async #askRedis(reservation: Reservation): Promise<Taken> {
    const { take, known, open } = this.#parts;
    const { plan, id, reserved } = this.#asked;
    const takesRequests = !isHeld(plan.subject, reservation);
    const taking = { plan, id: id ?? NO_PLACE, takesRequests, amounts: reserved };
    const taken = await take(taking, { late: (late) => this.#answeredLate(late) });
    known.learn(plan, taken, reserved);
    if (id !== undefined && taken.isAdmitted) open.add(plan, id);
    return taken;
  }

  /**
   * Returns the amounts that Redis admitted too late. The local decision is charged instead. A
   * concurrency slot stays in use while the exchange is open.
   */
  #answeredLate(late: Late<Taken>): void {
    this.#doubt(late);
    if (late.state !== "answered" || !late.answer.isAdmitted) return;
    const { open, settlements } = this.#parts;
    const { plan, id, reserved } = this.#asked;
    const isOver = id !== undefined && !open.has(plan, id);
    if (isOver) open.delete(plan, id);
    settlements.add(plan, isOver ? id : undefined, toUndoing(plan, late.answer, reserved));
  }

  /** Waives the local charge if Redis can have counted the exchange already. */
  #doubt({ state }: Late<unknown>): void {
    if (state !== "unknown") return;
    this.#isUnclear = true;
    this.#local?.waive();
  }
}
