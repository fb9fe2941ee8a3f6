/**
 * Waits for changes of recordings: one message wakes any number of readers of one process.
 *
 * @module
 */
import type { Clock } from "../../exchange/clock.ts";

/** A prepared wait: events from its creation on wake it, even before it begins to wait. */
export class Wait {
  /** Called once it is woken or its time is over. */
  #resolve: (() => void) | undefined;
  #isWoken = false;

  /** Ends the wait, or the next one. */
  wake(): void {
    this.#isWoken = true;
    this.#resolve?.();
  }

  /** Waits until it is woken, or a signal is aborted, or for `ms` milliseconds. */
  async until(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#isWoken || signal?.aborted === true) return;
    let cancelTimer = (): void => {};
    const wake = () => this.#resolve?.();
    await new Promise<void>((resolve) => {
      this.#resolve = resolve;
      cancelTimer = clock.timer(ms, resolve, { isBackground: true });
      signal?.addEventListener("abort", wake);
    });
    cancelTimer();
    signal?.removeEventListener("abort", wake);
  }
}

/** The waits of one process. */
export class Waits {
  readonly #waits = new Map<string, Set<Wait>>();

  add(id: string): Wait {
    const wait = new Wait();
    const waits = this.#waits.get(id);
    if (waits === undefined) this.#waits.set(id, new Set([wait]));
    else waits.add(wait);
    return wait;
  }

  delete(id: string, wait: Wait): void {
    const waits = this.#waits.get(id);
    waits?.delete(wait);
    if (waits?.size === 0) this.#waits.delete(id);
  }

  wake(id: string): void {
    for (const wait of this.#waits.get(id) ?? []) wait.wake();
  }

  wakeAll(): void {
    for (const id of Array.from(this.#waits.keys())) this.wake(id);
  }
}
