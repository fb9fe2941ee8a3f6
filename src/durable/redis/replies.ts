/**
 * Names and values of recordings in Redis: keys, ids of entries, and the answers of scripts.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import {
  type EntryKind,
  type RecordingFacts,
  RecordingLost,
  type RecordingPart,
  RecordingsFull,
  type RecordingState,
  type SealedEntry,
  type StoredRecording,
  tagOf,
} from "../recording_store.ts";

const STATES: Readonly<Record<string, RecordingState>> = {
  r: "running",
  d: "running",
  c: "complete",
  b: "broken",
  x: "expired",
};

/** A recording, and the remaining time of its lease. */
export interface FoundRecording {
  readonly stored: StoredRecording;
  /** Milliseconds. Without meaning once it has ended. */
  readonly leaseMs: number;
}

/** A part of a recording, and the remaining time of its lease. */
export interface FoundPart {
  readonly part: RecordingPart;
  readonly isRunning: boolean;
  /** Milliseconds. */
  readonly leaseMs: number;
}

/** Returns the key of a recording's hash. */
export function toRecordingKey(id: string): string {
  return `sallyport:{${tagOf(id)}}:recording:${id.slice(7)}`;
}

/** Returns the key of the stream of a recording's entries. */
export function toLogKey(id: string): string {
  return `sallyport:{${tagOf(id)}}:log:${id.slice(7)}`;
}

/** Returns the key of the mark of a recording that was deleted. */
export function toDeletedKey(id: string): string {
  return `sallyport:{${tagOf(id)}}:deleted:${id.slice(7)}`;
}

/** Returns the key of the list of a name's recordings. */
export function toNameKey(id: string, name: string): string {
  return `sallyport:{${tagOf(id)}}:name:${name}`;
}

/** Returns the id of an entry in its stream. Ids begin at 1, because Redis does not allow 0. */
export function toEntryId({ offset, kind }: Pick<SealedEntry, "offset" | "kind">): string {
  return `${offset + 1}-${kind}`;
}

/** Returns bytes as the library sends them, without a copy. */
export function toBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** Returns the facts of a recording in the order of the scripts' arguments. */
export function toFactArguments(facts: RecordingFacts): (string | number)[] {
  const { owner, digest, provider, keyId, operation, startedAt, keepMs } = facts;
  return [owner, digest, provider, keyId, operation, startedAt, keepMs];
}

/** Reads the answer to a claim that found an earlier recording, or to a look-up. */
export function readFound(reply: unknown): FoundRecording | undefined {
  if (reply === null) return undefined;
  const all = toArray(reply);
  const [state = "", id = "", leaseMs, expiresAt, keepMs, length, ...rest] = all.slice(0, 12).map(
    String,
  );
  const [owner = "", digest = "", provider = "", keyId = "", operation = "", startedAt] = rest;
  const facts = {
    owner,
    digest,
    provider,
    keyId,
    operation,
    startedAt: Number(startedAt),
    keepMs: Number(keepMs),
  };
  const stored = {
    id,
    facts: facts satisfies RecordingFacts,
    state: STATES[state] ?? fail(),
    isHeld: state !== "d",
    length: Number(length),
    expiresAt: expiresAt === "" ? undefined : Number(expiresAt),
    head: all.length > 12 ? readEntry("1-1", all[12], all[13]) : undefined,
  };
  return { stored, leaseMs: Number(leaseMs) };
}

/** Reads the answer to a read. */
export function readPart(reply: unknown): FoundPart | undefined {
  if (reply === null) return undefined;
  const [state, leaseMs, ...rest] = toArray(reply);
  const entries: SealedEntry[] = [];
  for (let index = 0; index < rest.length; index += 3) {
    entries.push(readEntry(String(rest[index]), rest[index + 1], rest[index + 2]));
  }
  const name = String(state);
  const part = { entries, isHeld: name !== "d" };
  return { part, isRunning: STATES[name] === "running", leaseMs: Number(leaseMs) };
}

/**
 * Reads the answer to a write of the holder. @returns Whether a stop was requested @throws
 * {RecordingLost}
 */
export function readWritten(reply: unknown): boolean {
  const [written, isStopped] = toArray(reply).map(Number);
  if (written === 2) throw new RecordingsFull("The recording has too many entries");
  if (written !== 1) throw new RecordingLost("Another gateway writes the recording, or it is gone");
  return isStopped === 1;
}

/**
 * Reads the answer to a claim of a new recording.
 *
 * @returns Whether the call is repeated; `full` if there is no room; `undefined` if there is no new
 * recording
 */
export function readNew(reply: unknown): boolean | "full" | undefined {
  const [kind, isRestarted] = toArray(reply);
  if (String(kind) === "-") return "full";
  return String(kind) === "+" ? Number(isRestarted) === 1 : undefined;
}

/** Reads the answer to a takeover. @returns `undefined` if there was nothing to take over */
export function readTakenOver(
  reply: unknown,
): { readonly epoch: number; readonly startedAt: number; readonly keepMs: number } | undefined {
  const [epoch = 0, startedAt = 0, keepMs = 0] = toArray(reply).map(Number);
  return epoch === 0 ? undefined : { epoch, startedAt, keepMs };
}

function readEntry(entryId: string, epoch: unknown, sealed: unknown): SealedEntry {
  const [position, kind] = entryId.split("-").map(Number);
  if (position === undefined || !Buffer.isBuffer(sealed)) fail();
  const bytes = new Uint8Array(sealed.buffer as ArrayBuffer, sealed.byteOffset, sealed.byteLength);
  return {
    kind: kind as EntryKind,
    offset: position - 1,
    epoch: Number(String(epoch)),
    sealed: bytes,
  };
}

function toArray(reply: unknown): readonly unknown[] {
  return Array.isArray(reply) ? reply : fail();
}

function fail(): never {
  throw new Error("no recording");
}
