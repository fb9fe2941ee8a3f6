/**
 * Recordings in the storage of a Durable Object, for one tag: all recordings of a name, or a single
 * unnamed one.
 *
 * @module
 */
import { MemoryRecordings } from "../durable/recording_store_memory.ts";
import {
  type RecordingMessage,
  type RecordingReply,
  RecordingServer,
} from "../durable/recording_server.ts";
import type { Clock } from "../exchange/clock.ts";
import { AlarmClock } from "./alarm_clock.ts";
import type { ObjectStorage } from "./bindings.ts";
import { KvJournal } from "./kv_journal.ts";

/** Recordings that outlive the memory of their object. */
export class StoredRecordings {
  readonly #storage: ObjectStorage;
  readonly #clock: AlarmClock;
  readonly #store: MemoryRecordings;
  readonly #shared: RecordingServer;

  /** @param maxBytes Maximum total size of its recordings. Bytes */
  constructor(storage: ObjectStorage, base: Clock, maxBytes: number) {
    this.#storage = storage;
    const timer: Clock["timer"] = (ms, fire) =>
      base.timer(ms, () => {
        fire();
        void this.#clear();
      });
    const own = { now: () => base.now(), monotonic: () => base.now(), timer };
    const clock = this.#clock = new AlarmClock(own, (at) => void storage.setAlarm(at));
    this.#store = new MemoryRecordings({ clock, maxBytes, journal: new KvJournal(storage) });
    this.#shared = new RecordingServer(this.#store, clock);
  }

  /** Handles a message of a gateway. See {@link RecordingServer.handle}. */
  handle(message: RecordingMessage): Promise<RecordingReply> {
    this.#clock.ring();
    return this.#shared.handle(message);
  }

  /** Ends expired leases and deletes expired recordings. */
  async alarm(): Promise<void> {
    this.#clock.ring(true);
    await this.#clear();
  }

  /**
   * Deletes all stored data after the last recording was deleted: an empty storage costs nothing.
   */
  async #clear(): Promise<void> {
    if (this.#store.size > 0) return;
    this.#clock.alarmDeleted();
    await this.#storage.deleteAll();
  }
}
