/**
 * Recorded answers as callers receive them.
 *
 * @module
 */
import type { AnswerEnd, AnswerHead } from "./answer_log.ts";
import type { OwnerKeys } from "./recording_keys.ts";
import type { AnswerReader, AnswerSource } from "./recording_reader.ts";
import type { RecordingFacts } from "./recording_store.ts";

/** A recorded answer. */
export interface RecordedAnswer {
  readonly id: string;
  readonly facts: RecordingFacts;
  readonly head: AnswerHead;
  /**
   * Number of bytes of its body. For an answer that runs at another gateway, the stored number when
   * it was found.
   */
  readonly length: () => number;
  /** True if it had ended. */
  readonly isEnded: boolean;
  /** True if it has ended incompletely and without an error event. */
  readonly isCut: boolean;
  /** True if the answer was complete before. */
  readonly isComplete: boolean;
  /** True if its gateway died. Its readers can have received more bytes than were stored. */
  readonly isLost: boolean;
  /** Wall clock before which it does not expire. Milliseconds since 1970. */
  readonly expiresAt: number;
}

/** A recorded answer to which a caller is attached. */
export interface Attachment extends RecordedAnswer {
  readonly reader: AnswerReader;
}

/** Options of an attachment. */
export interface AttachOptions {
  readonly keys: OwnerKeys;
  /** Offset of the first byte to read; `now` for the current end. */
  readonly offset: number | "now";
  /** The longest time in which the caller reads none of the available bytes. Milliseconds. */
  readonly writeStallMs: number;
  /** Aborted when the caller leaves. */
  readonly signal?: AbortSignal | undefined;
}

/** Reads the end of an answer. */
export async function readEnd(
  source: AnswerSource,
  length: number,
): Promise<AnswerEnd | undefined> {
  const part = source.peek(length) ?? await source.read(length, new AbortController().signal);
  return typeof part === "object" && "end" in part ? part.end : undefined;
}
