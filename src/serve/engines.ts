/**
 * What a process keeps although its configuration changes: the counts of limits and usage, and whatever two
 * configurations both name, such as a file of keys or a Redis.
 *
 * @module
 */
import { type Limiter, MemoryLimiter } from "../limits/memory_limiter.ts";
import { systemClock } from "../exchange/clock.ts";
import { UsageMeter } from "../usage/meter.ts";
import { MemoryUsage } from "../usage/usage_memory.ts";
import type { Transport } from "../upstream/transport.ts";
import type { UsageStore } from "../usage/counts.ts";

/** Engines that somebody else runs, see `worker.ts`. */
export interface RemoteEngines {
  /** Counts limits. */
  readonly limiter?: Limiter | undefined;
  /** Keeps usage; with Redis each process sees to it itself. */
  readonly usage?: UsageStore | undefined;
}

/** An engine that is open, and how many configurations use it. */
interface Shared {
  readonly engine: Promise<unknown>;
  readonly close: (engine: never) => Promise<void>;
  users: number;
}

/** The engines that one configuration uses. */
export interface EngineHold {
  /**
   * Opens an engine, or takes the one that another configuration has opened under this name.
   *
   * @param name Equal for what may be shared
   * @param open Opens it
   * @param close Closes it, after the last configuration that used it
   */
  use<T>(name: string, open: () => Promise<T>, close: (engine: T) => Promise<void>): Promise<T>;
  /** Lets go of all of them, the last one first. */
  release(): Promise<void>;
}

/** The engines of one process. */
export class Engines {
  /** Whether limits are counted, or usage kept, elsewhere. */
  readonly remote: RemoteEngines;
  /** Models that have a price, by the configuration in force: they are counted by their names, however many others there are. */
  readonly listed: Set<string> = new Set();
  /** Counts limits, where neither Redis nor another process does. */
  readonly limiter: MemoryLimiter = new MemoryLimiter(systemClock);
  /** Keeps usage, where nothing else does. */
  readonly memoryUsage: MemoryUsage = new MemoryUsage(this.listed, systemClock.now);
  /** Calls providers; its idle connections outlive a change of the configuration. */
  transport: Transport | undefined;
  #meter: UsageMeter | undefined;
  readonly #shared = new Map<string, Shared>();

  /** @param remote Engines that somebody else runs */
  constructor(remote: RemoteEngines = {}) {
    this.remote = remote;
  }

  /** Counts what keys use. @param store Where that is kept, to begin with */
  meter(store: UsageStore): UsageMeter {
    return this.#meter ??= new UsageMeter({ store, clock: systemClock, listed: this.listed });
  }

  /** The engines of one configuration more. */
  hold(): EngineHold {
    const held: string[] = [];
    return {
      use: async (name, open, close) => {
        let shared = this.#shared.get(name);
        if (shared === undefined) this.#shared.set(name, shared = { engine: open(), close, users: 0 });
        shared.users++;
        held.push(name);
        return await (shared.engine as ReturnType<typeof open>);
      },
      release: async () => {
        for (const name of held.splice(0).reverse()) await this.#release(name);
      },
    };
  }

  /** Hands on the usage that was counted last. */
  async close(): Promise<void> {
    await this.#meter?.close();
  }

  async #release(name: string): Promise<void> {
    const shared = this.#shared.get(name);
    if (shared === undefined || --shared.users > 0) return;
    this.#shared.delete(name);
    const engine = await shared.engine.catch(() => undefined); // one that could not be opened needs no closing
    if (engine !== undefined) await shared.close(engine as never);
  }
}
