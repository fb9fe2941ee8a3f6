/** A provider in memory, below the gateway's own HTTP/1 client, and the calls of a caller. */
import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers";
import type { Dial } from "../../../src/upstream/http1/connection.ts";

/** Kinds of calls. */
export type Kind = "plain" | "stream";

export const KEY = "a-gateway-key-of-mine";
const EVENTS = 20;

const event = (choice: string): string =>
  `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",` +
  `"choices":[${choice}]}\n\n`;
const FIRST_EVENTS = Array.from(
  { length: EVENTS - 1 },
  () => event('{"index":0,"delta":{"content":" token"},"finish_reason":null}'),
);
const LAST_EVENTS = event('{"index":0,"delta":{},"finish_reason":"stop"}') + "data: [DONE]\n\n";
const STREAM = [...FIRST_EVENTS, LAST_EVENTS];
const PLAIN = JSON.stringify({
  id: "c",
  object: "chat.completion",
  created: 1,
  model: "m",
  choices: [{
    index: 0,
    message: { role: "assistant", content: "Hello there" },
    finish_reason: "stop",
  }],
  usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 },
});

/** Body of the answer of each kind, in the pieces that arrive one by one. */
export const PIECES: Readonly<Record<Kind, readonly Uint8Array<ArrayBuffer>[]>> = {
  plain: [new TextEncoder().encode(PLAIN)],
  stream: STREAM.map((text) => new TextEncoder().encode(text)),
};

/** Gives each piece in its own turn of the event loop, as a socket does, and then the end. */
export function deliver<Piece>(
  pieces: readonly Piece[],
  give: (piece: Piece) => void,
  end: () => void = () => {},
): void {
  const next = (index: number) => {
    const piece = pieces[index];
    if (piece === undefined) return end();
    give(piece);
    setImmediate(next, index + 1);
  };
  setImmediate(next, 0);
}

const toChunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;

/** Answers of each kind, in the pieces of the connection. */
const ANSWERS: Readonly<Record<Kind, readonly Buffer[]>> = {
  plain: [Buffer.from(
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: r\r\n" +
      `content-length: ${PLAIN.length}\r\n\r\n${PLAIN}`,
  )],
  stream: STREAM.map((text, index) => {
    const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" +
      "x-request-id: r\r\ntransfer-encoding: chunked\r\n\r\n";
    const isLast = index === STREAM.length - 1;
    return Buffer.from((index === 0 ? head : "") + toChunk(text) + (isLast ? "0\r\n\r\n" : ""));
  }),
};

/** Makes connections without a network, on which every request is answered. */
export const dialIn = (kind: Kind): Dial => (_url, events) => {
  queueMicrotask(() => events.opened());
  return {
    isAlive: true,
    isFlushed: true,
    write: () => deliver(ANSWERS[kind], (piece) => events.received(piece)),
    pause() {},
    resume() {},
    ref() {},
    unref() {},
    destroy() {},
  };
};

/** Makes the request of one call, as a server of the runtime does. */
export function toRequest(kind: Kind): Request {
  const body = JSON.stringify({
    model: "m",
    stream: kind === "stream",
    messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Say hello" }],
  });
  return new Request("http://localhost/v1/chat/completions", {
    method: "POST",
    headers: {
      "host": "localhost",
      "authorization": "Bearer sk-a-key-at-the-provider",
      "gateway-auth": `Bearer ${KEY}`,
      "content-type": "application/json",
      "content-length": String(body.length),
      "user-agent": "ladder",
      "accept": "*/*",
    },
    body,
  });
}

/** Reads an answer to its end. @returns Number of its bytes */
export async function readAnswer(response: Response): Promise<number> {
  if (response.status !== 200) throw new Error(await response.text());
  let byteLength = 0;
  const reader = response.body?.getReader();
  while (true) {
    const { done, value } = await reader?.read() ?? { done: true };
    if (done || value === undefined) return byteLength;
    byteLength += value.byteLength;
  }
}
