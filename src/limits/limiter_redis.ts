/**
 * Limits that many gateways share through Redis: each decision is one script, one round trip, by the server's clock.
 *
 * What an exchange holds expires by itself when its gateway dies. While Redis fails, each gateway counts alone against
 * its share of every limit; what was used meanwhile is charged when Redis is back.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../storage/redis_client.ts";
import { type Lease, LEASE_MS, type Limiter, type LimitSubject, type Reservation, type Standing } from "./limiter.ts";
import { MemoryLimiter } from "./memory_limiter.ts";
import { ACQUIRE, CHARGE, readAcquired, readCount, RENEW, toArguments, toKeys, toOpenKey } from "./redis_scripts.ts";
import { enforce } from "./verdict.ts";

/** Interval at which a gateway renews its open exchanges. Milliseconds. */
const RENEW_MS = 3000;
const LEASES_AT_ONCE = 1000;
/** Maximum number of subjects whose charges are kept while Redis is away. */
const MAX_OWED = 100_000;
/** Maximum number of a subject's exchanges that are kept to be released when Redis is back; the others expire. */
const MAX_IDS_OWED = 1000;
const GATEWAYS = "sallyport:gateways";

/** State of an open exchange. */
interface Held {
  readonly subjects: readonly LimitSubject[];
  /** True if Redis counts the exchange as open. */
  isShared: boolean;
}

/** Exchanges to release, and the usage to charge for them. */
interface Charge {
  /** Ids of exchanges that are over. */
  readonly ids: readonly string[];
  readonly tokens: number;
}

/** Charges of one subject that could not be made yet. */
interface Owed extends Charge {
  readonly subject: LimitSubject;
  readonly ids: string[];
  tokens: number;
}

