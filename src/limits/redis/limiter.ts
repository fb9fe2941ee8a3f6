/**
 * Limits that many gateways share through Redis. The keys of each subject are in one slot of a
 * Cluster. An exchange acquires a lease of its key, its team and its provider, with one script each,
 * by the server's clock, all in one round trip. If one of them refuses, the other leases are undone:
 * another exchange can be refused meanwhile. `recent_refusals.ts` has the exception to this.
 *
 * | Redis                       | decides                                   | counted in           |
 * | --------------------------- | ----------------------------------------- | -------------------- |
 * | answers                     | Redis                                     | Redis                |
 * | is late once                | this gateway, within its share            | this process, and    |
 * |                             |                                           | synced at once       |
 * | is away                     | this gateway, within its share. Redis is  | this process         |
 * |                             | not asked                                 |                      |
 * | answers again (`rejoining`) | this gateway, for subjects on which it    | this process, and    |
 * |                             | decided while Redis was away, until all   | synced at once       |
 * |                             | gateways are back                         |                      |
 * | answers again (`rejoining`) | Redis, for other subjects                 | Redis                |
 *
 * A reply that arrives after this gateway has decided can admit the call too. Its amounts are then
 * returned to Redis.
 *
 * If the connection broke before the reply, Redis can have counted the call. The local reservation is
 * then waived (`local_decisions.ts`), so that nothing is counted twice. A slot that Redis granted
 * late stays in use while the exchange is open.
 *
 * `subject_leases.ts` has the states of one lease, `membership.ts` those of a gateway, `recovery.ts`
 * the steps after an outage. A gateway waits for others at most 10 s after it rejoined, and at most
 * 20 s after Redis last failed. Without other gateways, or in a Cluster, it does not wait.
 *
 * | term           | meaning                                                                 |
 * | -------------- | ----------------------------------------------------------------------- |
 * | layout         | The keys and fields of a subject in Redis (`subject_layout.ts`)         |
 * | ends, until    | The end of a window: by the clock of Redis, and by this process's clock |
 * | block          | A part of a large limit without concurrency that a gateway has reserved |
 * |                | in advance and uses without asking. Redis counts it as used (`block.ts`) |
 * | share          | The part of each limit on which a gateway decides while Redis is away   |
 * | local          | Decided or counted by this gateway, and not by Redis                    |
 * | unsynced, sync | Counted locally and not yet in Redis; send it to Redis                  |
 * | unsent         | A settlement that certainly had no effect in Redis. It is sent later. A |
 * |                | settlement that could have had an effect is not repeated                |
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
  isSecondLease,
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
import { OpenSlots } from "./open_slots.ts";
import { RecentRefusals } from "./recent_refusals.ts";
import { Recovery } from "./recovery.ts";
import { itemAt, layoutOf, type SubjectLayout, toCountable, toWanted } from "./subject_layout.ts";
import { READ_ONLY, type WindowLength } from "./scripts.ts";
import {
  type AmountChange,
  BACKGROUND_MS,
  OVER_WINDOW,
  Settlements,
  toCorrections,
} from "./settlements.ts";
import { type AcquireCommand, createAcquireCommand, type SubjectVerdict } from "./acquire.ts";
import { enforce, findRefusing, toLease } from "../verdict.ts";

/** Limiter that counts in Redis. */
export class RedisLimiter implements Limiter {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #acquireCommand: AcquireCommand;
  readonly #id = crypto.randomUUID().slice(0, 13);
  readonly #membership: Membership;
  readonly #known: KnownWindows;
  readonly #local: LocalDecisions;
  readonly #settlements: Settlements;
  readonly #exhausted: ExhaustedWindows;
  readonly #refusals: RecentRefusals;
  readonly #leases: SubjectLeases;
  readonly #recovery: Recovery;
  #localDecisions = 0;

