/**
 * The engines of a process. They outlive a change of its configuration: the counts of limits and
 * usage, and all resources that both configurations name, such as a file of keys or a Redis.
 *
 * @module
 */
import { setImmediate } from "node:timers/promises";
import type { Dimension } from "../config/dimensions.ts";
import { listPriceTables, PriceBook } from "../config/price_book.ts";
import type { Config } from "../config/config.ts";
import { DEFAULT_RUNS } from "../config/runs.ts";
import { DEFAULT_RETENTION, type UsageBounds } from "../config/usage.ts";
import { MemoryRuns } from "../runs/memory_runs.ts";
import type { RunBounds, RunRegistry } from "../runs/run_registry.ts";
import type { RecordingStore } from "../durable/recording_store.ts";
import { MemoryRecordings } from "../durable/recording_store_memory.ts";
import type { Limiter } from "../limits/limiter.ts";
import { MemoryLimiter } from "../limits/memory_limiter.ts";
import { systemClock } from "../exchange/clock.ts";
import { MemoryChangeLog } from "../keys/change_log.ts";
import type { KeySiblings } from "../keys/key_siblings.ts";
import type { TokenCounts } from "../keys/identity/verifier.ts";
import type { AwaitedCall } from "../steps/awaited_call.ts";
import { type AwaitedCalls, MemoryAwaitedCalls } from "../usage/awaited_calls.ts";
import { MemoryHistory } from "../usage/history/book.ts";
import { HistoryMeter } from "../usage/history/meter.ts";
import type { HistoryStore } from "../usage/history/rows.ts";
import { UsageMeter } from "../usage/meter.ts";
import { MemoryUsage } from "../usage/usage_memory.ts";
import type { Transport } from "../upstream/transport.ts";
import type { UsageStore } from "../usage/counts.ts";

/** Kinds of files that a gateway writes while it runs. */
export type WrittenFile = "state" | "usage" | "history" | "snapshot";

/** Engines in another process, see `supervisor_connection.ts`. */
export interface RemoteEngines {
  /** Counts limits. */
  readonly limiter?: Limiter | undefined;
  /** Counts runs. Not used with Redis. */
  readonly runs?: RunRegistry | undefined;
  /** Stores usage. Not used with Redis, where each process stores its own. */
  readonly usage?: UsageStore | undefined;
  /** Stores the history. Not used with Redis, where each process stores its own. */
  readonly history?: HistoryStore | undefined;
  /** Stores calls whose usage is stated later. Not used with Redis. */
  readonly awaitedCalls?: AwaitedCalls<AwaitedCall> | undefined;
  /** Stores recordings of durable exchanges. Not used with Redis. */
  readonly recordings?: RecordingStore | undefined;
  /** Other processes that know keys. Used only with keys in Redis. */
  readonly keys?: KeySiblings | undefined;
}

/** An open engine, and the number of configurations that use it. */
interface Shared {
  readonly engine: Promise<unknown>;
  readonly close: (engine: never) => Promise<void>;
  users: number;
}

/** The references of one configuration to the engines that it uses. */
export interface EngineReferences {
  /**
   * Opens an engine, or returns the engine that another configuration has already opened under this
   * name.
   *
   * @param name Name that configurations share the engine by
   * @param open Opens the engine
   * @param close Closes the engine when no configuration uses it any more
   */
  use<T>(name: string, open: () => Promise<T>, close: (engine: T) => Promise<void>): Promise<T>;
  /** Releases all of them in reverse order. */
  release(): Promise<void>;
}

