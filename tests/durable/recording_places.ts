/** Places that store recordings outside the gateway's process, with a clock that tests move. */
import { setImmediate } from "node:timers";
import type { RecordingStore } from "../../src/durable/recording_store.ts";
import {
  RemoteRecordings,
  type SendToRecordings,
} from "../../src/durable/recording_store_remote.ts";
import type { RecordingMessage } from "../../src/durable/recording_server.ts";
import type { Clock } from "../../src/exchange/clock.ts";
import type { RecordingsUnderTest } from "./recording_store_suite.ts";

const BEGIN = Date.UTC(2026, 1, 27, 23, 0);
/** Turns of the event loop until messages have been handled and answered. */
const TURNS = 4;

/** Waits until all pending work is done. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** A clock with a fixed time, whose timers fire when the time is moved. */
export class MovedClock implements Clock {
  readonly #timers = new Set<{ readonly at: number; readonly fire: () => void }>();
  #passed = 0;

  /** Number of pending timers. */
  get waiting(): number {
    return this.#timers.size;
  }

  now(): number {
    return BEGIN + this.#passed;
  }

  monotonic(): number {
    return this.#passed;
  }

  timer(ms: number, fire: () => void): () => void {
    const timer = { at: this.#passed + Math.max(1, ms), fire };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Moves the time, timer by timer; all pending work runs between two timers. */
  async pass(ms: number): Promise<void> {
    const end = this.#passed + ms;
    await settle();
    for (let at = this.#next(end); at <= end; at = this.#next(end)) {
      this.#passed = at;
      for (const timer of Array.from(this.#timers)) {
        if (timer.at <= at && this.#timers.delete(timer)) timer.fire();
      }
      await settle();
      if (at === end) return;
    }
    this.#passed = end;
  }

  #next(end: number): number {
    const next = Math.min(...Array.from(this.#timers, ({ at }) => at));
    return next <= end ? next : Infinity;
  }
}

/** A gateway of these tests, which can be frozen. */
class TestGateway {
  readonly #clock: Clock;
  #thawed: (() => void)[] | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Its clock, whose timers do not fire while it is frozen. */
  get clock(): Clock {
    return {
      now: () => this.#clock.now(),
      monotonic: () => this.#clock.monotonic(),
      timer: (ms, fire) =>
        this.#clock.timer(ms, () => this.#thawed === undefined ? fire() : this.#thawed.push(fire)),
    };
  }

  /** Sends a message. Messages that the gateway sends while it is frozen are delayed. */
  through(send: SendToRecordings): SendToRecordings {
    return async (message) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      if (message.type !== "attend" || this.#thawed === undefined) resolve();
      else this.#thawed.push(resolve);
      await promise;
      return await send(message);
    };
  }

  freeze(): () => void {
    this.#thawed = [];
    return () => {
      const thawed = this.#thawed ?? [];
      this.#thawed = undefined;
      for (const go of thawed) go();
    };
  }
}

/** A place, and the connection to it. */
export interface Place {
  handle(message: RecordingMessage): ReturnType<SendToRecordings>;
  /** Called after each step of time. */
  afterPass?(): void;
  size(): number;
}

/** Creates the engine of a place for the suite. */
export function createPlaces(create: (clock: MovedClock) => Place): Promise<RecordingsUnderTest> {
  const clock = new MovedClock();
  const place = create(clock);
  const gateways = new Map<RecordingStore, TestGateway>();
  return Promise.resolve({
    leaseMs: 8000,
    tombstoneMs: 600_000,
    now: () => clock.now(),
    open() {
      const gateway = new TestGateway(clock);
      const send = gateway.through((message) => place.handle(message));
      const store = new RemoteRecordings({ send, clock: gateway.clock, gatherMs: 20 });
      gateways.set(store, gateway);
      return Promise.resolve(store);
    },
    async pass(ms) {
      await clock.pass(ms);
      place.afterPass?.();
    },
    freeze: (store) => gateways.get(store)?.freeze() ?? (() => {}),
    size: () => Promise.resolve(place.size()),
    close: () => Promise.resolve(),
  });
}
