/** The storage of a Durable Object, in memory. */
import type { ObjectStorage } from "../../src/cloudflare/bindings.ts";

/** The storage, and its content. */
export interface TestStorage extends ObjectStorage {
  readonly stored: Map<string, unknown>;
  /** Time of the alarm. Milliseconds since 1970 */
  alarmAt: number | undefined;
}

/** Creates a storage. @param onAlarm Called when the alarm is set */
export function createStorage(onAlarm: (storage: TestStorage) => void = () => {}): TestStorage {
  const stored = new Map<string, unknown>();
  const kv = {
    get: <T>(name: string) => structuredClone(stored.get(name)) as T | undefined,
    put: (name: string, value: unknown) => void stored.set(name, structuredClone(value)),
    delete: (name: string) => stored.delete(name),
    *list<T>({ prefix = "" } = {}): Iterable<[string, T]> {
      for (const name of Array.from(stored.keys()).sort()) {
        if (name.startsWith(prefix)) yield [name, structuredClone(stored.get(name)) as T];
      }
    },
  };
  const storage: TestStorage = {
    stored,
    kv,
    alarmAt: undefined,
    setAlarm(at) {
      storage.alarmAt = at;
      onAlarm(storage);
      return Promise.resolve();
    },
    // Also deletes the alarm, as the platform does since the compatibility date 2026-02-24.
    deleteAll() {
      stored.clear();
      storage.alarmAt = undefined;
      return Promise.resolve();
    },
  };
  return storage;
}