/** The engines of one process. */
export class Engines {
  /** Engines in another process. Empty if there are none. */
  readonly remote: RemoteEngines;
  /**
   * Models that have a price in the active configuration. They are always counted by name,
   * regardless of the number of other models.
   */
  readonly listed: Set<string> = new Set();
  /** Dimensions of attribution that usage is counted by in the active configuration. */
  readonly dimensions: Set<Dimension> = new Set();
  /** Bounds of stored usage in the active configuration. */
  readonly retention: { -readonly [Name in keyof UsageBounds]: UsageBounds[Name] } = {
    ...DEFAULT_RETENTION,
  };
  /** Time after which runs in Redis are idle in the active configuration. */
  readonly runBounds: { idleMs: RunBounds["idleMs"] } = { idleMs: DEFAULT_RUNS.idleMs };
  /** Counts limits if neither Redis nor another process does. */
  readonly limiter: MemoryLimiter = new MemoryLimiter(systemClock);
  /** Counts runs if neither Redis nor another process does. */
  readonly runs: MemoryRuns = new MemoryRuns(systemClock);
  /**
   * Stores recordings if neither Redis nor another process does. Their limit is from the active
   * configuration.
   */
  readonly recordings: MemoryRecordings = new MemoryRecordings({ clock: systemClock, maxBytes: 0 });
  /** Stores usage in memory if there is no other store. */
  readonly memoryUsage: MemoryUsage = new MemoryUsage(this.listed, systemClock.now, this.retention);
  /** Stores the history in memory if there is no other store. */
  readonly memoryHistory: MemoryHistory = new MemoryHistory(systemClock.now);
  /** Stores changes if the keys are in the configuration. */
  readonly changes: MemoryChangeLog = new MemoryChangeLog();
  /** Stores calls whose usage is stated later, if Redis does not. */
  readonly awaitedCalls: MemoryAwaitedCalls<AwaitedCall> = new MemoryAwaitedCalls(systemClock);
  /**
   * Numbers of failed writes of files, by the kind of their content, for metrics. They begin with 0:
   * Prometheus would not see the increase of a series that begins with 1.
   */
  readonly failedWrites: Map<WrittenFile, number> = new Map([
    ["state", 0],
    ["usage", 0],
    ["history", 0],
    ["snapshot", 0],
  ]);
  /** Counts of identity tokens, for metrics. */
  readonly tokenCounts: TokenCounts = new Map();
  /**
   * The transport that calls providers. Its idle connections outlive a change of the configuration.
   */
  transport: Transport | undefined;
  #meter: UsageMeter | undefined;
  #history: HistoryMeter | undefined;
  /** Prices of the active configuration. */
  #prices: PriceBook | undefined;
  readonly #shared = new Map<string, Shared>();

  constructor(remote: RemoteEngines = {}) {
    this.remote = remote;
  }

  /**
   * Applies the active configuration: models with a price, dimensions and bounds of usage, the
   * bounds of runs, and the limit of recordings.
   */
  list(
    config: Pick<Config, "prices" | "providers" | "usage" | "limits" | "attribution" | "runs">,
  ): void {
    const { prices, providers, usage, limits, attribution, runs } = config;
    this.runBounds.idleMs = runs.idleMs;
    this.recordings.maxBytes = limits.maxRecordingsBytes;
    this.#prices = new PriceBook({ prices, providers });
    this.listed.clear();
    for (const [, table] of listPriceTables({ prices, providers })) {
      for (const model of Object.keys(table)) this.listed.add(model);
    }
    this.dimensions.clear();
    for (const name of attribution.usage) this.dimensions.add(name);
    Object.assign(this.retention, usage, { maxAttributed: attribution.maxRows });
  }

  /**
   * Returns the meter that counts the usage of keys.
   *
   * @param store Its first store. Used only when the meter is created
   */
  meter(store: UsageStore): UsageMeter {
    return this.#meter ??= new UsageMeter({
      store,
      clock: systemClock,
      rest: setImmediate,
      listed: this.listed,
      dimensions: this.dimensions,
      keep: this.retention,
      findPrice: (called) => this.#prices?.find(called),
    });
  }

  /**
   * Returns the meter that counts the history.
   *
   * @param store Its first store. Used only when the meter is created
   */
  history(store: HistoryStore): HistoryMeter {
    return this.#history ??= new HistoryMeter({ store, clock: systemClock });
  }

  /** True if a configuration has opened an engine under this name and still uses it. */
  isOpen(name: string): boolean {
    return this.#shared.has(name);
  }

  /** Creates the references of another configuration to the engines. */
  createReferences(): EngineReferences {
    const names: string[] = [];
    return {
      use: async (name, open, close) => {
        let shared = this.#shared.get(name);
        if (shared === undefined) {
          this.#shared.set(name, shared = { engine: open(), close, users: 0 });
        }
        shared.users++;
        names.push(name);
        return await (shared.engine as ReturnType<typeof open>);
      },
      release: async () => {
        for (const name of names.splice(0).reverse()) await this.#release(name);
      },
    };
  }

  /** Stores the last counted usage and history. */
  async close(): Promise<void> {
    await this.#meter?.close();
    await this.#history?.close();
  }

  async #release(name: string): Promise<void> {
    const shared = this.#shared.get(name);
    if (shared === undefined || --shared.users > 0) return;
    this.#shared.delete(name);
    // An engine that failed to open needs no closing.
    const engine = await shared.engine.catch(() => undefined);
    if (engine !== undefined) await shared.close(engine as never);
  }
}
