/**
 * Recorded answers by the read side of the durable-streams protocol: the recorded part, the next
 * part, or events.
 *
 * @module
 */
import { type AnswerHead, isEvents } from "../../durable/answer_log.ts";
import type { Attachment, RecordedAnswer } from "../../durable/attachment.ts";
import { type EventForm, ProtocolEvents } from "../../durable/reads/protocol_events.ts";
import { SnapshotBody } from "../../durable/reads/snapshot_body.ts";
import {
  matchesTag,
  type StreamRead,
  toStreamCursor,
  toToken,
  type WantedOffset,
} from "../../durable/reads/stream_read.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { GatewayResponse } from "../../http/message.ts";
import type { Flow } from "../flow.ts";
import { addressOf, answerAttached, answerWhole } from "./attached_answer.ts";

/** Attaches the caller to the answer at an offset. */
export type Attach = (offset: WantedOffset) => Promise<Attachment>;

/** A caller's attachment to an answer, and the function that attaches it elsewhere. */
interface Attached {
  readonly attachment: Attachment;
  readonly attach: Attach;
}

/**
 * Content type for a recorded stream of events in a plain read. The protocol's client would read
 * `text/event-stream` as events of the protocol itself.
 */
const EVENTS_AS_TEXT = "text/plain; charset=utf-8";

/**
 * Answers a read by the protocol.
 *
 * @throws {GatewayError} `exchange_broken` at the end of an answer that is not complete,
 * `invalid_offset`
 */
export async function answerStream(
  read: StreamRead,
  attached: Attached,
  flow: Flow,
): Promise<GatewayResponse> {
  const offset = startOf(read, attached.attachment);
  let attachment = await atOffset(offset, attached);
  const isWaiting = read.mode === "long-poll" && !attachment.isEnded &&
    offset >= tailOf(attachment);
  if (isWaiting) attachment = await waitForMore({ ...attached, attachment }, read.waitMs, flow);
  if (attachment.isCut && tailOf(attachment) <= offset) {
    attachment.reader.cancel();
    throw new GatewayError("exchange_broken");
  }
  const readable = { ...attachment, head: { ...attachment.head, status: 200 } };
  return read.mode === "sse"
    ? answerEvents(read, readable, flow)
    : answerSnapshot(read, readable, flow);
}

/** Answers with the part that is recorded so far. */
function answerSnapshot(
  { mode, offset, cursor }: StreamRead,
  attachment: Attachment,
  flow: Flow,
): GatewayResponse {
  const { request, exchange, gateway: { clock } } = flow;
  const { reader, head, isCut, id, expiresAt } = attachment;
  const to = Math.max(tailOf(attachment), reader.offset);
  const isClosed = isStreamClosed(attachment);
  const tag = `"${id}:${reader.offset}:${to}${isClosed ? ":closed" : ""}"`;
  const own: Record<string, string> = {
    ...(isEvents(head) && { "content-type": EVENTS_AS_TEXT }),
    "stream-next-offset": toToken(to),
    ...(!isCut && { "stream-up-to-date": "true" }),
    ...(isClosed && { "stream-closed": "true" }),
    ...(mode === "long-poll"
      ? { "stream-cursor": toStreamCursor(clock.now(), cursor) }
      : offset !== "now" && { etag: tag }),
  };
  const isEmpty = to === reader.offset || (offset === "now" && mode === "catch-up");
  const isKnown = own.etag !== undefined &&
    matchesTag(request.headers.get("if-none-match"), own.etag);
  const isJson = formOf(head) === "json";
  if (isEmpty || isKnown) {
    reader.cancel();
    if (isKnown) return answerWhole(304, own, exchange);
    if (mode === "long-poll") return answerWhole(204, own, exchange);
    const headers = { ...head.headers, ...own, ...addressOf(id, expiresAt, request) };
    return answerWhole(200, headers, exchange, isJson ? "[]" : null);
  }
  const onComplete = () => {
    exchange.bytesOut = reader.bytesOut;
    exchange.settle({ outcome: "ok" });
  };
  const body = new SnapshotBody({
    reader,
    to,
    around: isJson ? ["[", "]"] : undefined,
    onComplete,
  });
  return { ...answerAttached(attachment, flow, own), body };
}

