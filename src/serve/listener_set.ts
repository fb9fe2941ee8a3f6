/**
 * The listeners of one handler. They follow the configuration: an address that stays configured is
 * not closed.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { ConfigError } from "../config/config.ts";
import { areInConflict } from "../config/listeners.ts";
import { systemClock } from "../exchange/clock.ts";
import type { Handler } from "../http/web.ts";
import type { Change } from "./change.ts";
import { openListener, stopListeners } from "./lifecycle.ts";
import type { Listener, ListenOptions, Serve } from "./listener.ts";

/** A configured address, with the actual port if it has port 0. */
export interface WantedAddress extends ListenOptions {
  /** The port that another process was assigned for port 0. */
  readonly givenPort?: number | undefined;
}

/** Options of a listener set. */
export interface ListenerSetOptions {
  readonly handler: Handler;
  /** The runtime's listener. */
  readonly serve: Serve;
  /** Returns the path of an address's setting, for errors. */
  readonly toPath: (index: number) => string;
  /** Receives one-line messages for the operator. */
  readonly report: ReportEvent;
}

/** A change of the listeners, and the open addresses after it. */
export type ListeningChange = Change & { readonly urls: readonly string[] };

/**
 * An address and its open listener. The object stays the same while the address stays configured.
 */
interface Binding {
  wanted: WantedAddress;
  listener: Listener;
  /** True while the listener is replaced because of a new certificate. */
  isReopening: boolean;
}

/** Pause between two attempts to reopen a listener. Milliseconds. */
const AGAIN_MS = 20;

function isSame(one: ListenOptions, other: ListenOptions): boolean {
  const isSameEndpoint = one.hostname === other.hostname && one.port === other.port;
  return isSameEndpoint && (one.tls === undefined) === (other.tls === undefined);
}

/** The listeners of one handler. */
export class ListenerSet {
  readonly #options: ListenerSetOptions;
  #bindings: readonly Binding[] = [];
  readonly #leaving = new Set<Listener>();
  #isClosed = false;

  constructor(options: ListenerSetOptions) {
    this.#options = options;
  }

  /** The open addresses, in the order of the configuration. */
  get urls(): readonly string[] {
    return this.#bindings.map(({ listener }) => listener.url);
  }

  /**
   * Ends the set when the process ends. It opens no more listeners. Returns all listeners,
   * including those being closed.
   */
  close(): readonly Listener[] {
    this.#isClosed = true;
    return [...this.#bindings.map(({ listener }) => listener), ...this.#leaving];
  }

  /**
   * Opens the new addresses. Removed addresses are closed when the change is applied.
   *
   * @throws {ConfigError} For an address that can't be listened on
   */
  async prepare(addresses: readonly WantedAddress[]): Promise<ListeningChange> {
    const { handler, serve, toPath } = this.#options;
    const before = [...this.#bindings];
    const kept = addresses.map((wanted) => {
      const index = before.findIndex((binding) => isSame(binding.wanted, wanted));
      return index < 0 ? undefined : before.splice(index, 1)[0];
    });
    const fresh: Listener[] = [];
    const abandon = () => stopListeners(fresh);
    const bindings: Binding[] = [];
    try {
      for (const [index, wanted] of addresses.entries()) {
        const path = toPath(index);
        let binding = kept[index];
        if (binding === undefined) {
          if (before.some((binding) => areInConflict(binding.wanted, wanted))) {
            const message =
              "a port can't change its hostname, or between http and https, without a restart";
            throw new ConfigError([{ path, message }]);
          }
          const port = wanted.givenPort ?? wanted.port;
          const listener = await openListener(handler, serve, { ...wanted, port }, path);
          fresh.push(listener);
          binding = { wanted, listener, isReopening: false };
        }
        bindings.push(binding);
      }
    } catch (error) {
      await abandon();
      throw error;
    }
    const apply = () => {
      this.#bindings = bindings;
      for (const { listener, isReopening } of before) {
        if (!isReopening) this.#leave(listener);
      }
      for (const [index, wanted] of addresses.entries()) {
        const binding = kept[index];
        if (binding !== undefined) this.#adjust(binding, wanted);
      }
    };
    return { apply, abandon, urls: bindings.map(({ listener }) => listener.url) };
  }

  /** Applies changed options to a listener that stays open. */
  #adjust(binding: Binding, wanted: WantedAddress): void {
    const { tls, bodyTimeMs, writeStallMs } = binding.wanted;
    binding.wanted = wanted;
    const isEqual = tls?.cert === wanted.tls?.cert && tls?.key === wanted.tls?.key;
    const isInTime = bodyTimeMs === wanted.bodyTimeMs && writeStallMs === wanted.writeStallMs;
    if (isEqual && isInTime) return;
    const isAdjusted = binding.listener.adjust?.(wanted) ?? false;
    if (!isEqual && !isAdjusted) void this.#reopen(binding);
  }

  /**
   * Replaces a listener, on a runtime that can't change its certificate. The port is briefly
   * closed. The configuration can change again before the port is free. The new listener then uses
   * the latest configuration.
   */
  async #reopen(binding: Binding): Promise<void> {
    if (binding.isReopening) return;
    binding.isReopening = true;
    const { listener: old } = binding;
    this.#leave(old);
    const isWanted = () => !this.#isClosed && this.#bindings.includes(binding);
    let isReported = false;
    while (isWanted()) {
      const { wanted } = binding;
      const listener = await this.#tryOpen(binding);
      if (listener !== undefined) {
        if (wanted !== binding.wanted || !isWanted()) {
          this.#leave(listener);
          continue;
        }
        binding.listener = listener;
        break;
      }
      if (!isReported) {
        const text = `${old.url} cannot be opened again yet: retrying until it can`;
        this.#options.report(text, { event: "listener_failed", url: old.url });
      }
      isReported = true;
      await new Promise<void>((resolve) => systemClock.timer(AGAIN_MS, resolve));
    }
    binding.isReopening = false;
  }

  /** Opens the port of a binding again. Returns `undefined` while the port is in use. */
  async #tryOpen({ listener, wanted }: Binding): Promise<Listener | undefined> {
    const { handler, serve } = this.#options;
    const port = Number(new URL(listener.url).port || (wanted.tls === undefined ? 80 : 443));
    try {
      return await serve(handler, { ...wanted, port });
    } catch {
      return undefined;
    }
  }

  #leave(listener: Listener): void {
    this.#leaving.add(listener);
    void stopListeners([listener]).finally(() => this.#leaving.delete(listener));
  }
}
