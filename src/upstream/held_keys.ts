/**
 * Provider keys that the gateway holds, for callers that send none. They are read from their
 * sources, and kept in memory only.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import type { HeldKeySource } from "../config/held_key.ts";
import { GATEWAY_KEY_START } from "../config/schema.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";

/**
 * Reads a key from its source. Its errors must not contain the key.
 *
 * @returns The key, with or without white space around it
 *
 * @example Read keys from a vault of your own
 * ```ts
 * import { createGateway, type HeldKeyReader, parseConfig } from "sallyport";
 *
 * const readHeldKey: HeldKeyReader = async (source) => {
 *   if (!("env" in source)) throw new Error("Cannot read a held key: only env is supported here");
 *   const answer = await fetch(`https://vault.example/keys/${source.env}`);
 *   if (!answer.ok) throw new Error(`Cannot read a held key: the vault answers ${answer.status}`);
 *   return await answer.text();
 * };
 * const config = parseConfig({
 *   providers: { a: { upstream: "openai", upstreamKey: { env: "openai" } } },
 *   keys: [{ id: "me", key: "a-key-of-your-own", heldKeys: true }],
 * });
 * export default { fetch: createGateway(config, { readHeldKey }).fetch };
 * ```
 */
export interface HeldKeyReader {
  (source: HeldKeySource): string | Promise<string>;
  /**
   * Returns the key that was last read from a source, for example before a reload. It is used while
   * the source is read.
   */
  readonly last?: (source: HeldKeySource) => string | undefined;
}

/** Visible ASCII, so that a key cannot split a header. */
const KEY = /^[\x21-\x7e]{1,8192}$/;
/** A key of a gateway, which is never forwarded. */
const GATEWAY_KEY = new RegExp(GATEWAY_KEY_START);
/**
 * The shortest time until the next reading of a file or a variable after a failure, and between
 * readings because of refusals. Milliseconds.
 */
const PAUSE_MS = 100;
/** The same for a command. Without it, each refused call would start one. Milliseconds. */
const EXEC_PAUSE_MS = 5000;
/** The longest time that a reading can take. Milliseconds. */
const READING_MS = 15_000;

/**
 * Returns the key in the content of a source.
 *
 * @param source The source, for the error
 * @throws If the content is not a single key, or is a gateway key
 */
export function toSingleKey(content: string, source = "its source"): string {
  const key = content.trim();
  const fail = (why: string) => new Error(`Cannot use a held key: ${source} ${why}`);
  if (!KEY.test(key)) throw fail("must have the key alone, on one line");
  if (GATEWAY_KEY.test(key)) throw fail("has a gateway key: it must have a key of the provider");
  return key;
}

/** One key, read when it is first used. */
export class HeldKey {
  readonly #source: HeldKeySource;
  readonly #read: HeldKeyReader;
  readonly #clock: Clock;
  #key: string | undefined;
  #readAt = -Infinity;
  #pausedUntil = -Infinity;
  #reading: Promise<string> | undefined;
  #failure: unknown;

  constructor(source: HeldKeySource, read: HeldKeyReader, clock: Clock) {
    this.#source = source;
    this.#read = read;
    this.#clock = clock;
    this.#key = read.last?.(source);
  }

  /**
   * Returns the key. An old key is still used while it is read again.
   *
   * @throws {GatewayError} `upstream_key_unavailable`
   */
  get(): string | Promise<string> {
    const key = this.#key;
    if (key === undefined) return this.#readFirst();
    const ageMs = this.#clock.monotonic() - this.#readAt;
    if ("refreshMs" in this.#source && ageMs >= this.#source.refreshMs) {
      this.#readOnce().catch(() => {}); // the key that is known stays in use
    }
    return key;
  }

