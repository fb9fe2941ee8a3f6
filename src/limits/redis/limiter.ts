/**
 * Limits that many gateways share through Redis. The keys of each subject are in one slot of a
 * Cluster. An exchange acquires a lease of its key, its team and its provider, in this order, with
 * one script each, by the server's clock. If one of them refuses, the earlier leases are undone.
 *
 * While Redis fails, each gateway decides locally, on its share of every limit. It syncs the counted
 * amounts when Redis is back. See `membership.ts` for the states of a gateway.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import { type SubjectLease, SubjectLeases } from "./subject_leases.ts";
import type { BlockSizes } from "./subject_blocks.ts";
import { BLOCK_SIZES, BlockPool } from "./block_pool.ts";
import { ExhaustedWindows } from "./exhausted_windows.ts";
import { type FleetMemory, Membership } from "./membership.ts";
import { periodEnd } from "../../config/units.ts";
import {
  type Correction,
  type Lease,
  type Limiter,
  type LimitStatus,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
  SKEW_MS,
  toChargedReservation,
} from "../limiter.ts";
import { KnownWindows } from "./known_windows.ts";
import { LocalDecisions } from "./local_decisions.ts";
import { OpenLeases } from "./open_leases.ts";
import {
  layoutOf,
  ofLimit,
  reservedAmounts,
  type SubjectLayout,
  toCountable,
  type Verdict,
} from "./subject_layout.ts";
import { READ_ONLY, type WindowLength } from "./scripts.ts";
import { BACKGROUND_MS, Settlements, toCorrections } from "./settlements.ts";
import { type Acquire, toAcquire } from "./acquire.ts";
import { enforce, findRefusing, toLease } from "../verdict.ts";

/** Interval at which a gateway renews its membership and its open exchanges. Milliseconds. */
const RENEW_MS = 3000;

/** The same interval while it waits for other gateways after an outage. Milliseconds. */
const REJOIN_MS = 250;
/** Number of subjects whose status a gateway checks in each interval. */
const REFRESHED = 100;

/** Limiter that counts in Redis. */
export class RedisLimiter implements Limiter {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #acquire: Acquire;
  readonly #id = crypto.randomUUID().slice(0, 13);
  readonly #membership: Membership;
  readonly #known: KnownWindows;
  readonly #local: LocalDecisions;
  readonly #open: OpenLeases;
  readonly #settlements: Settlements;
  readonly #exhausted: ExhaustedWindows;
  readonly #pool: BlockPool;
  readonly #leases: SubjectLeases;
  #fallbacks = 0;
  #isStarted = false;
  #isRejoining = false;
  #isClosed = false;
  #cancelRenewal = (): void => {};

