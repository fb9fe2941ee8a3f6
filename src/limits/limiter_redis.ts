/**
 * Limits that many gateways share through Redis. Each subject has a slot of its own: an exchange asks for its key, its
 * team and its provider in this order, one script each, by the server's clock. Those that have admitted it before another
 * one refuses it get back what it took.
 *
 * While Redis fails, each gateway counts alone against its share of every limit; what was used meanwhile is charged when
 * Redis is back.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../storage/redis_client.ts";
import { gather } from "../storage/redis_gather.ts";
import { type BorrowedShare, BorrowedShares, isBorrowed } from "./borrowed_shares_redis.ts";
import { ExhaustedWindows } from "./exhausted_windows.ts";
import { Membership } from "./fleet_redis.ts";
import {
  type Amounts,
  type Lease,
  type Limiter,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
  type Standing,
} from "./limiter.ts";
import { LocalDecisions, type LocalLease } from "./local_decisions.ts";
import { OpenLeases } from "./open_leases_redis.ts";
import {
  type Plan,
  planOf,
  readTaken,
  type Taken,
  toAcquireArguments,
  toAmountsTaken,
  toCountArguments,
} from "./redis_plan.ts";
import { ACQUIRE, COUNT } from "./redis_scripts.ts";
import { mayBeDone, Settlements, toCorrections, toUndoing } from "./settlements_redis.ts";
import { enforce, findRefusing } from "./verdict.ts";

/** Interval at which a gateway renews its membership and its open exchanges. Milliseconds. */
const RENEW_MS = 3000;

/** Verdict about one subject of an exchange. */
interface Asked {
  readonly plan: Plan;
  /** Id of the exchange, where concurrency is limited. */
  readonly id: string | undefined;
  /** Amounts that were reserved, in the order of {@link Plan.counted}. */
  readonly reserved: readonly number[];
  /** Answer of Redis; `undefined` if it failed. */
  readonly taken: Taken | undefined;
  /** Share of which it was taken. */
  readonly share?: BorrowedShare;
  /** Decision of this gateway, where Redis failed. */
  local?: LocalLease;
  /** True if Redis may have counted it all the same. */
  isUnclear?: boolean;
}

/** Limiter that counts in Redis. */
export class RedisLimiter implements Limiter {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #acquire: ReturnType<RedisClient["script"]>;
  readonly #count: ReturnType<RedisClient["script"]>;
  readonly #id = crypto.randomUUID().slice(0, 13);
  readonly #membership: Membership;
  readonly #local: LocalDecisions;
  readonly #open: OpenLeases;
  readonly #settlements: Settlements;
  readonly #exhausted: ExhaustedWindows;
  readonly #shares: BorrowedShares;
  #acquired = 0;
  #fallbacks = 0;
  #isClosed = false;
  #cancelRenewal = (): void => {};

