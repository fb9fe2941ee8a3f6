/**
 * Gateway keys in a JSON file, which is replaced as a whole and watched. While it is broken, the
 * last valid keys apply.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { ConfigError } from "../config/config.ts";
import type { Clock } from "../exchange/clock.ts";
import { codeOf } from "../errors/system_error.ts";
import { FileUnavailable, type SharedFile } from "../storage/shared_file.ts";
import { BrokenFile, readKeyFile, writeKeyFile } from "./key_file.ts";
import { describeLater } from "./key_record.ts";
import {
  type GatewayKey,
  type KeyChange,
  type KeyQuery,
  type KeyRegistry,
  KeyStoreUnavailable,
} from "./key_store.ts";
import { MemoryKeyStore } from "./key_store_memory.ts";
import type { KeyUsageState } from "./key_usage_state_file.ts";

/**
 * Interval between two checks of the file. A change becomes effective within a second.
 * Milliseconds.
 */
const WATCH_MS = 400;
/**
 * Minimum interval between two checks of the file for callers with unknown keys, regardless of
 * their number. Milliseconds.
 */
const GLANCE_MS = 1;
/**
 * The longest time for which a caller with an unknown key waits for a changed file to be read.
 * Milliseconds.
 */
const RELOAD_WAIT_MS = 1000;

/** Describes the fault of the file, for operators. */
function describe(error: unknown): string {
  if (error instanceof BrokenFile || error instanceof FileUnavailable) return error.message;
  return `it can't be read: ${codeOf(error)}`;
}

/** Keys in a file. */
export class FileKeyStore implements KeyRegistry {
  readonly #file: SharedFile;
  readonly #clock: Clock;
  readonly #report: ReportEvent;
  readonly #state: KeyUsageState;
  #keys = new MemoryKeyStore();
  /** Version of the file from which {@link #keys} were read; empty before the first. */
  #version = "";
  /** Version of the file that was last found broken, and its error. */
  #fault: { readonly version: string; readonly error: unknown } | undefined;
  /** Version of the file that was last reported to the operator. */
  #reported = "";
  #refreshing: Promise<void> | undefined;
  /** The result of the file check at the last read for an unknown key. */
  #glance = "";
  #glancedAt = -Infinity;
  #glancing: Promise<string> | undefined;
  #reading: { readonly glance: string; readonly done: Promise<void> } | undefined;
  #changing: Promise<unknown> = Promise.resolve();
  #isWatching = false;
  #cancelWatch = (): void => {};

  /**
   * @param options The clock; the state of keys; a function that receives one line about a changed
   * or broken file
   */
  constructor(
    file: SharedFile,
    options: { clock: Clock; state: KeyUsageState; report: ReportEvent },
  ) {
    this.#file = file;
    this.#clock = options.clock;
    this.#state = options.state;
    this.#report = options.report;
  }

  /**
   * Reads the file and watches it from then on.
   *
   * @throws {ConfigError} If it cannot be read or is invalid
   */
  async start(): Promise<void> {
    await this.check();
    this.#reported = this.#version;
    this.#reportLater();
    this.#isWatching = true;
    this.#watch();
  }

  /**
   * Reads the file if it has changed.
   *
   * @throws {ConfigError} If it cannot be read or is invalid
   */
  async check(): Promise<void> {
    try {
      await this.#refresh();
      if (this.#version === "") {
        throw new BrokenFile("there is no such file: make a key by sallyport keys create");
      }
    } catch (error) {
      throw new ConfigError([{
        path: "keys.file",
        message: describe(error),
        source: this.#file.path,
      }]);
    }
  }

