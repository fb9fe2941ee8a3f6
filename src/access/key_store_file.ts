/**
 * Gateway keys in a JSON file: replaced as a whole, watched, and for ever good in its last good form.
 *
 * @module
 */
import { ConfigError } from "../config.ts";
import { GatewayError } from "../errors.ts";
import type { Clock } from "../exchange.ts";
import { BrokenFile, KeyLines } from "./key_lines_file.ts";
import { type GatewayKey, type KeyQuery, type KeyRegistry, KeyStoreUnavailable } from "./key_store.ts";
import type { KeyState } from "./key_state_file.ts";
import { codeOf, lookAtFile, readParts, replaceFile, withLock } from "./replace_file.ts";

/** How often the file is looked at. A change holds within a second. Milliseconds. */
const WATCH_MS = 400;

/** What is wrong with the file, for operators. */
function describe(error: unknown): string {
  if (error instanceof BrokenFile || error instanceof KeyStoreUnavailable) return error.message;
  return `it can't be read: ${codeOf(error)}`;
}

/** Keys in a file. */
export class FileKeyStore implements KeyRegistry {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #report: (text: string) => void;
  readonly #state: KeyState;
  #keys: KeyLines = KeyLines.empty();
  /** The content that {@link #keys} are from; empty before there was any. */
  #version = "";
  /** The content that was found broken last. */
  #fault: { readonly version: string; readonly error: unknown } | undefined;
  /** The content that the operator was told of last. */
  #reported = "";
  #refreshing: Promise<void> | undefined;
  #changing: Promise<unknown> = Promise.resolve();
  #isWatching = false;
  #cancelWatch = (): void => {};

  /**
   * @param file Its path
   * @param options Where times come from; what was used and spent; who is told in one line of a broken file
   */
  constructor(file: string, options: { clock: Clock; state: KeyState; report: (text: string) => void }) {
    this.#file = file;
    this.#clock = options.clock;
    this.#state = options.state;
    this.#report = options.report;
  }

  /**
   * Reads the file and watches it from then on.
   *
   * @throws {ConfigError} When it can't be read, or is not as it should be
   */
  async start(): Promise<void> {
    await this.check();
    this.#reported = this.#version;
    this.#isWatching = true;
    this.#watch();
  }

  /**
   * Reads the file where it has changed.
   *
   * @throws {ConfigError} When it can't be read, or is not as it should be
   */
  async check(): Promise<void> {
    try {
      await this.#refresh();
      if (this.#version === "") throw new BrokenFile("there is no such file: make a key by sallyport keys create");
    } catch (error) {
      throw new ConfigError([{ path: "keys.file", message: describe(error), source: this.#file }]);
    }
  }

  find(digest: string): GatewayKey | undefined {
    try {
      return this.#keys.find(digest);
    } catch (cause) {
      throw new GatewayError("key_store_unavailable", { cause });
    }
  }

  async list(query: KeyQuery): Promise<readonly GatewayKey[]> {
    return await this.#read((keys) => keys.list(query));
  }

  async get(id: string): Promise<GatewayKey | undefined> {
    return await this.#read((keys) => keys.get(id));
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return await this.#state.lastUsed(ids);
  }

  used(id: string, at: number): void {
    this.#state.used(id, at);
  }

  async change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey> {
    // Those of this process queue up here, so that each waits for the lock only as long as others hold it.
    const turn = this.#changing.then(() => withLock(this.#file, () => this.#change(id, change)));
    this.#changing = turn.catch(() => {});
    const changed = await turn;
    // The watch says what is wrong with the file, should somebody have broken it meanwhile.
    if (this.#isWatching) await this.#refresh().catch(() => {});
    return changed;
  }

  /** Ends the watch. */
  close(): void {
    this.#isWatching = false;
    this.#cancelWatch();
  }

  async #change(id: string, change: (current: GatewayKey | undefined) => GatewayKey): Promise<GatewayKey> {
    // What is being read may be older than the lock.
    await this.#refreshing?.catch(() => {});
    return await this.#read(async (keys) => {
      const next = change(keys.get(id));
      await replaceFile(this.#file, keys.with(next));
      this.#reported = await lookAtFile(this.#file);
      return next;
    });
  }

  /** Does something with the keys as the file says now. */
  async #read<T>(act: (keys: KeyLines) => T | Promise<T>): Promise<T> {
    try {
      await this.#refresh();
      return await act(this.#keys);
    } catch (cause) {
      if (!(cause instanceof BrokenFile)) throw cause;
      throw new KeyStoreUnavailable(`Cannot use ${this.#file}: ${cause.message}`, { cause });
    }
  }

  /** Takes over what the file says now, once for all who ask meanwhile; no file is no keys, unless there was one. */
  #refresh(): Promise<void> {
    this.#refreshing ??= this.#load().finally(() => this.#refreshing = undefined);
    return this.#refreshing;
  }

  async #load(): Promise<void> {
    const version = await lookAtFile(this.#file);
    if (version === this.#version) return;
    if (version === "") throw new BrokenFile("it is gone");
    if (version === this.#fault?.version) throw this.#fault.error;
    const bytes = await readParts(this.#file).catch((cause) => {
      throw new BrokenFile(describe(cause), { cause });
    });
    try {
      this.#keys = await KeyLines.read(bytes);
      this.#version = version;
    } catch (error) {
      this.#fault = { version, error };
      throw error;
    }
  }

  #watch(): void {
    if (!this.#isWatching) return;
    this.#cancelWatch = this.#clock.timer(WATCH_MS, () => void this.#reload().finally(() => this.#watch()));
  }

  async #reload(): Promise<void> {
    const version = await lookAtFile(this.#file);
    const isNew = version !== this.#reported;
    this.#reported = version;
    try {
      await this.#refresh();
      if (isNew) this.#report(`${this.#file}: ${this.#keys.size} keys hold from now on`);
    } catch (error) {
      if (isNew) this.#report(`${this.#file}: ${describe(error)}. The keys before hold on`);
    }
  }
}
