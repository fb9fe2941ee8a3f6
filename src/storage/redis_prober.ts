/**
 * Probes of the servers of Redis: checks that a server answers in time, and at first that it can be
 * used.
 *
 * @module
 */
import type { Redis } from "ioredis";
import type { Clock } from "../exchange/clock.ts";
import type { RedisTarget } from "./redis_connect.ts";
import { isReply, RedisFailed, within } from "./redis_deadline.ts";
import { assertFit, RedisUnfit } from "./redis_fitness.ts";
import type { ServerHealth } from "./redis_health.ts";

/** Probes servers. */
export class Prober {
  /** The reason why the servers cannot be used with this configuration. */
  unfit: RedisUnfit | undefined;
  /** Number of times that the answering server changed. */
  changes = 0;
  /** Id of the process that answered last; `undefined` if asking for it is not allowed. */
  #runId: string | undefined;
  readonly #clock: Clock;
  readonly #target: RedisTarget;
  readonly #place: "url" | "cluster" | "sentinel";
  readonly #examined = new WeakSet<Redis>();

  constructor(target: RedisTarget, clock: Clock) {
    this.#clock = clock;
    this.#target = target;
    const place = target.sentinel !== undefined ? "sentinel" : "url";
    this.#place = target.cluster !== undefined ? "cluster" : place;
  }

  /** Probes a server. @throws Unless it answers in time and can be used */
  async probe(redis: Redis, health: ServerHealth): Promise<void> {
    const started = this.#clock.monotonic();
    const reply = this.#ask(redis);
    try {
      await within(this.#clock, reply, this.#target.timeoutMs);
    } catch (cause) {
      const answeredLate = () => health.answeredLate(this.#clock.monotonic() - started);
      if (cause instanceof RedisFailed) reply.then(answeredLate, () => {});
      throw cause;
    }
  }

  /** Examines a server again at the next probe, because it can be another server. */
  forget(redis: Redis): void {
    this.#examined.delete(redis);
  }

  async #ask(redis: Redis): Promise<void> {
    try {
      if (this.#examined.has(redis)) return void await redis.ping();
      const info = String(await redis.info());
      assertFit(info, this.#place);
      this.#note(/^run_id:(\S+)/m.exec(info)?.[1]);
      this.#examined.add(redis);
      this.unfit = undefined;
    } catch (cause) {
      if (cause instanceof RedisUnfit) this.unfit = cause;
      if (!isReply(cause)) throw cause; // an error reply shows that it is reachable
      this.#note(undefined);
    }
  }

  #note(runId: string | undefined): void {
    if (runId === undefined || runId !== this.#runId) this.changes++;
    this.#runId = runId;
  }
}
