/**
 * Port: calls whose usage is stated later, such as responses in the background. Their usage was
 * estimated, and the answer that states it belongs to another call.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";

/** Name of an awaited call. */
export interface AwaitedName {
  readonly provider: string;
  /** Id of the answer that will state the usage. */
  readonly laterId: string;
}

/** Port: stores the facts of awaited calls, as JSON, for {@link AWAITED_MS}. */
export interface AwaitedCalls<Call extends object> {
  /**
   * Stores a call.
   *
   * @param keyId Id of the gateway key for which it is stored
   */
  put(name: AwaitedName, call: Call, keyId: string): void | Promise<void>;
  /**
   * Removes and returns a call. If several ask at the same time, one of them receives it.
   *
   * @param keyId Id of the gateway key whose call asks
   * @returns `undefined` for an unknown or expired call
   */
  take(name: AwaitedName, keyId: string): Call | undefined | Promise<Call | undefined>;
}

/**
 * Time for which a call is awaited: OpenAI keeps stored responses for 30 days
 * (https://platform.openai.com/docs/guides/your-data). Milliseconds.
 */
export const AWAITED_MS: number = 30 * 24 * 3_600_000;
/** The most awaited calls in memory. The oldest are forgotten first; their estimates stay. */
const MAX_CALLS = 10_000;

/** Awaited calls in the memory of a process. */
export class MemoryAwaitedCalls<Call extends object> implements AwaitedCalls<Call> {
  readonly #calls = new Map<string, { readonly call: Call; readonly until: number }>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  put({ provider, laterId }: AwaitedName, call: Call): void {
    const until = this.#clock.now() + AWAITED_MS;
    this.#calls.set(`${provider} ${laterId}`, { call, until });
    if (this.#calls.size <= MAX_CALLS) return;
    for (const oldest of this.#calls.keys()) {
      this.#calls.delete(oldest);
      return;
    }
  }

  take({ provider, laterId }: AwaitedName): Call | undefined {
    const name = `${provider} ${laterId}`;
    const found = this.#calls.get(name);
    this.#calls.delete(name);
    return found !== undefined && found.until >= this.#clock.now() ? found.call : undefined;
  }
}
