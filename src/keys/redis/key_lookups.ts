/**
 * Look-ups of gateway keys in Redis: the meaning of a reply, and the rules if there is none, or
 * if Redis has lost keys.
 *
 * @module
 */
import type { ReportEvent } from "../../exchange/reported_event.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import { readKeyRecord } from "../key_record.ts";
import { FIND, type FindCall, type KeyNames } from "./key_scripts.ts";
import type { KeySnapshot } from "../key_snapshot_file.ts";
import { type GatewayKey, KeyStoreUnavailable } from "../key_store.ts";

/** A digest without a key. A look-up of it shows that Redis answers, and has not lost keys. */
const NO_KEY = "0".repeat(64);
/** Interval between two such look-ups. Milliseconds. */
const WATCH_MS = 500;
/**
 * Deadline of the first one. When workers start, they and Redis can lack processor time, and no
 * caller waits yet. Milliseconds.
 */
const FIRST_DEADLINE_MS = 1000;

/** The answers of a look-up if Redis has lost keys, and if it has no keys and no generation. */
const LOST = -1;
const EMPTY = 0;
/** The fault of a text that is not a record. */
export const BROKEN = "its record is broken";

/** The health of a {@link RedisKeyStore}, for operators. */
export interface RedisKeyHealth {
  /** True if keys can be looked up: Redis has answered once, or there is a snapshot. */
  readonly isReady: boolean;
  /** True if Redis has lost keys, so that no caller is refused as unknown. */
  readonly isLost: boolean;
}

/**
 * Reads the record of a key.
 *
 * @throws {KeyStoreUnavailable} For a broken record
 */
export function toKey(text: unknown, id: string, { keys }: KeyNames): GatewayKey {
  try {
    return readKeyRecord(JSON.parse(String(text)));
  } catch (cause) {
    const fix = `Mend it, or remove it by redis-cli HDEL ${keys} ${id}`;
    throw new KeyStoreUnavailable(`Cannot read the key ${id} in Redis: ${BROKEN}. ${fix}`, {
      cause,
    });
  }
}

/** Reply of a look-up. */
interface Found {
  /** A generation, {@link LOST} or {@link EMPTY}; `undefined` for a key of the generation that is known. */
  readonly state: unknown;
  readonly found?: { readonly key: GatewayKey; readonly text: string };
}

function readFound(reply: unknown, names: KeyNames): Found {
  if (!Array.isArray(reply)) return { state: reply };
  const [id, text, generation] = reply.map(String);
  if (id === undefined || text === undefined) throw new Error("no key");
  return { state: generation, found: { key: toKey(text, id, names), text } };
}

/** Look-ups of keys. */
export class KeyLookUps {
  readonly #clock: Clock;
  readonly #names: KeyNames;
  readonly #snapshot: KeySnapshot | undefined;
  readonly #report: ReportEvent;
  readonly #find: RedisCommand<string, Found>;
  /** The generation of the keys that it has met. */
  #generation: string | undefined;
  #hasAnswered = false;
  #isLost = false;
  #isEmpty = false;
  #isClosed = false;
  #cancelWatch = (): void => {};

