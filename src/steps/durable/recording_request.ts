/**
 * Requests at the address of a recording, which the answer of its call states: callers read the
 * recorded answer, ask for its description, or stop its call.
 *
 * @module
 */
import { isEvents } from "../../durable/answer_log.ts";
import { EventIds } from "../../durable/reads/event_ids.ts";
import { toStreamRead } from "../../durable/reads/stream_read.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { type GatewayResponse, isWhole } from "../../http/message.ts";
import { toQuery } from "../../operations/router.ts";
import type { Flow } from "../flow.ts";
import { addressOf, answerAttached, answerWhole } from "./attached_answer.ts";
import { answerStream, type Attach, describeStream } from "./protocol_answer.ts";
import { ownerKeysOf } from "./wanted_recording.ts";

/**
 * Headers of all answers at the address of a recording. Only its owner can read them, offsets count
 * the bytes unchanged, and no page can embed them.
 */
const PRIVATE = {
  "cache-control": "no-store, no-transform",
  "x-content-type-options": "nosniff",
  "cross-origin-resource-policy": "same-origin",
};

/**
 * Answers a request for the answer of a recorded call: attaches to it, describes it, or stops it.
 *
 * @throws {GatewayError} `exchange_not_found`, `exchange_expired`, `exchange_broken`,
 * `invalid_offset`, `invalid_read`, `recordings_unavailable`
 */
export async function answerRecordingRequest(flow: Flow): Promise<GatewayResponse> {
  const { request, exchange, operation, gateway: { durable, limits: { writeStallMs } } } = flow;
  const { path, method } = operation;
  const { url, headers, method: sent } = request;
  exchange.ownHeaders = { ...exchange.ownHeaders, ...PRIVATE };
  if (durable === undefined) throw new GatewayError("not_found");
  const keys = ownerKeysOf(flow);
  const id = path.slice(path.lastIndexOf("/") + 1);
  if (method === "DELETE") {
    await durable.stop(id, keys);
    return answerWhole(204, {}, exchange);
  }
  const read = toStreamRead(toQuery(url), headers.get("last-event-id"));
  const { signal } = exchange;
  if (sent === "HEAD") {
    const answer = await durable.describe(id, keys, signal);
    return answerWhole(200, {
      ...describeStream(answer),
      ...addressOf(id, answer.expiresAt, request),
    }, exchange);
  }
  const attach: Attach = (offset) => durable.attach(id, { keys, offset, signal, writeStallMs });
  const attachment = await attach(read.offset);
  if (read.mode !== "native") {
    const answer = await answerStream(read, { attachment, attach }, flow);
    // Only the first poll of a reader counts as an attachment, because later polls have its cursor.
    // A snapshot without bytes does not count.
    if (read.mode === "long-poll" ? read.cursor === 0 : !isWhole(answer.body)) {
      durable.counts.attached.resume++;
    }
    return answer;
  }
  const { isEnded, isCut, length, reader, head } = attachment;
  const hasAll = isEnded && reader.offset === length();
  const isLastRead = isCut || read.isReconnect;
  if (hasAll && isLastRead) {
    reader.cancel();
    // If the stream simply broke off, the reader would expect more to follow.
    if (isCut) throw new GatewayError("exchange_broken");
    // After any other answer, an EventSource would reconnect forever.
    return answerWhole(204, {}, exchange);
  }
  durable.counts.attached.resume++;
  const answer = answerAttached(attachment, flow);
  return read.hasIds && isEvents(head) ? { ...answer, body: new EventIds(reader) } : answer;
}