  constructor(client: RedisClient, clock: Clock, sizes: BlockSizes = BLOCK_SIZES) {
    this.#client = client;
    this.#clock = clock;
    this.#acquire = toAcquire(client);
    this.#membership = new Membership(client, clock, this.#id);
    this.#open = new OpenLeases(client);
    this.#known = new KnownWindows(clock);
    this.#local = new LocalDecisions(
      clock,
      this.#known,
      this.#membership,
      (layout) => this.#open.count(layout),
    );
    this.#settlements = new Settlements(client, () => this.#open.doubt());
    this.#exhausted = new ExhaustedWindows(clock);
    const parts = { acquire: this.#acquire, settlements: this.#settlements, known: this.#known };
    const gateways = () => this.#membership.gateways;
    this.#pool = new BlockPool({ ...parts, clock, gateways, sizes });
    this.#leases = new SubjectLeases({
      ...parts,
      client,
      id: this.#id,
      local: this.#local,
      open: this.#open,
      pool: this.#pool,
      exhausted: this.#exhausted,
      staysLocal: () => this.#staysLocal,
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
    if (!this.#isStarted) this.#client.onUp(() => void this.#rejoin());
    this.#isStarted = true;
    await this.#renew();
    if (!this.#isClosed) this.#cancelRenewal = this.#clock.timer(RENEW_MS, () => void this.start());
  }

  acquire(subjects: readonly LimitSubject[], reservation: Reservation): Lease | Promise<Lease> {
    if (reservation.countedByFirstLease === undefined) this.#membership.count();
    this.#exhausted.refuse(subjects, reservation);
    const leases: SubjectLease[] = [];
    for (const subject of subjects) {
      const lease = this.#leases.acquireFromBlocks(subject, reservation);
      if (lease === undefined) return this.#acquireRest(subjects, leases, reservation);
      leases.push(lease);
    }
    return this.#toLease(leases, reservation);
  }

  async status(subject: LimitSubject): Promise<LimitStatus[]> {
    void this.#settlements.flush();
    const layout = layoutOf(subject);
    try {
      return (await this.#read(layout)).statuses;
    } catch {
      return this.#local.statuses(layout);
    }
  }

  correct(subjects: readonly LimitSubject[], correction: Correction): void {
    for (const subject of subjects) {
      this.#correct(layoutOf(subject), correction).catch(() => {}); // the charged amounts stay
    }
  }

  async #correct(layout: SubjectLayout, { charged, used, ageMs }: Correction): Promise<void> {
    const { statuses, ends } = await this.#read(layout, BACKGROUND_MS);
    const now = this.#clock.now();
    const chargedEnds = layout.counted.map(({ window }, index) => {
      const leftMs = endOfWindow(window, now - ageMs) - now;
      const isSame = ofLimit(statuses, index).resetMs <= leftMs + SKEW_MS;
      return isSame ? ofLimit(ends, index) : OVER;
    });
    const reserved = reservedAmounts(layout, toChargedReservation(charged));
    const changes = toCorrections(layout, { ends: chargedEnds, reserved }, used);
    if (changes.length > 0) this.#settlements.add(layout, undefined, changes);
  }

  /** Syncs the remaining amounts, and leaves the gateways that share the limits. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal();
    this.#pool.end();
    await this.#catchUp();
    await this.#membership.leave();
  }

  /** Acquires the leases of the remaining subjects. */
  async #acquireRest(
    subjects: readonly LimitSubject[],
    leases: SubjectLease[],
    reservation: Reservation,
  ): Promise<Lease> {
    for (const subject of subjects.slice(leases.length)) {
      const lease = this.#leases.acquireFromBlocks(subject, reservation) ??
        await this.#leases.acquire(subject, reservation);
      leases.push(lease);
      if (lease.isRefused) return await this.#refuse(subjects, leases, reservation);
    }
    const areAllAnswered = leases.every(({ isAnswered }) => isAnswered);
    return areAllAnswered
      ? this.#toLease(leases, reservation)
      : this.#decideLocally(leases, reservation);
  }

  /** Makes the lease of an exchange that all subjects have admitted. */
  #toLease(leases: readonly SubjectLease[], reservation: Reservation): Lease {
    return toLease(enforce(statusesOf(leases), reservation), this.#releaseOf(leases));
  }

  /** Reads the status of a subject's limits. */
  async #read(layout: SubjectLayout, deadlineMs?: number): Promise<Verdict> {
    const amounts = reservedAmounts(layout, NO_RESERVATION);
    const verdict = await this.#acquire(
      { layout, id: READ_ONLY, countsRequests: false, amounts },
      { deadlineMs },
    );
    if (this.#known.find(layout.subject.name)?.isLocal !== true) this.#known.learn(layout, verdict);
    return verdict;
  }