  find(digest: string): GatewayKey | undefined | Promise<GatewayKey | undefined> {
    const found = this.#keys.find(digest);
    if (found !== undefined || !this.#isWatching) return found;
    return this.#findAnew(digest);
  }

  /** Finds a key that was possibly made a moment ago. */
  async #findAnew(digest: string): Promise<GatewayKey | undefined> {
    // A running check can have begun before the key was made.
    if (this.#glancing !== undefined) await this.#glancing;
    this.#glancing ??= this.#glanceAnew().finally(() => this.#glancing = undefined);
    const glance = await this.#glancing;
    // Another process can have made this key, so its caller must not be refused because of a large
    // file or a busy machine.
    if (glance !== this.#glance) await this.#within(RELOAD_WAIT_MS, this.#readAnew(glance));
    return this.#keys.find(digest);
  }

  async #glanceAnew(): Promise<string> {
    const waitMs = this.#glancedAt + GLANCE_MS - this.#clock.monotonic();
    if (waitMs > 0) await this.#within(waitMs);
    this.#glancedAt = this.#clock.monotonic();
    return await this.#file.glance();
  }

  async list(query: KeyQuery): Promise<readonly GatewayKey[]> {
    return await this.#read((keys) => keys.list(query));
  }

  async get(id: string): Promise<GatewayKey | undefined> {
    return await this.#read((keys) => keys.get(id));
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return await this.#explain(() => this.#state.lastUsed(ids));
  }

  used(id: string, at: number): void {
    this.#state.used(id, at);
  }

  async change(
    id: string,
    change: (current: GatewayKey | undefined) => GatewayKey,
  ): Promise<GatewayKey> {
    const [changed] = await this.changeAll([id], (_, current) => change(current));
    if (changed === undefined) throw new Error("the change of one key returned none");
    return changed;
  }

  async changeAll(ids: readonly string[], change: KeyChange): Promise<readonly GatewayKey[]> {
    // Changes of this process queue here, so that each waits for the lock only while other
    // processes have it.
    const turn = this.#changing.then(() => this.#explain(() => this.#change(ids, change)));
    this.#changing = turn.catch(() => {});
    const changed = await turn;
    // The watch reports the fault if the file was broken in the meantime.
    if (this.#isWatching) await this.#refresh().catch(() => {});
    return changed;
  }

  /** Ends the watch. */
  close(): void {
    this.#isWatching = false;
    this.#cancelWatch();
  }

  #change(ids: readonly string[], change: KeyChange): Promise<readonly GatewayKey[]> {
    return this.#file.change(async (replace) => {
      await this.#refreshAnew();
      const isReported = this.#version === this.#reported;
      const before = await Promise.all(ids.map((id) => this.#keys.get(id)));
      const after = ids.map((id, index) => change(id, before[index]));
      const changed = after.filter((key, index) => key !== before[index]);
      if (changed.length === 0) return after;
      await replace(writeKeyFile(this.#keys.with(changed)));
      // The watch must still report a change by others that was read just now.
      if (isReported) this.#reported = await this.#file.look();
      return after;
    });
  }

  /** Calls a function with the current keys of the file. */
  #read<T>(act: (keys: MemoryKeyStore) => Promise<T>): Promise<T> {
    return this.#explain(async () => {
      await this.#refresh();
      return await act(this.#keys);
    });
  }

  async #explain<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (cause) {
      if (cause instanceof FileUnavailable) throw new KeyStoreUnavailable(cause.message, { cause });
      if (!(cause instanceof BrokenFile)) throw cause;
      throw new KeyStoreUnavailable(`Cannot use ${this.#file.path}: ${cause.message}`, { cause });
    }
  }

  /** Reads the file after a check found it changed. Callers with the same check share one read. */
  #readAnew(glance: string): Promise<void> {
    if (this.#reading?.glance === glance) return this.#reading.done;
    const done = this.#refreshAnew().catch(() => {}).then(() => {
      this.#glance = glance;
      if (this.#reading?.done === done) this.#reading = undefined;
    });
    this.#reading = { glance, done };
    return done;
  }

  /** Waits for work, but at most some milliseconds. */
  #within(ms: number, work?: Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#clock.timer(ms, resolve);
      void work?.then(() => (cancel(), resolve()));
    });
  }

  /**
   * Waits for a running {@link #refresh}, then refreshes again, because the file can have changed
   * since that one began.
   */
  async #refreshAnew(): Promise<void> {
    await this.#refreshing?.catch(() => {});
    await this.#refresh();
  }

  /**
   * Reads the file if it has changed. Concurrent calls share one read. A missing file is an error.
   */
  #refresh(): Promise<void> {
    this.#refreshing ??= this.#load().finally(() => this.#refreshing = undefined);
    return this.#refreshing;
  }

  async #load(): Promise<void> {
    const version = await this.#file.look();
    if (version === this.#version) return;
    if (version === "") throw new BrokenFile("it is gone");
    if (version === this.#fault?.version) throw this.#fault.error;
    const bytes = await this.#file.read().catch((cause) => {
      throw new BrokenFile(describe(cause), { cause });
    });
    try {
      this.#keys = await readKeyFile(bytes);
      this.#version = version;
    } catch (error) {
      this.#fault = { version, error };
      throw error;
    }
  }

  #watch(): void {
    if (!this.#isWatching) return;
    this.#cancelWatch = this.#clock.timer(
      WATCH_MS,
      () => void this.#reload().finally(() => this.#watch()),
    );
  }

  /** Reports the parts of records that are not understood. */
  #reportLater(): void {
    const { path } = this.#file;
    for (const text of describeLater(this.#keys.values())) {
      this.#report(`${path}: ${text}`, { event: "file_unreadable", file: path });
    }
  }

  async #reload(): Promise<void> {
    const { path } = this.#file;
    const version = await this.#file.look();
    const isNew = version !== this.#reported;
    this.#reported = version;
    try {
      await this.#refresh();
      if (!isNew) return;
      const { size } = this.#keys;
      const text = `${path}: ${size} keys are valid from now on`;
      this.#report(text, { event: "keys_changed", file: path, keys: size });
      this.#reportLater();
    } catch (error) {
      if (isNew) {
        const text = `${path}: ${describe(error)}. The previous keys stay valid`;
        this.#report(text, { event: "file_unreadable", file: path });
      }
    }
  }
}