  constructor(client: RedisClient, clock: Clock, sizes: BlockSizes = BLOCK_SIZES) {
    this.#client = client;
    this.#clock = clock;
    this.#acquireCommand = createAcquireCommand(client);
    this.#membership = new Membership(client, clock, this.#id);
    this.#known = new KnownWindows(clock);
    const open = new OpenSlots(client);
    this.#local = new LocalDecisions(
      clock,
      this.#known,
      this.#membership,
      (layout) => open.count(layout),
    );
    this.#settlements = new Settlements(client, () => open.noteUnfreed());
    this.#exhausted = new ExhaustedWindows(clock);
    this.#refusals = new RecentRefusals(clock);
    const parts = {
      acquireCommand: this.#acquireCommand,
      settlements: this.#settlements,
      known: this.#known,
    };
    const gateways = () => this.#membership.gateways;
    const pool = new BlockPool({ ...parts, clock, gateways, sizes });
    const shared = { ...parts, client, membership: this.#membership, open, pool };
    this.#leases = new SubjectLeases({
      ...shared,
      id: this.#id,
      local: this.#local,
      exhausted: this.#exhausted,
    });
    this.#recovery = new Recovery({
      ...shared,
      clock,
      counts: this.#local.counts,
      read: (layout, deadlineMs) => this.#read(layout, deadlineMs),
    });
  }

  /** Number of decisions that were made without Redis. */
  get localDecisions(): number {
    return this.#localDecisions;
  }

  /**
   * Remembers the number of gateways across a restart. @param expected The number if none is known
   */
  remember(memory: FleetMemory | undefined, expected?: number): void {
    this.#membership.remember(memory, expected);
  }

  /**
   * Joins the gateways that share the limits, or renews the membership, and does so again at each
   * interval.
   */
  start(): Promise<void> {
    return this.#recovery.start();
  }

  acquire(subjects: readonly LimitSubject[], reservation: Reservation): Lease | Promise<Lease> {
    if (!isSecondLease(reservation)) this.#membership.countCall();
    this.#exhausted.refuseIfExhausted(subjects, reservation);
    const leases: SubjectLease[] = [];
    for (const subject of subjects) {
      const lease = this.#leases.acquireFromBlocks(subject, reservation);
      if (lease === undefined) return this.#acquireOthers(subjects, leases, reservation);
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

  async correct(subjects: readonly LimitSubject[], correction: Correction): Promise<void> {
    const read = async (subject: LimitSubject) => {
      const layout = layoutOf(subject);
      return { layout, current: await this.#read(layout, BACKGROUND_MS) };
    };
    // Reading changes nothing: if it fails for one subject, none is corrected, and a retry corrects
    // each of them once.
    for (const { layout, current } of await Promise.all(subjects.map(read))) {
      const changes = this.#toChanges(layout, current, correction);
      if (changes.length > 0) this.#settlements.add(layout, undefined, changes);
    }
  }

  /** Syncs the remaining amounts, and leaves the gateways that share the limits. */
  async close(): Promise<void> {
    await this.#recovery.close();
    await this.#membership.leave();
  }

  /** Returns the changes of a correction in the windows in which its amounts were charged. */
  #toChanges(
    layout: SubjectLayout,
    current: SubjectVerdict,
    { charged, used, ageMs }: Correction,
  ): AmountChange[] {
    const ends = endsOfCharge(layout, current, { now: this.#clock.now(), ageMs });
    const { amounts: reserved } = toWanted(layout, toChargedReservation(charged));
    return toCorrections(layout, { ends, reserved }, used);
  }

  /**
   * Acquires the leases of the other subjects, from Redis if blocks of this gateway do not cover
   * them.
   *
   * @param first The leases of the first subjects
   */
  async #acquireOthers(
    subjects: readonly LimitSubject[],
    first: readonly SubjectLease[],
    reservation: Reservation,
  ): Promise<Lease> {
    const leases = [...first];
    const acquire = (subject: LimitSubject) =>
      this.#leases.acquireFromBlocks(subject, reservation) ??
        this.#leases.acquireFromRedis(subject, reservation);
    for (const together of this.#refusals.divide(subjects.slice(first.length))) {
      leases.push(...await Promise.all(together.map(acquire)));
      if (leases.some(({ isRefused }) => isRefused)) {
        return await this.#refuse(subjects, leases, reservation);
      }
    }
    const haveVerdicts = leases.every(({ hasVerdict }) => hasVerdict);
    return haveVerdicts
      ? this.#toLease(leases, reservation)
      : this.#decideLocally(leases, reservation);
  }

  /** Makes the lease of an exchange. All subjects have admitted it, so this does not refuse it. */
  #toLease(leases: readonly SubjectLease[], reservation: Reservation): Lease {
    return toLease(enforce(statusesOf(leases), reservation), this.#releaseOf(leases));
  }

  /** Reads the status of a subject's limits. */
  async #read(layout: SubjectLayout, deadlineMs?: number): Promise<SubjectVerdict> {
    const wanted = toWanted(layout, NO_RESERVATION);
    const verdict = await this.#acquireCommand(
      { layout, id: READ_ONLY, countsRequests: false, ...wanted },
      { deadlineMs },
    );
    if (this.#known.find(layout.subject.name)?.isLocal !== true) this.#known.learn(layout, verdict);
    return verdict;
  }

  /** Refuses an exchange: undoes its leases, and reads the status of the subjects not asked. */
  async #refuse(
    subjects: readonly LimitSubject[],
    leases: readonly SubjectLease[],
    reservation: Reservation,
  ): Promise<Lease> {
    for (const lease of leases) lease.undo();
    const rest = subjects.slice(leases.length).map((subject) => this.status(subject));
    const statuses = [...statusesOf(leases), ...(await Promise.all(rest)).flat()];
    for (const { layout } of leases.filter(({ isRefused }) => isRefused)) {
      this.#refusals.note(layout.subject);
      this.#exhausted.remember(layout.subject, statuses, reservation);
    }
    enforce(statuses, reservation);
    // Never reached: `enforce` has refused, because it has the same statuses as Redis.
    throw new Error("Cannot count: Redis refuses, and no limit is reached");
  }

  /**
   * Decides locally about the subjects for which Redis failed. It does not wait between the check
   * and the count, so no other exchange can intervene.
   */
  #decideLocally(leases: readonly SubjectLease[], reservation: Reservation): Lease {
    this.#noteLocalDecision(leases, reservation);
    const undecided = leases.filter(({ hasVerdict }) => !hasVerdict);
    for (const { layout } of undecided) this.#local.noteUndecided(layout);
    const statuses = statusesOf(leases);
    const isRefused = findRefusing(statuses, reservation).length > 0;
    if (isRefused) { for (const lease of leases) lease.undo(); }
    const terms = enforce(statuses, reservation); // throws the refusal
    for (const lease of undecided) lease.decideLocally(reservation);
    this.#leases.syncIfUp(); // once: it reads the unsynced amounts of all subjects
    return toLease(terms, this.#releaseOf(leases));
  }

  /** Notes the failure, and counts the exchange once in `localDecisions`, for its two leases. */
  #noteLocalDecision(leases: readonly SubjectLease[], reservation: Reservation): void {
    // If its key, the first subject, has no verdict now, the first lease was decided locally too.
    const wasCounted = isSecondLease(reservation) && leases[0]?.hasVerdict === false;
    if (!wasCounted) this.#localDecisions++;
    if (!this.#client.health.isUp) this.#membership.noteFailure();
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
}

/**
 * Returns the ends of the windows in which an exchange was charged: those of the current windows, or
 * {@link OVER_WINDOW}. A window is still the same if it resets before a window that began with the
 * exchange would.
 *
 * @param verdict The current windows
 * @param charge The time now, milliseconds since 1970, and the time since the exchange
 */
function endsOfCharge(
  { counted }: SubjectLayout,
  { statuses, ends }: SubjectVerdict,
  { now, ageMs }: { readonly now: number; readonly ageMs: number },
): readonly number[] {
  return counted.map(({ window }, index) => {
    const leftMs = endOfWindow(window, now - ageMs) - now;
    const isSame = itemAt(statuses, index).resetMs <= leftMs + SKEW_MS;
    return isSame ? itemAt(ends, index) : OVER_WINDOW;
  });
}

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
