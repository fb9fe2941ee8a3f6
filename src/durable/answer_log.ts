/**
 * Content of a recording's entries as plaintext: the answer's head, its bytes, and its end.
 *
 * @module
 */
import type { ErrorCode } from "../errors/codes.ts";
import type { Outcome } from "../errors/outcomes.ts";
import { joinChunks } from "../http/read_all.ts";
import type { EntryCipher } from "./recording_keys.ts";
import { ENTRY_KIND, FIRST_EPOCH, type RecordingPart } from "./recording_store.ts";

/** Head of a recorded answer. */
export interface AnswerHead {
  readonly status: number;
  /** Headers with lower-case names, without headers that belong to a single exchange. */
  readonly headers: Readonly<Record<string, string>>;
  /** The number of answers in it; 1 if left out. */
  readonly answers?: number;
}

/** End of a recorded answer. */
export interface AnswerEnd {
  /** Number of bytes of the answer's body. */
  readonly length: number;
  /**
   * True if the body broke off and no error event could be added. Its readers' connections break
   * too.
   */
  readonly isCut: boolean;
  /** Outcome of the exchange. */
  readonly outcome: Outcome;
  /** Code of its error, if the gateway made one. */
  readonly code?: ErrorCode | undefined;
}

/** The next part of an answer: bytes, or its end. */
export type AnswerPart = AnswerBytes | { readonly end: AnswerEnd };

/** The next bytes of an answer. */
export interface AnswerBytes {
  readonly bytes: Uint8Array;
  /** Offset after them. Default: the reader's offset plus their number. */
  readonly next?: number;
}

/** Returns whether an answer is a stream of events. */
export function isEvents({ headers }: AnswerHead): boolean {
  return headers["content-type"]?.toLowerCase().startsWith("text/event-stream") === true;
}

/** Writes the content of an entry. */
export function writeContent(content: AnswerHead | AnswerEnd): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(content));
}

/** Reads the content of an entry that {@link writeContent} wrote. */
export function readContent<Content extends AnswerHead | AnswerEnd>(bytes: Uint8Array): Content {
  return JSON.parse(new TextDecoder().decode(bytes));
}

/**
 * Opens the entries of a part, which has at least one.
 *
 * A gateway that takes a recording over adds at most one event, which reports that the answer was
 * lost. Readers of the gateway that died can have more of the answer than the store. Their offset
 * is then within that event, and they receive all of it.
 *
 * @returns The bytes from the offset on, or the end if the offset is at the end
 * @throws {Error} If a byte between is missing, or an entry was changed since its writer sealed it
 */
export async function decryptPart(
  { entries }: RecordingPart,
  offset: number,
  cipher: EntryCipher,
): Promise<AnswerPart> {
  const chunks: Uint8Array[] = [];
  let reached = offset;
  for (const entry of entries) {
    if (entry.kind === ENTRY_KIND.head) continue;
    const content = await cipher.open(entry);
    if (entry.kind === ENTRY_KIND.end) {
      if (chunks.length > 0) break;
      const end = readContent<AnswerEnd>(content);
      if (end.length !== offset) throw new Error("The recording has a gap before its end");
      return { end };
    }
    if (entry.offset > reached) throw new Error("The recording has a gap");
    const next = entry.offset + content.byteLength;
    if (next <= reached) continue;
    chunks.push(entry.epoch > FIRST_EPOCH ? content : content.subarray(reached - entry.offset));
    reached = next;
  }
  if (chunks.length === 0) throw new Error("The recording has nothing at this offset");
  return { bytes: joinChunks(chunks), next: reached };
}
