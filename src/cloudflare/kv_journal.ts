/**
 * The journal of recordings in the storage of a Durable Object.
 *
 * @module
 */
import type {
  KeptRecording,
  LoadedRecording,
  RecordingJournal,
} from "../durable/recording_journal.ts";
import type { SealedEntry } from "../durable/recording_store.ts";
import type { ObjectStorage } from "./bindings.ts";

/**
 * The most bytes of ciphertext in one value. The platform accepts 2 MB, with the name (Cloudflare,
 * "Limits").
 */
const MAX_VALUE_BYTES = 1_000_000;
/** Number of digits in names of values. Fixed, because names are sorted as texts. */
const DIGITS = 9;

const nameOf = (id: string): string => `recording:${id}`;
const prefixOf = (id: string): string => `entry:${id}:`;

/** Journal in the storage of a Durable Object. */
export class KvJournal implements RecordingJournal {
  readonly #kv: ObjectStorage["kv"];

  constructor({ kv }: Pick<ObjectStorage, "kv">) {
    this.#kv = kv;
  }

  load(): LoadedRecording[] {
    const kept = Array.from(
      this.#kv.list<KeptRecording>({ prefix: nameOf("") }),
      ([, recording]) => recording,
    );
    kept.sort((one, other) => one.facts.startedAt - other.facts.startedAt);
    return kept.map((recording) => ({ ...recording, entries: this.#entries(recording.id) }));
  }

  save(kept: KeptRecording): void {
    this.#kv.put(nameOf(kept.id), kept);
  }

  append(id: string, index: number, entry: SealedEntry): void {
    const { sealed } = entry;
    for (
      let start = 0, part = 0;
      start === 0 || start < sealed.byteLength;
      start += MAX_VALUE_BYTES, part++
    ) {
      const name = `${prefixOf(id)}${String(index).padStart(DIGITS, "0")}:${
        String(part).padStart(DIGITS, "0")
      }`;
      this.#kv.put(name, { ...entry, sealed: sealed.slice(start, start + MAX_VALUE_BYTES) });
    }
  }

  clear(id: string): void {
    for (const [name] of Array.from(this.#kv.list({ prefix: prefixOf(id) }))) this.#kv.delete(name);
  }

  forget(id: string): void {
    this.#kv.delete(nameOf(id));
  }

  /** Loads the entries of a recording. Each entry has one or more values. */
  #entries(id: string): SealedEntry[] {
    const entries: SealedEntry[] = [];
    for (const [, { sealed, ...place }] of this.#kv.list<SealedEntry>({ prefix: prefixOf(id) })) {
      const last = entries.at(-1);
      const isMore = last?.kind === place.kind && last.offset === place.offset;
      const bytes = isMore ? join(last.sealed, sealed) : sealed;
      if (isMore) entries.pop();
      entries.push({ ...place, sealed: bytes });
    }
    return entries;
  }
}

function join(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(first.byteLength + second.byteLength);
  both.set(first);
  both.set(second, first.byteLength);
  return both;
}
