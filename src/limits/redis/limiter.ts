/**
 * Limits that many gateways share through Redis. The keys of each subject are in one slot of a
 * Cluster. An exchange asks for its key, its team and its provider, in this order, with one script
 * each, by the server's clock. If one of them refuses, the amounts at the earlier ones are
 * returned.
 *
 * While Redis fails, each gateway counts alone against its share of every limit. The amounts that
 * were used in that time are charged when Redis is back.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import { type AskedSubject, AskedSubjects } from "./asked_subjects.ts";
import type { Division } from "./borrowed_share.ts";
import { BorrowedShares, DIVISION } from "./borrowed_shares.ts";
import { ExhaustedWindows } from "./exhausted_windows.ts";
import { type FleetMemory, Membership } from "./membership.ts";
import {
  type Lease,
  type Limiter,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
  type Standing,
} from "../limiter.ts";
import { KnownWindows } from "./known_windows.ts";
import { LocalDecisions } from "./local_decisions.ts";
import { OpenLeases } from "./open_leases.ts";
import { type Plan, planOf, type Taken, toAmountsTaken, toCounted } from "./plan.ts";
import { LOOK } from "./scripts.ts";
import { BACKGROUND_MS, Settlements } from "./settlements.ts";
import { type Take, toTake } from "./take.ts";
import { enforce, findRefusing, toLease } from "../verdict.ts";

/** Interval at which a gateway renews its membership and its open exchanges. Milliseconds. */
const RENEW_MS = 3000;

/** The same interval while it waits for other gateways after an outage. Milliseconds. */
const REJOIN_MS = 250;
/** Number of subjects whose state a gateway checks in each interval. */
const REFRESHED = 100;

/** Limiter that counts in Redis. */
export class RedisLimiter implements Limiter {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #take: Take;
  readonly #id = crypto.randomUUID().slice(0, 13);
  readonly #membership: Membership;
  readonly #known: KnownWindows;
  readonly #local: LocalDecisions;
  readonly #open: OpenLeases;
  readonly #settlements: Settlements;
  readonly #exhausted: ExhaustedWindows;
  readonly #shares: BorrowedShares;
  readonly #subjects: AskedSubjects;
  #fallbacks = 0;
  #isStarted = false;
  #isResuming = false;
  #isClosed = false;
  #cancelRenewal = (): void => {};

