/**
 * The end of a recording whose gateway has died: whoever reads it next takes it over and closes it, so that it never
 * looks complete unless it is.
 *
 * @module
 */
import type { StreamScanner } from "../dialects/dialect.ts";
import { ERRORS, GatewayError } from "../errors/gateway_error.ts";
import type { Clock } from "../exchange/clock.ts";
import { type AnswerEnd, type AnswerHead, openPart, writeContent } from "./answer_log.ts";
import type { EntryCipher } from "./recording_keys.ts";
import { ENTRY_KIND, type RecordingHolder, type RecordingStore, type StoredRecording } from "./recording_store.ts";

/** Creates the scanner of a recorded stream of events; `undefined` for any other answer. */
export type ToScanner = (operation: string, head: AnswerHead) => StreamScanner | undefined;

/** Parts of {@link closeLost}. */
export interface LossParts {
  readonly store: RecordingStore;
  readonly clock: Clock;
  readonly toScanner: ToScanner;
}

/** The opened answer of a recording. */
interface OpenedAnswer {
  readonly cipher: EntryCipher;
  readonly head: AnswerHead;
}

const LOST = "exchange_lost";
const NOBODY: RecordingHolder = { onStop: () => {}, onLost: () => {}, onRead: () => {} };

/**
 * Closes a recording whose holder is gone. A stream of events gets the error event of its dialect, unless it had its end;
 * another answer is cut. Does nothing if another gateway was faster.
 *
 * @param recording The recording
 * @param opened Its answer; `undefined` if none had begun: then it is discarded
 * @param parts The store, and the dialects
 */
export async function closeLost(
  { id, facts }: StoredRecording,
  opened: OpenedAnswer | undefined,
  { store, toScanner }: LossParts,
): Promise<void> {
  const held = await store.takeOver(id, NOBODY);
  if (held === undefined) return;
  if (opened === undefined) return held.discard();
  const { cipher, head } = opened;
  const scanner = toScanner(facts.operation, head);
  let length = 0;
  for (let part = await store.read(id, { offset: 0, waitMs: 0 }); part !== undefined && part.entries.length > 0;) {
    const next = await openPart(part, length, cipher);
    if ("end" in next || next.bytes.byteLength === 0) break;
    scanner?.push(next.bytes);
    length += next.bytes.byteLength;
    part = await store.read(id, { offset: length, waitMs: 0 });
  }
  scanner?.end();
  const isComplete = scanner?.isDone === true;
  if (scanner !== undefined && !isComplete) {
    const event = scanner.boundary + scanner.toErrorEvent(new GatewayError(LOST));
    const bytes = new TextEncoder().encode(event);
    await held.append(await cipher.seal({ kind: ENTRY_KIND.bytes, offset: length, epoch: held.epoch }, bytes));
    length += bytes.byteLength;
  }
  const outcome: Pick<AnswerEnd, "outcome" | "code"> = isComplete
    ? { outcome: "ok" }
    : { outcome: ERRORS[LOST].outcome, code: LOST };
  const content = writeContent({ length, isCut: scanner === undefined, ...outcome });
  const end = await cipher.seal({ kind: ENTRY_KIND.end, offset: length, epoch: held.epoch }, content);
  await held.end(end, isComplete ? "complete" : "broken");
}
