/**
 * A stand-in provider over real HTTP. The test writes its answers. It records the received calls.
 */
import { Buffer } from "node:buffer";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";

/** A received call. */
export interface Arrived {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  /** True if the caller closed the connection before the answer was complete. */
  isCut: boolean;
}

/** A stand-in provider that listens. */
export interface Provider {
  /** Base URL, with `/v1`. */
  readonly url: string;
  readonly calls: Arrived[];
  close(): Promise<void>;
}

/** Answers one call. */
export type Answering = (response: ServerResponse, call: Arrived) => unknown;

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** A plain chat completion, as providers send it. */
export const COMPLETION: string = JSON.stringify({
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1_700_000_000,
  model: "test-1",
  choices: [{ index: 0, message: { role: "assistant", content: "Hello" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
});

/** One event of a stream. */
export function chunk(content: string | null, reason: string | null = null, index = 0): string {
  const delta = content === null ? {} : { content };
  return `data: ${
    JSON.stringify({
      id: "chatcmpl-1",
      object: "chat.completion.chunk",
      created: 1_700_000_000,
      model: "test-1",
      choices: [{ index, delta, finish_reason: reason }],
    })
  }\n\n`;
}

/** A whole stream with the given words. */
export function stream(...words: string[]): string {
  return `${words.map((word) => chunk(word)).join("")}${chunk(null, "stop")}data: [DONE]\n\n`;
}

/** Answers with a plain chat completion. */
export function answerPlain(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/json" });
  response.end(COMPLETION);
}

/** Answers plainly, with 4 kB. */
export function answerLong(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/json", "content-length": 4000 });
  response.end(`"${"x".repeat(3998)}"`);
}

/** Answers with a stream of events. */
export function answerStream(response: ServerResponse, events: string): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(events);
}

/** Answers with a stream if the call requests one, otherwise plainly. */
export function answerAsAsked(response: ServerResponse, { body }: Pick<Arrived, "body">): void {
  if (body.includes('"stream":true')) answerStream(response, stream("Hello"));
  else answerPlain(response);
}

/**
 * @param answering The answers; a plain completion if left out
 * @param port A free loopback port if left out
 */
export async function startProvider(
  answering: Answering = answerPlain,
  port = 0,
): Promise<Provider> {
  const calls: Arrived[] = [];
  const server = createServer(async (request, response) => {
    try {
      const { method = "", url: path = "", headers } = request;
      const call: Arrived = { method, path, headers, body: await readAll(request), isCut: false };
      response.on("close", () => call.isCut = !response.writableFinished);
      calls.push(call);
      await answering(response, call);
    } catch {
      response.destroy();
    }
  });
  // By default Node closes a connection after 5 s without a call. On a busy machine this happens
  // while a Worker's fetch sends the next call on it, which is then lost.
  server.keepAliveTimeout = 60_000;
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const address = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${address.port}/v1`,
    calls,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