/** Answers with events of the protocol. */
function answerEvents(
  { cursor }: StreamRead,
  attachment: Attachment,
  flow: Flow,
): GatewayResponse {
  const { head, reader, length, isEnded } = attachment;
  const form = formOf(head);
  const { exchange } = flow;
  // Usual for events, in addition to the headers of all answers here.
  exchange.ownHeaders = {
    ...exchange.ownHeaders,
    "cache-control": "no-store, no-cache, no-transform",
  };
  const answer = answerAttached(attachment, flow, {
    "content-type": "text/event-stream",
    "x-accel-buffering": "no", // turns off buffering in nginx
    ...(form === "base64" && { "stream-sse-data-encoding": "base64" }),
  });
  const options = {
    reader,
    form,
    length,
    isEnded,
    cursor: toStreamCursor(flow.gateway.clock.now(), cursor),
  };
  return { ...answer, body: new ProtocolEvents(options) };
}

/** Returns the headers that describe a recorded answer. */
export function describeStream(answer: RecordedAnswer): Record<string, string> {
  return {
    ...answer.head.headers,
    "stream-next-offset": toToken(tailOf(answer)),
    ...(isStreamClosed(answer) && { "stream-closed": "true" }),
  };
}

/** Returns whether an answer has ended in the sense of the protocol. A cut answer never ends. */
function isStreamClosed({ isEnded, isCut }: RecordedAnswer): boolean {
  return isEnded && !isCut;
}

/**
 * Returns the offset after the part that can be read now. JSON is one message, which is sent only
 * when it is complete.
 */
function tailOf(answer: RecordedAnswer): number {
  const isPartOfJson = formOf(answer.head) === "json" && !isStreamClosed(answer);
  return isPartOfJson ? 0 : answer.length();
}

/**
 * Returns the offset from which an answer is read. @throws {GatewayError} `invalid_offset` within a
 * message
 */
function startOf({ offset }: StreamRead, attachment: Attachment): number {
  const { head, reader } = attachment;
  if (formOf(head) !== "json") return reader.offset;
  const tail = tailOf(attachment);
  if (offset === "now") return tail;
  if (offset === tail || offset === 0) return offset;
  reader.cancel();
  throw new GatewayError("invalid_offset");
}

/** Attaches the caller at an offset, if it is not there already. */
async function atOffset(offset: number, { attachment, attach }: Attached): Promise<Attachment> {
  return attachment.reader.offset === offset
    ? attachment
    : await moveTo(offset, { attachment, attach });
}

/**
 * Attaches the caller at another offset, and only then detaches it from the former one, so that the
 * recording always has a reader.
 */
async function moveTo(offset: number, { attachment, attach }: Attached): Promise<Attachment> {
  try {
    return await attach(offset);
  } finally {
    attachment.reader.cancel();
  }
}

/**
 * Waits until there is more, the answer has ended, or `waitMs` milliseconds have passed. The caller
 * has read everything so far.
 *
 * @returns The caller's attachment at the end of the wait
 * @throws The reason why the exchange was aborted
 */
async function waitForMore(
  attached: Attached,
  waitMs: number,
  { exchange, gateway }: Flow,
): Promise<Attachment> {
  const { reader, head } = attached.attachment;
  const { offset } = reader;
  const isJson = formOf(head) === "json";
  await new Promise<void>((resolve) => {
    const wake = () => {
      cancelTimer();
      forgetAbort();
      resolve();
    };
    const cancelTimer = gateway.clock.timer(waitMs, wake, { isBackground: true });
    const forgetAbort = exchange.onAbort(wake);
    const write = () => {
      if (!isJson) wake();
      return isJson; // a message is complete when its answer has ended
    };
    reader.pushTo({ write, end: wake, fail: wake });
  });
  if (exchange.reason === undefined) return moveTo(offset, attached);
  reader.cancel();
  throw exchange.reason;
}

/** Returns the encoding of an answer within events: text only if it is UTF-8. */
function formOf({ headers }: AnswerHead): EventForm {
  const parts = (headers["content-type"] ?? "").toLowerCase().split(";").map((part) => part.trim());
  const [type = "", ...parameters] = parts;
  if (type === "application/json") return "json";
  const stated = parameters.find((parameter) => parameter.startsWith("charset="));
  const charset = stated?.slice(8).replaceAll('"', "") ?? "utf-8";
  const isUtf8 = charset === "utf-8" || charset === "us-ascii";
  return type.startsWith("text/") && isUtf8 ? "text" : "base64";
}
