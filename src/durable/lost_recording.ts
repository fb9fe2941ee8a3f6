/**
 * The end of a recording whose gateway has died: its next reader takes it over and closes it, so
 * that it looks complete only if it is.
 *
 * @module
 */
import type { StreamScanner } from "../dialects/dialect.ts";
import { ERRORS } from "../errors/codes.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { type AnswerEnd, type AnswerHead, decryptPart, writeContent } from "./answer_log.ts";
import type { EntryCipher } from "./recording_keys.ts";
import {
  ENTRY_KIND,
  type HeldRecording,
  type RecordingHolder,
  type RecordingStore,
  type StoredRecording,
} from "./recording_store.ts";

/** Creates the scanner of a recorded stream of events; `undefined` for any other answer. */
export type ToScanner = (operation: string, head: AnswerHead) => StreamScanner | undefined;

export interface LossParts {
  readonly store: RecordingStore;
  readonly clock: Clock;
  readonly toScanner: ToScanner;
}

/** The decrypted answer of a recording. */
interface DecryptedAnswer {
  readonly cipher: EntryCipher;
  readonly head: AnswerHead;
}

const LOST = "exchange_lost";
const NO_HOLDER: RecordingHolder = { onStop: () => {}, onLost: () => {}, onRead: () => {} };

/**
 * Closes a recording whose holder is gone. The error event of its dialect is added to a stream of
 * events, unless it had its end. Any other answer is marked as cut. Does nothing if another gateway
 * was faster. A recording that cannot be closed is discarded, because otherwise it would look like
 * a running one.
 *
 * @param recording The recording
 * @param opened Its answer; `undefined` if none had begun. It is then discarded
 */
export async function closeLost(
  recording: StoredRecording,
  opened: DecryptedAnswer | undefined,
  parts: LossParts,
): Promise<void> {
  const held = await parts.store.takeOver(recording.id, NO_HOLDER);
  if (held === undefined) return;
  if (opened === undefined) return held.discard();
  try {
    await close(held, recording, { ...parts, ...opened });
  } catch (error) {
    await held.discard();
    throw error;
  }
}

/**
 * Returns a recording, and closes it first if its holder is gone, so that callers that attach see
 * its end.
 *
 * @param recording The recording
 * @returns The recording; `undefined` if it is gone
 */
export async function findClosed(
  recording: StoredRecording,
  opened: DecryptedAnswer,
  parts: LossParts,
): Promise<StoredRecording | undefined> {
  if (recording.state !== "running" || recording.isHeld) return recording;
  await closeLost(recording, opened, parts);
  return await parts.store.find(recording.id);
}

/** Writes the end of a recording. */
async function close(
  held: HeldRecording,
  { id, facts }: StoredRecording,
  parts: LossParts & DecryptedAnswer,
): Promise<void> {
  const { store, toScanner, cipher, head } = parts;
  const scanner = toScanner(facts.operation, head);
  let length = 0;
  for (
    let part = await store.read(id, { offset: 0, waitMs: 0 });
    part !== undefined && part.entries.length > 0;
  ) {
    const next = await decryptPart(part, length, cipher);
    if ("end" in next) break;
    scanner?.push(next.bytes);
    length += next.bytes.byteLength;
    part = await store.read(id, { offset: length, waitMs: 0 });
  }
  scanner?.end();
  const hasError = scanner?.hasError === true;
  const isWhole = scanner?.hasLastEvent === true && !hasError;
  const lacksEnd = !isWhole && !hasError;
  if (scanner !== undefined && lacksEnd) {
    // Ends any open line and event, because readers can have more of the answer than the store.
    const event = "\n\n" + scanner.toErrorEvent(new GatewayError(LOST));
    const bytes = new TextEncoder().encode(event);
    await held.append(
      await cipher.seal({ kind: ENTRY_KIND.bytes, offset: length, epoch: held.epoch }, bytes),
    );
    length += bytes.byteLength;
  }
  const content = writeContent({
    length,
    isCut: lacksEnd && scanner?.clientsReadErrorEvent !== true,
    ...toOutcome({ isWhole, hasError }),
  });
  const end = await cipher.seal(
    { kind: ENTRY_KIND.end, offset: length, epoch: held.epoch },
    content,
  );
  await held.end(end, isWhole ? "complete" : "broken");
}

/** Returns the outcome of a lost exchange, as if its gateway had settled it. */
function toOutcome(
  { isWhole, hasError }: { isWhole: boolean; hasError: boolean },
): Pick<AnswerEnd, "outcome" | "code"> {
  if (isWhole) return { outcome: "ok" };
  return hasError ? { outcome: "upstream_error" } : { outcome: ERRORS[LOST].outcome, code: LOST };
}
