/**
 * Messages about recordings between processes: JSON, with sealed bytes in base64.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { SealedEntry, StoredRecording } from "../../durable/recording_store.ts";
import type { RecordingMessage, RecordingReply } from "../../durable/recording_server.ts";

/** A value whose sealed bytes are in base64. */
export type Packed<Value> = Value extends Uint8Array ? string
  : Value extends object ? { readonly [Name in keyof Value]: Packed<Value[Name]> }
  : Value;

/** Messages of a worker, each with the number of its question. */
export type RecordingQuestions =
  readonly (readonly [question: number, message: Packed<RecordingMessage>])[];

/** Replies to questions of a worker; `null` to a message that failed. */
export type RecordingReplies =
  readonly (readonly [question: number, reply: Packed<RecordingReply> | null])[];

/** Converts a message to a form that can be sent to a process. */
export function packMessage(message: RecordingMessage): Packed<RecordingMessage> {
  return message.type === "append" ? { ...message, entry: packEntry(message.entry) } : message;
}

/** Converts the result of {@link packMessage} to a message. */
export function unpackMessage(message: Packed<RecordingMessage>): RecordingMessage {
  return message.type === "append" ? { ...message, entry: unpackEntry(message.entry) } : message;
}

/** Converts a reply to a form that can be sent to a process. */
export function packReply(reply: RecordingReply): Packed<RecordingReply> {
  const { found, part, recordings, ...rest } = reply;
  return {
    ...rest,
    ...(found && { found: packRecording(found) }),
    ...(part && { part: { ...part, entries: part.entries.map(packEntry) } }),
    ...(recordings && { recordings: recordings.map(packRecording) }),
  };
}

/** Converts the result of {@link packReply} to a reply. */
export function unpackReply(reply: Packed<RecordingReply>): RecordingReply {
  const { found, part, recordings, ...rest } = reply;
  return {
    ...rest,
    ...(found && { found: unpackRecording(found) }),
    ...(part && { part: { ...part, entries: part.entries.map(unpackEntry) } }),
    ...(recordings && { recordings: recordings.map(unpackRecording) }),
  };
}

function packEntry({ sealed, ...place }: SealedEntry): Packed<SealedEntry> {
  return {
    ...place,
    sealed: Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength).toString("base64"),
  };
}

function unpackEntry({ sealed, ...place }: Packed<SealedEntry>): SealedEntry {
  return { ...place, sealed: new Uint8Array(Buffer.from(sealed, "base64")) };
}

function packRecording({ head, ...rest }: StoredRecording): Packed<StoredRecording> {
  return { ...rest, head: head && packEntry(head) };
}

function unpackRecording({ head, ...rest }: Packed<StoredRecording>): StoredRecording {
  return { ...rest, head: head && unpackEntry(head) };
}
