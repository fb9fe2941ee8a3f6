/**
 * Keeps Redis and this gateway up to date with each other: at intervals, and after an outage, when
 * the server can have lost counts, or another server can have become the primary.
 *
 * | step of a renewal                            | reason                                          |
 * | -------------------------------------------- | ----------------------------------------------- |
 * | 1. Send the settlements of this moment       | The next steps read their sums                  |
 * | 2. Unless the state is `normal`: renew slots | Other gateways wait until this one has          |
 * |    and catch up                              | rejoined, so it syncs before                    |
 * | 3. Renew the membership                      | The state can become `rejoining` or `normal`    |
 * | 4. In `normal`: read subjects with local     | All gateways have synced, so Redis decides on   |
 * |    decisions again                           | them from now on                                |
 * | 5. Renew slots and catch up                  | Calls have ended in the meantime                |
 * | 6. Read subjects that were not read for long | Other gateways can have used them               |
 *
 * `membership.ts` has the states. A step that fails ends the renewal. The next one tries again.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { BlockPool } from "./block_pool.ts";
import type { KnownWindows } from "./known_windows.ts";
import type { Membership } from "./membership.ts";
import type { OpenSlots } from "./open_slots.ts";
import { BACKGROUND_MS, type Settlements } from "./settlements.ts";
import type { SubjectLayout } from "./subject_layout.ts";
import type { UnsyncedCounts } from "./unsynced_counts.ts";

/** Interval at which a gateway renews its membership and its open exchanges. Milliseconds. */
const RENEW_MS = 3000;
/** The same interval while it waits for other gateways after an outage. Milliseconds. */
const REJOIN_MS = 250;
/** Number of subjects whose status a gateway checks in each interval. */
const REFRESHED = 100;

/** Parts of a limiter that the recovery uses. */
export interface RecoveryParts {
  readonly client: RedisClient;
  readonly clock: Clock;
  readonly membership: Membership;
  readonly open: OpenSlots;
  readonly settlements: Settlements;
  readonly known: KnownWindows;
  readonly counts: UnsyncedCounts;
  readonly pool: BlockPool;
  /** Reads the status of a subject's limits in Redis, and learns it. */
  readonly read: (layout: SubjectLayout, deadlineMs: number) => Promise<unknown>;
}

/** Renews this gateway in Redis, and recovers from outages. */
export class Recovery {
  readonly #parts: RecoveryParts;
  #isStarted = false;
  #isRejoining = false;
  #isClosed = false;
  #cancelRenewal = (): void => {};

  constructor(parts: RecoveryParts) {
    this.#parts = parts;
  }

  /** Renews now and at each interval, and after each outage. */
  async start(): Promise<void> {
    const { client, clock } = this.#parts;
    if (!this.#isStarted) client.onUp(() => void this.#rejoin());
    this.#isStarted = true;
    await this.#renew();
    if (!this.#isClosed) this.#cancelRenewal = clock.timer(RENEW_MS, () => void this.start());
  }

  /** Ends the renewals, and returns and syncs the remaining amounts. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal();
    this.#parts.pool.end();
    await this.#catchUp();
  }

  /** Renews at short intervals after an outage, until this gateway waits for no other one. */
  async #rejoin(): Promise<void> {
    if (this.#isClosed) return;
    const { client, clock, membership, open } = this.#parts;
    open.noteUnfreed();
    await this.#renew();
    if (this.#isRejoining) return;
    this.#isRejoining = true;
    while (!this.#isClosed && membership.waitsForOthers && client.health.isUp) {
      await new Promise<void>((resolve) => clock.timer(REJOIN_MS, resolve, { isBackground: true }));
      await this.#renew();
    }
    this.#isRejoining = false;
  }

  async #renew(): Promise<void> {
    const { membership, open, settlements, counts, pool } = this.#parts;
    pool.returnIdle();
    try {
      await settlements.flush();
      if (membership.state !== "normal") await Promise.all([open.renew(), this.#catchUp()]);
      await membership.renew();
      if (membership.state === "normal") await settlements.sync(counts.rereads());
      await open.renew();
      await this.#catchUp();
      await this.#refresh();
    } catch {
      // The next interval tries again.
    }
  }

  /** Sends everything that could not be sent while Redis was away. */
  async #catchUp(): Promise<void> {
    const { settlements, counts } = this.#parts;
    await settlements.flush();
    await settlements.retryUnsent();
    await settlements.sync(counts.unsynced());
  }

  /** Reads the status of some subjects again. */
  async #refresh(): Promise<void> {
    const { membership, known, read } = this.#parts;
    if (membership.gateways === 1) return;
    const stale = Array.from(known.stale(REFRESHED, RENEW_MS));
    await Promise.allSettled(stale.map(({ layout }) => read(layout, BACKGROUND_MS)));
  }
}
