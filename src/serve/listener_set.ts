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

/** An address and the listener that is open on it. */
interface Door {
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
export const isInTheWay = (one: Endpoint, other: Endpoint): boolean =>
  one.port !== 0 && one.port === other.port &&
  (one.hostname === other.hostname || [one, other].some(({ hostname }) => WILDCARDS.includes(hostname)));

/** The listeners of one handler. */
export class ListenerSet {
  readonly #options: ListenerSetOptions;
  #doors: readonly Door[] = [];
  readonly #leaving = new Set<Listener>();
  #isClosed = false;

  /** @param options Options of the set */
  constructor(options: ListenerSetOptions) {
    this.#options = options;
  }

  /** The addresses that it listens on, in the order of the configuration. */
  get urls(): readonly string[] {
    return this.#doors.map(({ listener }) => listener.url);
  }

  /**
   * Ends the set when the process ends: opens no listener any more, and returns all listeners, also those being closed.
   */
  close(): readonly Listener[] {
    this.#isClosed = true;
    return [...this.#doors.map(({ listener }) => listener), ...this.#leaving];
  }

  /**
   * Opens the addresses that are new. Those that are no longer wanted are closed when the change is made.
   *
   * @param addresses All addresses that are wanted
   * @returns The change, and the addresses that are listened on after it
   * @throws {ConfigError} For an address that can't be listened on
   */
  async prepare(addresses: readonly WantedAddress[]): Promise<Change & { readonly urls: readonly string[] }> {
    const { handler, serve, toPath } = this.#options;
    const before = [...this.#doors];
    const kept = addresses.map((wanted) => {
      const index = before.findIndex((door) => isSame(door.wanted, wanted));
      return index < 0 ? undefined : before.splice(index, 1)[0];
    });
    const fresh: Listener[] = [];
    const abandon = () => stopListeners(fresh);
    const doors: Door[] = [];
    try {
      for (const [index, wanted] of addresses.entries()) {
        const path = toPath(index);
        let listener = kept[index]?.listener;
        if (listener === undefined) {
          if (before.some((door) => isInTheWay(door.wanted, wanted))) {
            const message = "a port can't change its hostname, or between http and https, without a restart";
            throw new ConfigError([{ path, message }]);
          }
          const port = wanted.givenPort ?? wanted.port;
          fresh.push(listener = await openListener(handler, serve, { ...wanted, port }, path));
        }
        doors.push({ wanted, listener });
      }
    } catch (error) {
      await abandon();
      throw error;
    }
    const apply = () => {
      this.#doors = doors;
      for (const { listener } of before) this.#leave(listener);
      for (const [index, door] of doors.entries()) this.#adjust(door, kept[index]);
    };
    return { apply, abandon, urls: doors.map(({ listener }) => listener.url) };
  }

  /** Applies changed options to a listener that stays. */
  #adjust(door: Door, before: Door | undefined): void {
    if (before === undefined) return;
    const { tls, bodyTimeMs } = before.wanted;
    const isEqual = tls?.cert === door.wanted.tls?.cert && tls?.key === door.wanted.tls?.key;
    if (isEqual && bodyTimeMs === door.wanted.bodyTimeMs) return;
    const isAdjusted = door.listener.adjust?.(door.wanted) ?? false;
    if (!isEqual && !isAdjusted) this.#reopen(door);
  }

  /** Opens a listener anew, on a runtime that can't replace its certificate. The port is briefly closed meanwhile. */
  #reopen(door: Door): void {
    const { handler, serve, report } = this.#options;
    const { listener: old, wanted } = door;
    const port = Number(new URL(old.url).port || (wanted.tls === undefined ? 80 : 443));
    this.#leave(old);
    let isTold = false;
    const open = async (): Promise<void> => {
      try {
        const listener = await serve(handler, { ...wanted, port });
        if (this.#isClosed || !this.#doors.includes(door)) return await stopListeners([listener]);
        door.listener = listener;
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
