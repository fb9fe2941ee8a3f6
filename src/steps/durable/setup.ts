/**
 * Parts of durable exchanges: their store, and the dialects of their answers.
 *
 * @module
 */
import type { Config } from "../../config/config.ts";
import { mayRecord, type RecordingSettings } from "../../config/durable.ts";
import type { StreamScanner } from "../../dialects/dialect.ts";
import type { AnswerHead } from "../../durable/answer_log.ts";
import { DurableExchanges } from "../../durable/durable_exchanges.ts";
import type { RecordingStore } from "../../durable/recording_store.ts";
import { MemoryRecordings } from "../../durable/recording_store_memory.ts";
import type { Clock } from "../../exchange/clock.ts";
import { OPERATIONS } from "../../operations/table.ts";

/**
 * Creates the scanner of a recorded answer, for the end of one whose gateway has died.
 *
 * @param name Name of the operation
 * @param head Head of the answer
 * @returns The scanner; `undefined` for an answer that is no stream of events
 */
function toScanner(name: string, { headers, answers = 1 }: AnswerHead): StreamScanner | undefined {
  if (!(headers["content-type"] ?? "").toLowerCase().startsWith("text/event-stream")) {
    return undefined;
  }
  return OPERATIONS.find((operation) => operation.name === name)?.dialect.createScanner(answers);
}

/**
 * Creates the durable exchanges of a gateway.
 *
 * @param store Their store
 * @param clock Source of their times
 * @param options `isLocal: false` where no request may use what another one has opened
 */
export function createDurableExchanges(
  store: RecordingStore,
  clock: Clock,
  options: { readonly isLocal?: boolean } = {},
): DurableExchanges {
  return new DurableExchanges({ store, clock, toScanner, ...options });
}

/**
 * Creates the durable exchanges of a gateway that is given none: in memory.
 *
 * @param config The configuration, and the source of its keys
 * @param clock Source of their times
 * @returns They; `undefined` where no call can be recorded
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