  /**
   * Reads the key again, because the provider has refused it.
   *
   * @returns True if there is another key now
   */
  async renew(refused: string): Promise<boolean> {
    await this.#reading?.catch(() => {}); // it can have begun before the key was replaced
    const canWait = this.#reading === undefined && !("exec" in this.#source);
    if (this.#key === refused && canWait && this.#isPaused) await this.#waitForPause();
    const mustRead = this.#key === refused && (this.#reading !== undefined || !this.#isPaused);
    if (mustRead) {
      // Only a reading pauses: if each refusal did, a busy caller could delay the next one forever.
      if (this.#reading === undefined) this.#pause();
      await this.#readOnce().catch(() => {}); // the provider's refusal is passed on
    }
    return this.#key !== refused;
  }

  get #isPaused(): boolean {
    return this.#clock.monotonic() < this.#pausedUntil;
  }

  #pause(): void {
    const ms = "exec" in this.#source ? EXEC_PAUSE_MS : PAUSE_MS;
    this.#pausedUntil = this.#clock.monotonic() + ms;
  }

  /** Waits for the end of the pause. In a Worker, calls cannot share a timer. */
  async #waitForPause(): Promise<void> {
    const end = this.#pausedUntil;
    const ms = end - this.#clock.monotonic();
    await new Promise<void>((resolve) => void this.#clock.timer(ms, resolve));
    if (this.#pausedUntil === end) this.#pausedUntil = -Infinity; // a timer can be a little early
  }

  async #readFirst(): Promise<string> {
    try {
      if (this.#reading === undefined && this.#isPaused) throw this.#failure;
      return await this.#readOnce();
    } catch (cause) {
      throw new GatewayError("upstream_key_unavailable", { cause });
    }
  }

  /** Reads the key. Calls at the same time share one reading. */
  #readOnce(): Promise<string> {
    return this.#reading ??= this.#readNow().finally(() => this.#reading = undefined);
  }

  async #readNow(): Promise<string> {
    try {
      return this.#key = toSingleKey(await this.#readInTime());
    } catch (error) {
      this.#failure = error;
      this.#pause();
      throw error;
    } finally {
      this.#readAt = this.#clock.monotonic();
    }
  }

  /** Reads the source. A reader of an embedder can be silent. */
  #readInTime(): Promise<string> {
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.timer(READING_MS, () => {
        reject(new Error(`Cannot read a held key: no answer within ${READING_MS / 1000} s`));
      }, { isBackground: true });
      const content = (async () => await this.#read(this.#source))();
      content.then(resolve, reject).finally(cancel);
    });
  }
}

/** Lists the sources of all held keys, with their paths in the configuration. */
export function listHeldKeys(
  { providers, teams }: Pick<Config, "providers" | "teams">,
): { readonly path: string; readonly source: HeldKeySource }[] {
  const found: { path: string; source: HeldKeySource }[] = [];
  for (const [name, { upstreamKey: source }] of Object.entries(providers)) {
    if (source !== undefined) found.push({ path: `providers.${name}.upstreamKey`, source });
  }
  for (const [team, { upstreamKeys = {} }] of Object.entries(teams)) {
    for (const [name, source] of Object.entries(upstreamKeys)) {
      found.push({ path: `teams.${team}.upstreamKeys.${name}`, source });
    }
  }
  return found;
}

/** The keys that a gateway holds. */
export class HeldKeys {
  readonly #ofProviders = new Map<string, HeldKey>();
  /** By team and provider. */
  readonly #ofTeams = new Map<string, ReadonlyMap<string, HeldKey>>();

  constructor(
    { providers, teams }: Pick<Config, "providers" | "teams">,
    read: HeldKeyReader,
    clock: Clock,
  ) {
    for (const [name, { upstreamKey }] of Object.entries(providers)) {
      if (upstreamKey !== undefined) {
        this.#ofProviders.set(name, new HeldKey(upstreamKey, read, clock));
      }
    }
    for (const [team, { upstreamKeys = {} }] of Object.entries(teams)) {
      const keys = Object.entries(upstreamKeys).map(([provider, source]) =>
        [provider, new HeldKey(source, read, clock)] as const
      );
      this.#ofTeams.set(team, new Map(keys));
    }
  }

  /** Finds the key for calls of a team: its own one, else the key of the provider. */
  find(provider: string, team: string | undefined): HeldKey | undefined {
    const ofTeam = team === undefined ? undefined : this.#ofTeams.get(team)?.get(provider);
    return ofTeam ?? this.#ofProviders.get(provider);
  }
}