  constructor(client: RedisClient, clock: Clock, division: Division = DIVISION) {
    this.#client = client;
    this.#clock = clock;
    this.#take = toTake(client);
    this.#membership = new Membership(client, clock, this.#id);
    this.#open = new OpenLeases(client);
    this.#known = new KnownWindows(clock);
    this.#local = new LocalDecisions(
      clock,
      this.#known,
      this.#membership,
      (plan) => this.#open.count(plan),
    );
    this.#settlements = new Settlements(client, () => this.#open.doubt());
    this.#exhausted = new ExhaustedWindows(clock);
    const parts = { take: this.#take, settlements: this.#settlements, known: this.#known };
    const gateways = () => this.#membership.gateways;
    this.#shares = new BorrowedShares({ ...parts, clock, gateways, division });
    this.#subjects = new AskedSubjects({
      ...parts,
      client,
      id: this.#id,
      local: this.#local,
      open: this.#open,
      shares: this.#shares,
      exhausted: this.#exhausted,
      isWaiting: () => this.#isWaiting,
    });
  }

  /** Decisions that were made without Redis. */
  get fallbacks(): number {
    return this.#fallbacks;
  }

  /**
   * Remembers the number of gateways across a restart. @param expected The number if none is known
   */
  remember(memory: FleetMemory | undefined, expected?: number): void {
    this.#membership.remember(memory, expected);
  }

  /** Joins the gateways that share the limits. */
  async start(): Promise<void> {
    if (!this.#isStarted) this.#client.onUp(() => void this.#resume());
    this.#isStarted = true;
    await this.#renew();
    if (!this.#isClosed) this.#cancelRenewal = this.#clock.timer(RENEW_MS, () => void this.start());
  }

  acquire(subjects: readonly LimitSubject[], reservation: Reservation): Lease | Promise<Lease> {
    if (reservation.admitted === undefined) this.#membership.count();
    this.#exhausted.refuse(subjects, reservation);
    const asked: AskedSubject[] = [];
    for (const subject of subjects) {
      const one = this.#subjects.take(subject, reservation);
      if (one === undefined) return this.#askOthers(subjects, asked, reservation);
      asked.push(one);
    }
    return this.#admit(asked, reservation);
  }

  async status(subject: LimitSubject): Promise<Standing[]> {
    void this.#settlements.flush();
    const plan = planOf(subject);
    try {
      return (await this.#look(plan)).standings;
    } catch {
      return this.#local.standings(plan);
    }
  }

  /** Leaves the gateways that share the limits, and charges the unpaid amounts. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal();
    this.#shares.end();
    await this.#payOwed();
    await this.#membership.leave();
  }

  /** Asks for the subjects that were not asked for yet. */
  async #askOthers(
    subjects: readonly LimitSubject[],
    asked: AskedSubject[],
    reservation: Reservation,
  ): Promise<Lease> {
    for (const subject of subjects.slice(asked.length)) {
      const one = this.#subjects.take(subject, reservation) ??
        await this.#subjects.ask(subject, reservation);
      asked.push(one);
      if (one.isRefused) return await this.#refuse(subjects, asked, reservation);
    }
    const areAllAnswered = asked.every(({ isAnswered }) => isAnswered);
    return areAllAnswered ? this.#admit(asked, reservation) : this.#decide(asked, reservation);
  }

  /** Admits an exchange that all subjects have admitted. */
  #admit(asked: readonly AskedSubject[], reservation: Reservation): Lease {
    return toLease(enforce(standingsOf(asked), reservation), this.#toRelease(asked));
  }

  /** Reads the state of a subject's limits. */
  async #look(plan: Plan, deadlineMs?: number): Promise<Taken> {
    const amounts = toAmountsTaken(plan, NO_RESERVATION);
    const taken = await this.#take(
      { plan, id: LOOK, takesRequests: false, amounts },
      { deadlineMs },
    );
    if (this.#known.find(plan.subject.name)?.isLost !== true) this.#known.learn(plan, taken);
    return taken;
  }

  /**
   * Refuses an exchange: returns the amounts that it has acquired, and reads the limits of the
   * other subjects.
   */
  async #refuse(
    subjects: readonly LimitSubject[],
    asked: readonly AskedSubject[],
    reservation: Reservation,
  ): Promise<Lease> {
    for (const one of asked) one.giveBack();
    const rest = subjects.slice(asked.length).map((subject) => this.status(subject));
    const known = standingsOf(asked);
    const standings = [...known, ...(await Promise.all(rest)).flat()];
    const refusing = asked.at(-1);
    if (refusing !== undefined) {
      this.#exhausted.remember(refusing.plan.subject, standings, reservation);
    }
    enforce(standings, reservation);
    // Redis refuses by the same state.
    throw new Error("Cannot count: Redis refuses, and no limit is reached");
  }

  /**
   * Decides locally about the subjects for which Redis failed. It does not wait between the check
   * and the count, so no other exchange can intervene.
   */
  #decide(asked: readonly AskedSubject[], reservation: Reservation): Lease {
    // If this gateway decides about the key, which is the first subject, it has also decided about
    // the first lease.
    if (reservation.admitted === undefined || asked[0]?.isAnswered === true) this.#fallbacks++;
    if (!this.#client.health.isUp) this.#membership.lost();
    const unanswered = asked.filter(({ isAnswered }) => !isAnswered);
    for (const { plan } of unanswered) this.#local.lose(plan);
    const standings = standingsOf(asked);
    if (findRefusing(standings, reservation).length > 0) {
      for (const one of asked) one.giveBack();
    }
    const terms = enforce(standings, reservation);
    for (const one of unanswered) one.decide(reservation);
    this.#subjects.chargeIfUp(); // once: it reads the bills of all subjects
    return toLease(terms, this.#toRelease(asked));
  }

  /** True while other gateways can have uncharged calls that they admitted in an outage. */
  get #isWaiting(): boolean {
    return this.#membership.isWaiting && !this.#client.isCluster;
  }

  #toRelease(asked: readonly AskedSubject[]): Lease["release"] {
    let isOpen = true;
    return (used, isUndone = false) => {
      if (!isOpen) return;
      isOpen = false;
      const counted = toCounted(used);
      for (const one of asked) one.release(counted, isUndone);
    };
  }

  /**
   * Brings Redis up to date after an outage. The server can have lost counts, or another server can
   * have become the primary.
   */
  async #resume(): Promise<void> {
    if (this.#isClosed) return;
    this.#open.doubt();
    await this.#renew();
    if (this.#isResuming) return;
    this.#isResuming = true;
    while (!this.#isClosed && this.#isWaiting && this.#client.health.isUp) {
      await new Promise<void>((resolve) =>
        this.#clock.timer(REJOIN_MS, resolve, { isBackground: true })
      );
      await this.#renew();
    }
    this.#isResuming = false;
  }

  async #renew(): Promise<void> {
    this.#shares.giveBackIdle();
    try {
      await this.#settlements.flush();
      // Other gateways wait until this one joins, so its unpaid amounts must be charged before.
      if (this.#membership.isAway) await Promise.all([this.#open.renew(), this.#payOwed()]);
      await this.#membership.renew();
      if (!this.#membership.isAway) await this.#settlements.charge(this.#local.reviews());
      await this.#open.renew();
      await this.#payOwed();
      await this.#refresh();
    } catch {
      // The next interval tries again.
    }
  }

  /** Reads the state of some subjects again, because other gateways can have used them. */
  async #refresh(): Promise<void> {
    if (this.#membership.gateways === 1) return;
    const stale = Array.from(this.#known.stale(REFRESHED, RENEW_MS));
    await Promise.allSettled(stale.map(({ plan }) => this.#look(plan, BACKGROUND_MS)));
  }

  /** Sends the settlements and charges that could not be sent while Redis was away. */
  async #payOwed(): Promise<void> {
    await this.#settlements.flush();
    await this.#settlements.payOwed();
    await this.#subjects.charge();
  }
}

/** Returns the state of the limits of some subjects, in their order. */
function standingsOf(asked: readonly AskedSubject[]): readonly Standing[] {
  const [first] = asked;
  return asked.length === 1 && first !== undefined
    ? first.standings
    : asked.flatMap(({ standings }) => standings);
}