/** Limiter that counts in Redis. */
export class RedisLimiter implements Limiter {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #acquire: ReturnType<RedisClient["script"]>;
  readonly #charge: ReturnType<RedisClient["script"]>;
  readonly #renew: ReturnType<RedisClient["script"]>;
  readonly #local: MemoryLimiter;
  readonly #id = crypto.randomUUID().slice(0, 13);
  readonly #open = new Map<string, Held>();
  /** Charges that could not be made yet, by subject. */
  readonly #owed = new Map<string, Owed>();
  #acquired = 0;
  #gateways = 1;
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
    this.#charge = client.script("sallyportCharge", CHARGE);
    this.#renew = client.script("sallyportRenew", RENEW);
    this.#local = new MemoryLimiter(clock, () => this.#gateways);
  }

  /** Decisions that were made without Redis. */
  get fallbacks(): number {
    return this.#fallbacks;
  }

  /** Joins the gateways that share the limits. */
  async start(): Promise<void> {
    await this.#sayOpen();
    if (!this.#isClosed) this.#cancelRenewal = this.#clock.timer(RENEW_MS, () => void this.start());
  }

  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    const id = `${this.#id}-${++this.#acquired}`;
    let acquired: ReturnType<typeof readAcquired>;
    try {
      acquired = await this.#runAcquire(subjects, id, LEASE_MS.redis);
    } catch (error) {
      return await this.#acquireLocally(id, subjects, reservation).finally(() => this.#awaitLate(id, subjects, error));
    }
    const terms = enforce(acquired.standings, reservation);
    if (!acquired.isAdmitted) return await this.#acquireLocally(id, subjects, reservation); // no limit is reached: nonsense
    return this.#hold(id, { subjects, isShared: true }, { ...terms, release: () => {} });
  }

  async status(subject: LimitSubject): Promise<Standing[]> {
    try {
      return (await this.#runAcquire([subject], "", 0)).standings;
    } catch {
      return await this.#local.status(subject);
    }
  }

  /** Leaves the gateways that share the limits, and charges what is owed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRenewal();
    await this.#payOwed();
    await this.#client.run((redis) => redis.zrem(GATEWAYS, this.#id), Number, 1000).catch(() => {});
  }

  /** Runs {@link ACQUIRE}. */
  #runAcquire(
    subjects: readonly LimitSubject[],
    id: string,
    leaseMs: number,
  ): Promise<ReturnType<typeof readAcquired>> {
    return this.#client.run(
      (redis) => this.#acquire(redis, toKeys(subjects), [id, leaseMs, ...toArguments(subjects, this.#clock.now())]),
      (answer) => readAcquired(answer, subjects),
    );
  }

  async #acquireLocally(
    id: string,
    subjects: readonly LimitSubject[],
    reservation: Reservation,
  ): Promise<Lease> {
    this.#fallbacks++;
    return this.#hold(id, { subjects, isShared: false }, await this.#local.acquire(subjects, reservation));
  }

  /**
   * Waits for a late answer of Redis about an exchange that was decided locally meanwhile. If Redis has admitted it
   * after all, it is released like any other exchange.
   */
  #awaitLate(id: string, subjects: readonly LimitSubject[], error: unknown): void {
    if (!(error instanceof RedisFailed)) return;
    error.late?.then(() => {
      const held = this.#open.get(id);
      if (held === undefined) void this.#pay(subjects, { ids: [id], tokens: 0 });
      else held.isShared = true;
    }, () => {});
  }

  #hold(id: string, held: Held, { release, ...terms }: Lease): Lease {
    this.#open.set(id, held);
    return {
      ...terms,
      release: (used) => {
        if (!this.#open.delete(id)) return;
        release(used);
        const ids = held.isShared || this.#client.health.isUp ? [id] : [];
        void this.#pay(held.subjects, { ids, tokens: used.tokens });
      },
    };
  }

  /** Charges now, or keeps the charge for later if Redis fails. */
  async #pay(subjects: readonly LimitSubject[], charge: Charge, deadlineMs?: number): Promise<void> {
    const { ids, tokens } = charge;
    if (ids.length === 0 && tokens === 0) return;
    const args = [ids.join(" "), tokens, ...toArguments(subjects, this.#clock.now())];
    try {
      await this.#client.run((redis) => this.#charge(redis, toKeys(subjects), args), readCount, deadlineMs);
    } catch (error) {
      const owe = () => this.#owe(subjects, charge);
      const late = error instanceof RedisFailed ? error.late : undefined;
      // Late is not never: what Redis still does must not be charged again.
      if (late === undefined) owe();
      else late.then(readCount).catch(owe);
    }
  }

  #owe(subjects: readonly LimitSubject[], { ids, tokens }: Charge): void {
    for (const subject of subjects) {
      const owed = this.#owed.get(subject.name) ?? { subject, ids: [], tokens: 0 };
      owed.ids.push(...ids.slice(0, MAX_IDS_OWED - owed.ids.length));
      owed.tokens += tokens;
      if (this.#owed.has(subject.name) || this.#owed.size < MAX_OWED) this.#owed.set(subject.name, owed);
    }
  }

  async #payOwed(): Promise<void> {
    for (const [name, { subject, ...charge }] of Array.from(this.#owed)) {
      this.#owed.delete(name);
      await this.#pay([subject], charge, 1000);
      if (!this.#client.health.isUp) return;
    }
  }

  /** Renews the open exchanges, and reads the number of gateways. */
  async #sayOpen(): Promise<void> {
    const sets = Array.from(
      this.#open,
      ([id, { subjects }]) => subjects.map(({ name }): [string, string] => [toOpenKey(name), id]),
    ).flat();
    try {
      for (let start = 0; !this.#isClosed && (start === 0 || start < sets.length); start += LEASES_AT_ONCE) {
        // Those that were settled meanwhile must not come back.
        const chunk = sets.slice(start, start + LEASES_AT_ONCE).filter(([, id]) => this.#open.has(id));
        const keys = [GATEWAYS, ...chunk.map(([set]) => set)];
        const args = [this.#id, LEASE_MS.redis, ...chunk.map(([, id]) => id)];
        this.#gateways = await this.#client.run(
          (redis) => {
            for (const [, id] of chunk) Object.assign(this.#open.get(id) ?? {}, { isShared: true });
            return this.#renew(redis, keys, args);
          },
          readCount,
          1000,
        );
      }
      await this.#payOwed();
    } catch {
      // The next turn tries again.
    }
  }
}