  /**
   * @param options The names of keys; the snapshot, if there is one; a function that receives one
   * line about lost keys
   */
  constructor(
    client: RedisClient,
    clock: Clock,
    { names, snapshot, report = () => {} }: {
      readonly names: KeyNames;
      readonly snapshot?: KeySnapshot | undefined;
      readonly report?: ReportEvent | undefined;
    },
  ) {
    this.#clock = clock;
    this.#names = names;
    this.#snapshot = snapshot;
    this.#report = report;
    this.#find = client.command({
      script: FIND,
      write: (digest: string) => this.#toCall(digest),
      read: (reply) => readFound(reply, names),
    });
  }

  /** The generation of the keys that it has met; `undefined` before the first. */
  get generation(): string | undefined {
    return this.#generation;
  }

  /** The health of the keys. */
  get health(): RedisKeyHealth {
    return {
      isReady: this.#hasAnswered || this.#snapshot?.isUsable === true,
      isLost: this.#isLost,
    };
  }

  /**
   * Reads the snapshot, and then checks at intervals if Redis answers and has its keys. A gateway
   * that has seen the keys marks their loss for all gateways before new keys are made. Resolves
   * after the first check.
   */
  async start(): Promise<void> {
    await this.#snapshot?.start();
    this.#generation ??= this.#snapshot?.generation;
    await this.#watch(FIRST_DEADLINE_MS);
  }

  /** Forgets a key that has changed. */
  forget(digest: string): void {
    this.#snapshot?.forget(digest);
  }

  /** Stops the checks, and writes the snapshot. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelWatch();
    await this.#snapshot?.close();
  }

  /**
   * Looks a key up. If that fails, a key of the snapshot is valid for its time.
   *
   * @returns The key; `undefined` if certainly no key has this digest
   * @throws If Redis does not answer, has lost keys, or has none
   */
  async find(digest: string): Promise<GatewayKey | undefined> {
    try {
      return await this.#lookUp(digest);
    } catch (cause) {
      const key = this.#snapshot?.find(digest);
      if (key !== undefined) return key;
      throw cause;
    }
  }

  /** @param deadlineMs Default: the deadline of the client */
  async #lookUp(digest: string, deadlineMs?: number): Promise<GatewayKey | undefined> {
    const askedAt = this.#clock.now();
    const { state, found } = await this.#find(digest, { deadlineMs });
    if (state === LOST) {
      this.#noteLoss();
      throw new Error("keys were lost");
    }
    this.#hasAnswered = true;
    if (state === EMPTY) {
      this.#noteEmpty();
      throw new Error("there are no keys");
    }
    this.#isEmpty = false;
    if (typeof state === "string" && state !== "") this.#generation ??= state;
    if (this.#generation !== undefined) this.#snapshot?.mark(this.#generation);
    if (found !== undefined) this.#snapshot?.see(found.key, found.text, askedAt);
    else this.#noteUnknown(digest);
    return found?.key;
  }

  #toCall(digest: string): FindCall {
    const { keys: keysKey, digests: digestsKey, generations: generationsKey } = this.#names;
    const own = this.#generation ?? "";
    const made = own === "" ? crypto.randomUUID() : "";
    return { keysKey, digestsKey, generationsKey, digest, own, made };
  }

  /** Notes that certainly no key has this digest. */
  #noteUnknown(digest: string): void {
    if (this.#snapshot?.find(digest) !== undefined) this.#snapshot.forget(digest);
    if (this.#isLost) {
      const text = "the keys in Redis are confirmed: callers with others are unknown from now on";
      this.#report(text, { event: "keys_changed" });
    }
    this.#isLost = false;
  }

  #noteLoss(): void {
    if (this.#isLost) return;
    this.#isLost = true;
    const { path } = this.#snapshot ?? {};
    const file = path === undefined ? "" : ` (${path} has the keys that this gateway used)`;
    this.#report(
      "Redis has lost keys: callers whose keys it does not have get key_store_unavailable. " +
        `Restore its own backup; or add keys by sallyport keys import FILE${file}, ` +
        "then run sallyport keys confirm",
      { event: "keys_unavailable" },
    );
  }

  /**
   * Notes that there are no keys: either there never were any, or all are lost together with their
   * generation.
   */
  #noteEmpty(): void {
    if (!this.#isEmpty) {
      const text = "Redis has no keys: until the first is made, callers get key_store_unavailable";
      this.#report(text, { event: "keys_unavailable" });
    }
    this.#isEmpty = true;
  }

  async #watch(deadlineMs?: number): Promise<void> {
    await this.#lookUp(NO_KEY, deadlineMs).catch(() => {});
    if (!this.#isClosed) this.#cancelWatch = this.#clock.timer(WATCH_MS, () => void this.#watch());
  }
}
