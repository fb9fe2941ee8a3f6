/**
 * Revoked identity tokens in Redis, for many gateways. A change is announced. Each gateway also
 * checks for changes twice a second, because announcements can be lost.
 *
 * Redis can lose its data. Each gateway keeps its known revocations until they expire, and restores
 * missing ones in Redis. A random generation next to the number of changes shows if the number
 * belongs to other data.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import {
  MAX_REVOCATIONS,
  readRevocation,
  refuseMore,
  type RevocableToken,
  type Revocation,
  RevocationIndex,
  type RevocationRegistry,
} from "../identity/revocations.ts";
import { explainFailure } from "./store_failure.ts";

const UNAVAILABLE = "Cannot use the revoked tokens in Redis: check that it runs";

/**
 * Revocations by the time at which they end, the number of changes, and the generation: in one slot
 * of a Cluster.
 */
const REVOKED = "sallyport:{revoked}:tokens";
const CHANGES = "sallyport:{revoked}:changes";
const GENERATION = "sallyport:{revoked}:generation";
const KEYS = [REVOKED, CHANGES, GENERATION];
const CHANNEL = "sallyport:revoked";
/** Interval at which the number of changes is checked. Milliseconds. */
const WATCH_MS = 400;

/** Number of revocations that are restored at once. */
const BATCH = 1000;

/**
 * Adds revocations and removes ended ones. KEYS: tokens, changes, generation. ARGV: now, the limit,
 * the channel, a new generation, then the end and the record of each revocation. Answers 0 if there
 * are too many.
 */
const ADD = `redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) + (#ARGV - 4) / 2 > tonumber(ARGV[2]) then return 0 end
local added = 0
for i = 5, #ARGV, 2 do added = added + redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('SET', KEYS[3], ARGV[4], 'NX')
if added > 0 then
  redis.call('INCR', KEYS[2])
  redis.call('PUBLISH', ARGV[3], '')
end
return 1`;

/** Revocations in Redis. While Redis does not answer, the known revocations apply. */
export class RedisRevocations implements RevocationRegistry {
  readonly #client: RedisClient;
  readonly #clock: Clock;
  readonly #add: ReturnType<RedisClient["script"]>;
  readonly #index = new RevocationIndex();
  /** Generation and number of changes of the known data; `undefined` before the first reply. */
  #version: string | undefined;
  #reading: Promise<void> | undefined;
  #isClosed = false;
  #cancelTimer = (): void => {};

  constructor(client: RedisClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
    this.#add = client.script("sallyportRevokeToken", ADD);
  }

  get isReady(): boolean {
    return this.#version !== undefined;
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
    const isAdded = await this.#administer(() =>
      this.#write((call, read) => this.#client.ask(call, read), [revocation])
    );
    if (!isAdded) refuseMore();
    this.#index.add(revocation);
  }

  /** Ends the watch. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
  }

  /**
   * Checks for changes, and reads all revocations if there is one. The next check finds later
   * changes.
   */
  #follow(): Promise<void> {
    const run: RedisClient["ask"] = (call, read) => this.#client.run(call, read);
    this.#reading ??= this.#read(run).catch(() => {}).finally(() => this.#reading = undefined);
    return this.#reading;
  }

  async #read(run: RedisClient["ask"]): Promise<void> {
    const version = await run((redis) => redis.mget(GENERATION, CHANGES), String);
    if (version === this.#version) return;
    const texts = await run(
      (redis) => redis.zrange(REVOKED, "0", "-1"),
      (reply) => reply as string[],
    );
    const stored = texts.map((text) => readRevocation(JSON.parse(text)));
    const index = new RevocationIndex();
    index.replace(stored);
    const missing = this.#index.list(this.#clock.now()).filter((known) => !index.has(known));
    this.#index.replace([...stored, ...missing]);
    for (let start = 0; start < missing.length; start += BATCH) {
      await this.#write(run, missing.slice(start, start + BATCH));
    }
    this.#version = version;
  }

  /** @returns False if there are too many */
  async #write(run: RedisClient["ask"], revocations: readonly Revocation[]): Promise<boolean> {
    // Several gateways can restore the same revocation, so each must write the same text.
    const records = revocations.flatMap((
      each,
    ) => [each.until, JSON.stringify(readRevocation(each))]);
    const args = [this.#clock.now(), MAX_REVOCATIONS, CHANNEL, crypto.randomUUID(), ...records];
    return await run((redis) => this.#add(redis, KEYS, args), Number) === 1;
  }

  #watch(): void {
    if (this.#isClosed) return;
    this.#cancelTimer = this.#clock.timer(
      WATCH_MS,
      () => void this.#follow().finally(() => this.#watch()),
      {
        isBackground: true,
      },
    );
  }

  #administer<T>(act: () => Promise<T>): Promise<T> {
    return explainFailure(UNAVAILABLE, act);
  }
}
