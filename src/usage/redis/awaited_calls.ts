/**
 * Calls whose usage is stated later, in Redis: one key for each, as JSON, with an expiry. The
 * gateway that answers the later call can be another one.
 *
 * @module
 */
import type { Redis } from "ioredis";
import { dropRejection } from "../../exchange/exchange.ts";
import { createShare, SharedBudget } from "../../exchange/shared_budget.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import { awaitOutcome, type FailedCallOutcome } from "../../storage/redis_command.ts";
import { AWAITED_MS, type AwaitedCalls, type AwaitedName } from "../awaited_calls.ts";

/** Deadline of commands that no caller waits for. Milliseconds. */
const DEADLINE_MS = 1000;
/** Version of the stored form. The estimate stays for a call in the form of another version. */
const VERSION = 1;
/**
 * The most commands that wait for the end of an outage. Each gateway key has a share of them. For
 * all other calls, the estimates stay.
 */
const MAX_WAITING = 10_000;
/** Largest ratio of the waiting commands of a gateway key to the free ones: at most a half. */
const SHARE_FACTOR = 1;

const toKey = ({ provider, laterId }: AwaitedName): string =>
  `sallyport:awaited:${provider}:${laterId}`;

/**
 * Awaited calls in Redis. Commands wait for the end of an outage, in their order. If it is unknown
 * whether Redis has carried out a command, it is not repeated, because a call must not be settled
 * twice: the estimate stays. While a call is being taken, others that ask for it do not wait,
 * because only one of them can receive it.
 */
export class RedisAwaitedCalls<Call extends object> implements AwaitedCalls<Call> {
  readonly #client: RedisClient;
  readonly #waiting = new Set<() => void>();
  readonly #waits = new SharedBudget(MAX_WAITING, createShare);
  /** Names of the calls that are being taken. */
  readonly #taking = new Set<string>();

  constructor(client: RedisClient) {
    this.#client = client;
    client.onUp(() => {
      const waiting = [...this.#waiting];
      this.#waiting.clear();
      for (const repeat of waiting) repeat();
    });
  }

  put(name: AwaitedName, call: Call, keyId: string): void {
    const value = JSON.stringify({ version: VERSION, call });
    const set = (redis: Redis) => redis.set(toKey(name), value, "PX", AWAITED_MS);
    dropRejection(this.#run(set, () => {}, keyId));
  }

  async take(name: AwaitedName, keyId: string): Promise<Call | undefined> {
    const key = toKey(name);
    if (this.#taking.has(key)) return undefined;
    this.#taking.add(key);
    const toText = (reply: unknown) => typeof reply === "string" ? reply : undefined;
    const text = await this.#run((redis) => redis.getdel(key), toText, keyId)
      .finally(() => this.#taking.delete(key));
    if (text === undefined) return undefined;
    const { version, call }: { readonly version: unknown; readonly call: Call } = JSON.parse(text);
    return version === VERSION ? call : undefined;
  }

  /**
   * Makes a call, also if it must wait for Redis.
   *
   * @returns The reply; `undefined` if the call was refused, or if its outcome is unknown
   */
  async #run<T>(
    call: (redis: Redis) => Promise<unknown>,
    read: (reply: unknown) => T,
    keyId: string,
  ): Promise<T | undefined> {
    for (;;) {
      try {
        return await this.#client.run(call, read, DEADLINE_MS);
      } catch (error) {
        const outcome = await new Promise<FailedCallOutcome<T>>((resolve) =>
          awaitOutcome(error, read, resolve)
        );
        if (outcome.state === "replied") return outcome.reply;
        if (outcome.state !== "unsent" || !await this.#waitForRedis(keyId)) return undefined;
      }
    }
  }

  /** Waits for the end of an outage. Returns false at once if the share of the key is used up. */
  async #waitForRedis(keyId: string): Promise<boolean> {
    const share = this.#waits.join(keyId);
    try {
      if (this.#waits.room(share, SHARE_FACTOR) < 1) return false;
      const count = (change: 1 | -1) => {
        share.used += change;
        this.#waits.count(change);
      };
      count(1);
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
      count(-1);
      return true;
    } finally {
      this.#waits.leave(share);
    }
  }
}
