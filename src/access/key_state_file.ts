/**
 * What a gateway remembers of keys beyond its end, beside the file of keys: when each was last used, and what budgets
 * have spent. Written lazily: a crash loses the last seconds.
 *
 * @module
 */
import { readFile } from "node:fs/promises";
import * as v from "valibot";
import { ConfigError } from "../config.ts";
import type { Clock } from "../exchange.ts";
import { KeyStoreUnavailable } from "./key_store.ts";
import type { MemoryLimiter, Spent } from "./limits.ts";
import { replaceFile, withLock } from "./replace_file.ts";

/** How often it is written, where something has changed. Milliseconds. */
const WRITE_MS = 5000;

/** Part of the store of keys in a file. */
export interface KeyState {
  /** Notes that a key was used, milliseconds since 1970. */
  used(id: string, at: number): void;
  /** When keys were last used, by id. */
  lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>>;
}

const count = v.pipe(v.number(), v.integer(), v.minValue(0));
const StateSchema = v.object({
  used: v.record(v.string(), count),
  budgets: v.array(v.object({ subject: v.string(), used: count, until: count })),
});

/** The state in a file of its own. */
export class KeyStateFile implements KeyState {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #report: (text: string) => void;
  readonly #limiter: MemoryLimiter | undefined;
  readonly #used = new Map<string, number>();
  #hasChanged = false;
  #isFailing = false;
  #cancelWrite = (): void => {};

  /**
   * @param keyFile The file of keys that it stands beside
   * @param options Where times come from; who is told in one line when it can't be written; whose budgets are kept
   */
  constructor(
    keyFile: string,
    options: { clock: Clock; report: (text: string) => void; limiter?: MemoryLimiter | undefined },
  ) {
    this.#file = `${keyFile.replace(/\.json$/, "")}.state.json`;
    this.#clock = options.clock;
    this.#report = options.report;
    this.#limiter = options.limiter;
  }

  /**
   * Reads what was remembered, and writes from then on.
   *
   * @throws {ConfigError} When it is broken
   */
  async start(): Promise<void> {
    try {
      this.#limiter?.restore((await this.#read()).budgets);
    } catch (error) {
      const message = error instanceof Error ? error.message : "cannot read the file";
      throw new ConfigError([{ path: "keys.file", message, source: this.#file }]);
    }
    this.#writeLater();
  }

  used(id: string, at: number): void {
    this.#used.set(id, at);
    this.#hasChanged = true;
  }

  async lastUsed(ids: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const { used } = await this.#read();
    const times = new Map<string, number>();
    for (const id of ids) {
      const at = Math.max(this.#used.get(id) ?? 0, Object.hasOwn(used, id) ? used[id] ?? 0 : 0);
      if (at > 0) times.set(id, at);
    }
    return times;
  }

  /** Writes what is left to write. */
  async close(): Promise<void> {
    this.#cancelWrite();
    await this.#write();
  }

  #writeLater(): void {
    this.#cancelWrite = this.#clock.timer(WRITE_MS, () => void this.#write().finally(() => this.#writeLater()));
  }

  async #write(): Promise<void> {
    if (!this.#hasChanged) return;
    this.#hasChanged = false;
    try {
      // Other gateways may share the file: the later use and the larger sum stay.
      await withLock(this.#file, async () => {
        const state = await this.#read();
        const used = new Map(Object.entries(state.used));
        for (const [id, at] of this.#used) used.set(id, Math.max(at, used.get(id) ?? 0));
        const budgets = new Map<string, Spent>();
        for (const spent of [...state.budgets, ...this.#limiter?.budgets() ?? []]) {
          const { until = 0, used = 0 } = budgets.get(spent.subject) ?? {};
          const isNewer = spent.until > until || (spent.until === until && spent.used > used);
          if (isNewer && spent.until > this.#clock.now()) budgets.set(spent.subject, spent);
        }
        await replaceFile(
          this.#file,
          `${JSON.stringify({ used: Object.fromEntries(used), budgets: [...budgets.values()] })}\n`,
        );
      });
      this.#used.clear();
      this.#isFailing = false;
    } catch (error) {
      this.#hasChanged = true;
      if (!this.#isFailing) this.#report(error instanceof Error ? error.message : "the state of keys can't be written");
      this.#isFailing = true;
    }
  }

  /** What the file says; no file says nothing. */
  async #read(): Promise<{ used: Record<string, number>; budgets: Spent[] }> {
    let text: string;
    try {
      text = await readFile(this.#file, "utf8");
    } catch {
      return { used: {}, budgets: [] };
    }
    try {
      return v.parse(StateSchema, JSON.parse(text));
    } catch {
      throw new KeyStoreUnavailable(`Cannot read ${this.#file}: it is broken. Remove it to begin its counts anew`);
    }
  }
}