  /**
   * @param client The connection
   * @param clock Source of its times
   */
  constructor(client: RedisClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
    this.#acquire = client.script("sallyportAcquire", ACQUIRE);
    this.#count = client.script("sallyportCount", COUNT);
    this.#membership = new Membership(client, clock, this.#id);
    this.#local = new LocalDecisions(clock, () => this.#membership.divisor);
    this.#open = new OpenLeases(client);
    this.#settlements = new Settlements(client);
    this.#exhausted = new ExhaustedWindows(clock);
    const [count, settlements] = [this.#count, this.#settlements];
    this.#shares = new BorrowedShares({ client, clock, count, settlements, gateways: () => this.#membership.gateways });
  }

  /** Decisions that were made without Redis. */
  get fallbacks(): number {
    return this.#fallbacks;
  }

  /** Joins the gateways that share the limits. */
  async start(): Promise<void> {
    await this.#renew();
    if (!this.#isClosed) this.#cancelRenewal = this.#clock.timer(RENEW_MS, () => void this.start());
  }

  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    this.#membership.count();
    this.#exhausted.refuse(subjects);
    const asked: Asked[] = [];
    for (const subject of subjects) {
      const one = this.#takeShare(subject) ?? await this.#ask(subject, reservation);
      asked.push(one);
      if (one.taken?.isAdmitted === false) return await this.#refuse(subjects, asked, reservation);
    }
    let hasEnd = false;
    for (const { taken, plan, share } of asked) {
      if (taken === undefined) return this.#decide(asked, reservation);
      hasEnd ||= !plan.isCounter && share === undefined;
    }
    const [first] = asked;
    const standings = asked.length === 1 ? first?.taken?.standings : undefined;
    const terms = enforce(standings ?? asked.flatMap(({ taken }) => taken?.standings ?? []), reservation);
    return { ...terms, release: hasEnd ? this.#toRelease(asked) : ignoreEnd };
  }

  async status(subject: LimitSubject): Promise<Standing[]> {
    void this.#settlements.flush();
    const plan = planOf(subject);
    try {
      return (await this.#look(plan)).standings;
    } catch {
      return this.#local.standings(subject);
    }
  }

  /** Leaves the gateways that share the limits, and charges what is owed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal();
    await this.#payOwed();
    await this.#membership.leave();
  }

  /** Takes a request of the share of a subject, if this gateway has one and something is left of it. */
  #takeShare(subject: LimitSubject): Asked | undefined {
    const share = this.#shares.find(subject);
    const taken = share?.take();
    return share && taken && { plan: share.plan, id: undefined, reserved: [], taken, share };
  }

  /** Asks Redis to admit an exchange to one subject. */
  async #ask(subject: LimitSubject, reservation: Reservation): Promise<Asked> {
    const plan = planOf(subject);
    if (isBorrowed(plan)) return await this.#takeNextShare(plan);
    const id = plan.concurrency === undefined ? undefined : `${this.#id}-${++this.#acquired}`;
    const reserved = toAmountsTaken(plan, reservation);
    const read = (answer: unknown) => readTaken(answer, plan);
    if (this.#settlements.hasPending(subject.name)) void this.#settlements.flush();
    try {
      const taken = await this.#client.run((redis) => {
        gather(redis);
        if (plan.isCounter) return this.#count(redis, [plan.countsKey], toCountArguments(plan, 1));
        return this.#acquire(redis, [plan.countsKey, plan.openKey], toAcquireArguments(plan, id ?? "-", reserved));
      }, read);
      if (id !== undefined && taken.isAdmitted) this.#open.add(plan, id);
      if (taken.isAdmitted) this.#exhausted.forget(subject);
      return { plan, id, reserved, taken };
    } catch (error) {
      const one: Asked = { plan, id, reserved, taken: undefined };
      const late = error instanceof RedisFailed ? error.late : undefined;
      // Where Redis admits the exchange after all, it gets that back: the decision of this gateway is charged instead.
      late?.then((answer) => this.#giveBack({ ...one, taken: read(answer) }, true)).catch((cause: unknown) => {
        if (!mayBeDone(cause)) return;
        one.isUnclear = true;
        if (one.local !== undefined) this.#local.waive(plan, one.local);
      });
      return one;
    }
  }

  /** Takes a request of the next block of a share. */
  async #takeNextShare(plan: Plan): Promise<Asked> {
    const share = this.#shares.of(plan);
    try {
      const taken = await share.takeNext();
      if (taken.isAdmitted) this.#exhausted.forget(plan.subject);
      return { plan, id: undefined, reserved: [], taken, share };
    } catch {
      return { plan, id: undefined, reserved: [1], taken: undefined };
    }
  }

  /** Reads the state of a subject's limits. */
  #look(plan: Plan): Promise<Taken> {
    const args = toAcquireArguments(plan, "", toAmountsTaken(plan, NO_RESERVATION));
    return this.#client.run(
      (redis) => this.#acquire(redis, [plan.countsKey, plan.openKey], args),
      (answer) => readTaken(answer, plan),
    );
  }

  /** Refuses an exchange: gives back what it took before, and reads the limits of those that were not asked. */
  async #refuse(subjects: readonly LimitSubject[], asked: readonly Asked[], reservation: Reservation): Promise<Lease> {
    for (const one of asked) this.#giveBack(one);
    const rest = subjects.slice(asked.length).map((subject) => this.status(subject));
    const known = asked.map(({ taken, plan }) => taken?.standings ?? this.#local.standings(plan.subject));
    const standings = [...known, ...await Promise.all(rest)].flat();
    const refusing = asked.at(-1);
    if (refusing !== undefined) this.#exhausted.remember(refusing.plan.subject, standings);
    enforce(standings, reservation);
    throw new Error("Cannot count: Redis refuses, and no limit is reached"); // its standings are those of its verdict
  }

  /** Decides here about the subjects for which Redis failed, in one go: nothing comes between the look and the count. */
  #decide(asked: readonly Asked[], reservation: Reservation): Lease {
    this.#fallbacks++;
    const known = asked.map(({ taken, plan }) => taken?.standings ?? this.#local.standings(plan.subject));
    const standings = known.flat();
    if (findRefusing(standings, reservation).length > 0) { for (const one of asked) this.#giveBack(one); }
    const terms = enforce(standings, reservation);
    for (const [index, one] of asked.entries()) {
      if (one.taken !== undefined) continue;
      one.local = this.#local.admit(one.plan, known[index] ?? [], reservation);
      if (one.isUnclear === true) this.#local.waive(one.plan, one.local);
      if (one.id !== undefined) this.#open.add(one.plan, one.id);
    }
    return { ...terms, release: this.#toRelease(asked) };
  }

  #toRelease(asked: readonly Asked[]): Lease["release"] {
    let isHeld = true;
    return (used) => {
      if (!isHeld) return;
      isHeld = false;
      for (const one of asked) this.#release(one, used);
    };
  }

  #release({ plan, id, taken, share, local, reserved: asked }: Asked, used: Amounts): void {
    if (share !== undefined) return;
    if (id !== undefined) this.#open.delete(plan, id);
    const ends = local === undefined ? taken?.ends : local.ends;
    if (ends === undefined) {
      local?.release(used);
      if (id !== undefined) this.#settlements.add(plan, id, []);
      return;
    }
    const changes = toCorrections(plan, { ends, reserved: local?.reserved ?? asked }, used);
    if (id !== undefined || changes.length > 0) this.#settlements.add(plan, id, changes);
  }

  /**
   * Gives back what an exchange has taken of one subject.
   *
   * @param asked The verdict about the subject
   * @param isLate True if it was decided here meanwhile, so that it may still be open
   */
  #giveBack({ plan, id, taken, share, reserved }: Asked, isLate = false): void {
    if (taken?.isAdmitted !== true) return;
    if (share !== undefined) return share.giveBack();
    if (id !== undefined && !isLate) this.#open.delete(plan, id);
    const isOver = id !== undefined && !this.#open.has(plan, id);
    this.#settlements.add(plan, isOver ? id : undefined, toUndoing(plan, taken, reserved));
  }

  async #renew(): Promise<void> {
    try {
      await this.#settlements.flush();
      await this.#membership.renew();
      await this.#open.renew();
      await this.#payOwed();
    } catch {
      // The next turn tries again.
    }
  }

  /** Settles and charges what could not be while Redis was away. */
  async #payOwed(): Promise<void> {
    await this.#settlements.flush();
    await this.#settlements.payOwed();
    await this.#settlements.charge(this.#local.bills());
  }
}

function ignoreEnd(): void {}
