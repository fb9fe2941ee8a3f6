/**
 * The listeners of one handler, which follow the configuration: an address that stays in it is not closed.
 *
 * @module
 */
import { ConfigError } from "../config/config.ts";
import { systemClock } from "../exchange/clock.ts";
import type { Handler } from "../http/web.ts";
import type { Change } from "./change.ts";
import { openListener, stopListeners } from "./lifecycle.ts";
import type { Listener, ListenOptions, Serve } from "./listener.ts";

/** An address of the configuration, with the actual port where it asks for port 0. */
export interface WantedAddress extends ListenOptions {
  /** The port that another process got for port 0. */
  readonly givenPort?: number | undefined;
}

/** Options of a listener set. */
export interface ListenerSetOptions {
  readonly handler: Handler;
  /** The runtime's listener. */
  readonly serve: Serve;
  /** Returns the path of the setting of an address, for errors. */
  readonly toPath: (index: number) => string;
  /** Receives one-line messages for the operator. */
  readonly report: (text: string) => void;
}

/** A change of the listeners, and the addresses that are listened on after it. */
export type ListeningChange = Change & { readonly urls: readonly string[] };

/** An address and the listener that is open on it. */
interface Binding {
  readonly wanted: WantedAddress;
  listener: Listener;
}

const WILDCARDS = ["0.0.0.0", "::"];
/** Pause between two attempts to open a listener anew. Milliseconds. */
const AGAIN_MS = 20;

const isSame = (one: ListenOptions, other: ListenOptions): boolean =>
  one.hostname === other.hostname && one.port === other.port && (one.tls === undefined) === (other.tls === undefined);

type Endpoint = Pick<ListenOptions, "hostname" | "port">;

/** Returns whether two endpoints conflict: both can't be listened on at the same time. */
export const areInConflict = (one: Endpoint, other: Endpoint): boolean =>
  one.port !== 0 && one.port === other.port &&
  (one.hostname === other.hostname || [one, other].some(({ hostname }) => WILDCARDS.includes(hostname)));

/** The listeners of one handler. */
export class ListenerSet {
  readonly #options: ListenerSetOptions;
  #bindings: readonly Binding[] = [];
  readonly #leaving = new Set<Listener>();
  #isClosed = false;

  /** @param options Options of the set */
  constructor(options: ListenerSetOptions) {
    this.#options = options;
  }

  /** The addresses that it listens on, in the order of the configuration. */
  get urls(): readonly string[] {
    return this.#bindings.map(({ listener }) => listener.url);
  }

  /**
   * Ends the set when the process ends: opens no listener any more, and returns all listeners, also those being closed.
   */
  close(): readonly Listener[] {
    this.#isClosed = true;
    return [...this.#bindings.map(({ listener }) => listener), ...this.#leaving];
  }

  /**
   * Opens the addresses that are new. Those that are no longer wanted are closed when the change is made.
   *
   * @param addresses All addresses that are wanted
   * @returns The change, and the addresses that are listened on after it
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
        let listener = kept[index]?.listener;
        if (listener === undefined) {
          if (before.some((binding) => areInConflict(binding.wanted, wanted))) {
            const message = "a port can't change its hostname, or between http and https, without a restart";
            throw new ConfigError([{ path, message }]);
          }
          const port = wanted.givenPort ?? wanted.port;
          fresh.push(listener = await openListener(handler, serve, { ...wanted, port }, path));
        }
        bindings.push({ wanted, listener });
      }
    } catch (error) {
      await abandon();
      throw error;
    }
    const apply = () => {
      this.#bindings = bindings;
      for (const { listener } of before) this.#leave(listener);
      for (const [index, binding] of bindings.entries()) this.#adjust(binding, kept[index]);
    };
    return { apply, abandon, urls: bindings.map(({ listener }) => listener.url) };
  }

  /** Applies changed options to a listener that stays. */
  #adjust(binding: Binding, before: Binding | undefined): void {
    if (before === undefined) return;
    const { tls, bodyTimeMs, writeStallMs } = before.wanted;
    const isEqual = tls?.cert === binding.wanted.tls?.cert && tls?.key === binding.wanted.tls?.key;
    const isInTime = bodyTimeMs === binding.wanted.bodyTimeMs && writeStallMs === binding.wanted.writeStallMs;
    if (isEqual && isInTime) return;
    const isAdjusted = binding.listener.adjust?.(binding.wanted) ?? false;
    if (!isEqual && !isAdjusted) this.#reopen(binding);
  }

  /** Opens a listener anew, on a runtime that can't replace its certificate. The port is briefly closed meanwhile. */
  #reopen(binding: Binding): void {
    const { handler, serve, report } = this.#options;
    const { listener: old, wanted } = binding;
    const port = Number(new URL(old.url).port || (wanted.tls === undefined ? 80 : 443));
    this.#leave(old);
    let isTold = false;
    const open = async (): Promise<void> => {
      try {
        const listener = await serve(handler, { ...wanted, port });
        if (this.#isClosed || !this.#bindings.includes(binding)) return await stopListeners([listener]);
        binding.listener = listener;
      } catch {
        if (!isTold) report(`${old.url} can't be opened again yet: it is tried until it can`);
        isTold = true;
        systemClock.timer(AGAIN_MS, () => void (this.#isClosed || open()));
      }
    };
    void open();
  }

  #leave(listener: Listener): void {
    this.#leaving.add(listener);
    void stopListeners([listener]).finally(() => this.#leaving.delete(listener));
  }
}
