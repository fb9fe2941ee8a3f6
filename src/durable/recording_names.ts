/**
 * Names of recordings in memory, and the rules by which a request finds the recording that its name
 * belongs to.
 *
 * @module
 */
import type { RecordingName, RecordingState } from "./recording_store.ts";

/** A recording that may have a name. */
export interface NamedRecording {
  /** `undefined` for one that has none, or has it no more. */
  name: RecordingName | undefined;
  readonly state: RecordingState;
  readonly isRead: boolean;
}

/** Recordings by name. */
export class RecordingNames<Recording extends NamedRecording> {
  /** Recordings of each name, oldest first. */
  readonly #named = new Map<string, Recording[]>();

  /** Finds the recording that a request with this name gets. */
  find(name: RecordingName | undefined): Recording | undefined {
    const named = name && this.#named.get(name.text);
    if (name === undefined || named === undefined) return undefined;
    if (name.kind === "key") return named.at(-1);
    return name.isRetry ? findRetried(named) : undefined;
  }

  /** Adds a recording, newer than those before. */
  add(recording: Recording): void {
    const text = recording.name?.text;
    if (text !== undefined) this.#named.set(text, [...this.#named.get(text) ?? [], recording]);
  }

  /** Takes the name from a recording: it is free, or another's. */
  free(recording: Recording): void {
    const text = recording.name?.text;
    if (text === undefined) return;
    recording.name = undefined;
    const others = this.#named.get(text)?.filter((other) => other !== recording) ?? [];
    if (others.length === 0) this.#named.delete(text);
    else this.#named.set(text, others);
  }
}

/**
 * Finds the recording to which a retry by body belongs: the only one that runs, or one of several
 * that nobody reads; if none runs, the newest. Equal requests at the same time are no retries of
 * each other.
 */
function findRetried<Recording extends NamedRecording>(
  named: readonly Recording[],
): Recording | undefined {
  const running = named.filter(({ state }) => state === "running");
  if (running.length === 1) return running[0];
  return running.length === 0 ? named.at(-1) : running.find(({ isRead }) => !isRead);
}
