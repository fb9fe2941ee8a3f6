/** Frames of `application/vnd.amazon.eventstream`, as AWS sends them. */
import { crc32 } from "node:zlib";

/** Content type of a stream of frames. */
export const FRAMES = "application/vnd.amazon.eventstream";
const utf8 = new TextEncoder();

/** Makes a frame: prelude, headers, payload, checksum. */
export function frame(type: string, data: unknown, messageType = "event"): Uint8Array {
  const payload = utf8.encode(JSON.stringify(data));
  const fields = {
    [messageType === "event" ? ":event-type" : ":exception-type"]: type,
    ":content-type": "application/json",
    ":message-type": messageType,
  };
  const headers = Object.entries(fields).flatMap(([name, value]) => [
    ...[name.length, ...utf8.encode(name), 7, 0, value.length],
    ...utf8.encode(value),
  ]);
  const bytes = new Uint8Array(16 + headers.length + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, bytes.length);
  view.setUint32(4, headers.length);
  view.setUint32(8, crc32(bytes.subarray(0, 8)));
  bytes.set(headers, 12);
  bytes.set(payload, 12 + headers.length);
  view.setUint32(bytes.length - 4, crc32(bytes.subarray(0, -4)));
  return bytes;
}

/** Joins frames. */
export const join = (...parts: readonly Uint8Array[]): Uint8Array =>
  new Uint8Array(parts.flatMap((each) => [...each]));