  /**
   * Refuses an exchange: undoes its leases, and reads the status of the other subjects.
   */
  async #refuse(
    subjects: readonly LimitSubject[],
    leases: readonly SubjectLease[],
    reservation: Reservation,
  ): Promise<Lease> {
    for (const lease of leases) lease.undo();
    const rest = subjects.slice(leases.length).map((subject) => this.status(subject));
    const statuses = [...statusesOf(leases), ...(await Promise.all(rest)).flat()];
    const refusing = leases.at(-1);
    if (refusing !== undefined) {
      this.#exhausted.remember(refusing.layout.subject, statuses, reservation);
    }
    enforce(statuses, reservation);
    // Redis refuses by the same status.
    throw new Error("Cannot count: Redis refuses, and no limit is reached");
  }

  /**
   * Decides locally about the subjects for which Redis failed. It does not wait between the check
   * and the count, so no other exchange can intervene.
   */
  #decideLocally(leases: readonly SubjectLease[], reservation: Reservation): Lease {
    // Each exchange counts once: a local decision about the key, which is the first subject, was
    // also made for the first lease.
    const isFirst = reservation.countedByFirstLease === undefined;
    if (isFirst || leases[0]?.isAnswered === true) this.#fallbacks++;
    if (!this.#client.health.isUp) this.#membership.failed();
    const unanswered = leases.filter(({ isAnswered }) => !isAnswered);
    for (const { layout } of unanswered) this.#local.noteFailure(layout);
    const statuses = statusesOf(leases);
    if (findRefusing(statuses, reservation).length > 0) {
      for (const lease of leases) lease.undo();
    }
    const terms = enforce(statuses, reservation);
    for (const lease of unanswered) lease.decideLocally(reservation);
    this.#leases.syncIfUp(); // once: it reads the unsynced amounts of all subjects
    return toLease(terms, this.#releaseOf(leases));
  }

  /** True while local decisions stay local. In a Cluster, Redis decides as soon as it answers. */
  get #staysLocal(): boolean {
    return this.#membership.staysLocal && !this.#client.isCluster;
  }

  #releaseOf(leases: readonly SubjectLease[]): Lease["release"] {
    let isOpen = true;
    return (used, isUndone = false) => {
      if (!isOpen) return;
      isOpen = false;
      const counted = toCountable(used);
      for (const lease of leases) lease.release(counted, isUndone);
    };
  }

  /**
   * Brings Redis up to date after an outage. The server can have lost counts, or another server can
   * have become the primary.
   */
  async #rejoin(): Promise<void> {
    if (this.#isClosed) return;
    this.#open.doubt();
    await this.#renew();
    if (this.#isRejoining) return;
    this.#isRejoining = true;
    while (!this.#isClosed && this.#staysLocal && this.#client.health.isUp) {
      await new Promise<void>((resolve) =>
        this.#clock.timer(REJOIN_MS, resolve, { isBackground: true })
      );
      await this.#renew();
    }
    this.#isRejoining = false;
  }

  async #renew(): Promise<void> {
    this.#pool.returnIdle();
    try {
      await this.#settlements.flush();
      // Other gateways wait until this one has rejoined, so it syncs before.
      if (this.#membership.state !== "normal") {
        await Promise.all([this.#open.renew(), this.#catchUp()]);
      }
      await this.#membership.renew();
      if (this.#membership.state === "normal") await this.#settlements.sync(this.#local.rereads());
      await this.#open.renew();
      await this.#catchUp();
      await this.#refresh();
    } catch {
      // The next interval tries again.
    }
  }

  /** Reads the status of some subjects again, because other gateways can have used them. */
  async #refresh(): Promise<void> {
    if (this.#membership.gateways === 1) return;
    const stale = Array.from(this.#known.stale(REFRESHED, RENEW_MS));
    await Promise.allSettled(stale.map(({ layout }) => this.#read(layout, BACKGROUND_MS)));
  }

  /** Sends everything that could not be sent while Redis was away. */
  async #catchUp(): Promise<void> {
    await this.#settlements.flush();
    await this.#settlements.retryUnsent();
    await this.#leases.sync();
  }
}

/** The end of a window that is over, and that Redis therefore does not have. */
const OVER = 1;

/** Returns the end of a window that began at a time, or of the period at that time. */
const endOfWindow = (window: WindowLength, at: number): number =>
  typeof window === "number" ? at + window : periodEnd(window, at);

/** Returns the status of the limits of some subjects, in their order. */
function statusesOf(leases: readonly SubjectLease[]): readonly LimitStatus[] {
  const [first] = leases;
  return leases.length === 1 && first !== undefined
    ? first.statuses
    : leases.flatMap(({ statuses }) => statuses);
}
