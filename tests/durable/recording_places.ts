/** Places that keep recordings for gateways elsewhere, over a clock that tests move. */
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
/** Turns of the event loop in which messages are handled and answered. */
const TURNS = 4;

/** Lets all that is under way happen. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** A clock that stands still, and timers that fire as it is moved. */
export class MovedClock implements Clock {
  readonly #timers = new Set<{ readonly at: number; readonly fire: () => void }>();
  #passed = 0;

  /** Number of timers that wait. */
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

  /** Moves it, timer by timer; between two of them all happens that is under way. */
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

/** A gateway of these tests, which can stand still. */
class TestGateway {
  readonly #clock: Clock;
  #thawed: (() => void)[] | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Its clock, whose timers do not go off while it stands still. */
  get clock(): Clock {
    return {
      now: () => this.#clock.now(),
      monotonic: () => this.#clock.monotonic(),
      timer: (ms, fire) =>
        this.#clock.timer(ms, () => this.#thawed === undefined ? fire() : this.#thawed.push(fire)),
    };
  }

  /** Sends a message. What it says by itself waits while it stands still. */
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

/** A place, and how it is reached. */
export interface Place {
  handle(message: RecordingMessage): ReturnType<SendToRecordings>;
  /** Happens after each time that passes. */
  afterPass?(): void;
  size(): number;
}

/** Makes an engine for the suite of a place. */
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
