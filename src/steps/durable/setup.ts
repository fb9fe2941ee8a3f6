/**
 * Parts of durable exchanges: their store, and the dialects of their answers.
 *
 * @module
 */
import type { Config } from "../../config/config.ts";
import { mayRecord, type RecordingSettings } from "../../config/durable.ts";
import type { StreamScanner } from "../../dialects/dialect.ts";
import { type AnswerHead, isEvents } from "../../durable/answer_log.ts";
import { DurableExchanges } from "../../durable/durable_exchanges.ts";
import type { RecordingStore } from "../../durable/recording_store.ts";
import { MemoryRecordings } from "../../durable/recording_store_memory.ts";
import type { Clock } from "../../exchange/clock.ts";
import { OPERATIONS } from "../../operations/table.ts";

/**
 * Creates the scanner of a recorded answer. It finds the end of an answer whose gateway has died.
 *
 * @returns The scanner; `undefined` for an answer that is not a stream of events
 */
function toScanner(name: string, head: AnswerHead): StreamScanner | undefined {
  if (!isEvents(head)) return undefined;
  const operation = OPERATIONS.find((operation) => operation.name === name);
  return operation?.dialect.createScanner(head.answers ?? 1);
}

/**
 * Creates the durable exchanges of a gateway.
 *
 * @param options `isLocal: false` if a request cannot use objects that another request opened
 */
export function createDurableExchanges(
  store: RecordingStore,
  clock: Clock,
  options: { readonly isLocal?: boolean } = {},
): DurableExchanges {
  return new DurableExchanges({ store, clock, toScanner, ...options });
}

/**
 * Creates durable exchanges in memory, for a gateway that was created without any.
 *
 * @returns The durable exchanges; `undefined` if no call can be recorded
 */
export function embedDurable(
  config: RecordingSettings & Pick<Config, "limits">,
  clock: Clock,
): DurableExchanges | undefined {
  const { limits } = config;
  if (!mayRecord(config)) return undefined;
  return createDurableExchanges(
    new MemoryRecordings({ clock, maxBytes: limits.maxRecordingsBytes }),
    clock,
  );
}
