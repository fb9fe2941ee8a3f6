/**
 * Revoked identity tokens in Redis, for many gateways. A change is announced, and looked for twice a second in case the
 * announcement got lost.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import { type RedisClient, RedisFailed } from "../../storage/redis_client.ts";
import { KeyStoreUnavailable } from "../key_store.ts";
import {
  MAX_REVOCATIONS,
  readRevocation,
  refuseMore,
  type RevocableToken,
  type Revocation,
  RevocationIndex,
  type RevocationRegistry,
} from "./revocations.ts";

/** Revocations by the time at which they end, and the number of changes: in one slot of a Cluster. */
const REVOKED = "sallyport:{revoked}:tokens";
const CHANGES = "sallyport:{revoked}:changes";
const CHANNEL = "sallyport:revoked";
/** Interval at which the number of changes is looked at. Milliseconds. */
const WATCH_MS = 400;

/**
 * Adds a revocation and removes those that have ended. KEYS: tokens, changes. ARGV: record, its end, now, the limit, the
 * channel. Answers 0 where there are too many.
 */
const ADD = `redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[3])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('INCR', KEYS[2])
redis.call('PUBLISH', ARGV[5], '')
return 1`;

/** Revocations in Redis. While Redis does not answer, those that are known hold. */
export class RedisRevocations implements RevocationRegistry {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #add: ReturnType<RedisClient["script"]>;
  readonly #index = new RevocationIndex();
  /** Number of changes that are known; `undefined` before the first answer. */
  #changes: string | undefined;
  #reading: Promise<void> | undefined;
  #isClosed = false;
  #cancelTimer = (): void => {};

  /**
   * @param client The connection
   * @param clock Source of times
   */
  constructor(client: RedisClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
    this.#add = client.script("sallyportRevokeToken", ADD);
  }

  get isReady(): boolean {
    return this.#changes !== undefined;
  }

  /** Reads the revocations and follows them from then on. Resolves after the first attempt. */
  async start(): Promise<void> {
    this.#client.listen(CHANNEL, () => void this.#follow());
    await this.#follow();
    this.#watch();
  }

  isRevoked(token: RevocableToken): boolean {
    return this.#index.isRevoked(token);
  }

  async list(): Promise<readonly Revocation[]> {
    await this.#administer(() => this.#read((call, read) => this.#client.ask(call, read)));
    return this.#index.list(this.#clock.now());
  }

  async revoke(revocation: Revocation): Promise<void> {
    const { until } = revocation;
    const args = [JSON.stringify(revocation), until, this.#clock.now(), MAX_REVOCATIONS, CHANNEL];
    const added = await this.#administer(() =>
      this.#client.ask((redis) => this.#add(redis, [REVOKED, CHANGES], args), Number)
    );
    if (added !== 1) refuseMore();
    this.#index.add(revocation);
  }

  /** Ends the watch. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
  }

  /** Looks for changes, and reads all where there is one; one that comes meanwhile is found by the next look. */
  #follow(): Promise<void> {
    const run: RedisClient["ask"] = (call, read) => this.#client.run(call, read);
    this.#reading ??= this.#read(run).catch(() => {}).finally(() => this.#reading = undefined);
    return this.#reading;
  }

  async #read(run: RedisClient["ask"]): Promise<void> {
    const changes = await run((redis) => redis.get(CHANGES), (answer) => String(answer ?? ""));
    if (changes === this.#changes) return;
    const texts = await run((redis) => redis.zrange(REVOKED, "0", "-1"), (answer) => answer as string[]);
    // Redis that has lost its data has lost no revocation here.
    const hasLost = Number(changes) < Number(this.#changes ?? 0);
    const kept = hasLost ? this.#index.list(this.#clock.now()) : [];
    this.#index.replace([...kept, ...texts.map((text) => readRevocation(JSON.parse(text)))]);
    this.#changes = changes;
  }

  #watch(): void {
    if (this.#isClosed) return;
    this.#cancelTimer = this.#clock.timer(WATCH_MS, () => void this.#follow().finally(() => this.#watch()), {
      isBackground: true,
    });
  }

  async #administer<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (cause) {
      if (!(cause instanceof RedisFailed)) throw cause;
      throw new KeyStoreUnavailable("Cannot use the revoked tokens in Redis: check that it runs", { cause });
    }
  }
}
