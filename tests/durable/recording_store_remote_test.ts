/**
 * Recordings that are stored outside the process: the suite of all stores, for a separate process
 * and for Durable Objects.
 */
// runtimes: once
import { StoredRecordings } from "../../src/cloudflare/stored_recordings.ts";
import { tagOf } from "../../src/durable/recording_store.ts";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { RecordingServer } from "../../src/durable/recording_server.ts";
import {
  packMessage,
  packReply,
  unpackMessage,
  unpackReply,
} from "../../src/serve/workers/recording_messages.ts";
import { createStorage, type TestStorage } from "../support/object_storage.ts";
import { createPlaces, MovedClock, type Place } from "./recording_places.ts";
import { describeRecordings } from "./recording_store_suite.ts";

/** A separate process, which receives JSON. */
function besides(clock: MovedClock): Place {
  const store = new MemoryRecordings({ clock, maxBytes: 10_000_000 });
  const shared = new RecordingServer(store, clock);
  const cross = <Value>(value: Value): Value => JSON.parse(JSON.stringify(value));
  return {
    handle: async (message) =>
      unpackReply(
        cross(packReply(await shared.handle(unpackMessage(cross(packMessage(message)))))),
      ),
    size: () => store.size,
  };
}

/**
 * Durable Objects, one for each tag, which are evicted from memory after each step of time if they
 * have no pending work.
 */
class Objects implements Place {
  readonly #clock: MovedClock;
  readonly #storages = new Map<string, TestStorage>();
  readonly #objects = new Map<string, StoredRecordings>();
  #underWay = 0;

  constructor(clock: MovedClock) {
    this.#clock = clock;
  }

  async handle(message: Parameters<Place["handle"]>[0]) {
    if (message.type === "list") return {};
    const object = this.#open(tagOf(message.type === "claim" ? message.claim.id : message.id));
    this.#underWay++;
    try {
      return structuredClone(await object.handle(structuredClone(message)));
    } finally {
      this.#underWay--;
    }
  }

  afterPass(): void {
    if (this.#underWay === 0) this.#objects.clear();
  }

  size(): number {
    return Array.from(this.#storages.values()).reduce((sum, { stored }) => sum + stored.size, 0);
  }

  /** Returns an object. If it is not in memory, it is created again from its storage. */
  #open(tag: string): StoredRecordings {
    const storage = this.#storages.get(tag) ??
      createStorage((storage) => this.#alarmLater(tag, storage));
    this.#storages.set(tag, storage);
    const object = this.#objects.get(tag) ?? new StoredRecordings(storage, this.#clock, 10_000_000);
    this.#objects.set(tag, object);
    return object;
  }

  #alarmLater(tag: string, storage: TestStorage): void {
    const at = storage.alarmAt ?? 0;
    this.#clock.timer(at - this.#clock.now(), () => {
      if (storage.alarmAt !== at) return; // the alarm was set to a different time
      storage.alarmAt = undefined;
      void this.#open(tag).alarm();
    });
  }
}

describeRecordings("in another process", () => createPlaces(besides), { hasGateways: true });
describeRecordings("in Durable Objects", () => createPlaces((clock) => new Objects(clock)), {
  hasGateways: true,
  isListed: false,
});
