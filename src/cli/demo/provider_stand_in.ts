/**
 * A stand-in for a model provider, only for the demo: it implements chat completions and gives
 * every caller the same answer. `serve` never uses it.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Pause between two words of a stream, so that a person can see them arrive. Milliseconds. */
const WORD_MS = 60;

/** Options of a stand-in. */
export interface StandInOptions {
  /** The only model it has. */
  readonly model: string;
  /** The only key it accepts. */
  readonly key: string;
  /** Words of its answer. */
  readonly words: readonly string[];
}

/** A stand-in that listens. */
export interface StandIn {
  /** Base URL, with `/v1`. */
  readonly url: string;
  /** Names of the last call's headers. */
  lastHeaders(): readonly string[];
  /** Stops it. */
  close(): void;
}

async function readText(request: IncomingMessage): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function sendJson(response: ServerResponse, status: number, content: unknown): void {
  response.writeHead(status, { "content-type": "application/json", "x-request-id": "stand-in" });
  response.end(JSON.stringify(content));
}

async function sendWords(
  response: ServerResponse,
  { model, words }: StandInOptions,
): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream", "x-request-id": "stand-in" });
  const send = (delta: unknown, reason: string | null = null) =>
    response.write(`data: ${
      JSON.stringify({
        id: "chatcmpl-demo",
        object: "chat.completion.chunk",
        created: Math.floor(Date.now() / 1000),
        model,
        choices: [{ index: 0, delta, finish_reason: reason }],
      })
    }\n\n`);
  send({ role: "assistant", content: "" });
  for (const word of words) {
    if (response.destroyed) return;
    send({ content: `${word} ` });
    await new Promise((resolve) => setTimeout(resolve, WORD_MS));
  }
  send({}, "stop");
  response.end("data: [DONE]\n\n");
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  options: StandInOptions,
): Promise<void> {
  if (request.headers.authorization !== `Bearer ${options.key}`) {
    const message = `Incorrect API key provided. This demo provider accepts only ${options.key}.`;
    return sendJson(response, 401, {
      error: { message, type: "invalid_request_error", param: null, code: "invalid_api_key" },
    });
  }
  if (request.url === "/v1/models") {
    return sendJson(response, 200, {
      object: "list",
      data: [{ id: options.model, object: "model" }],
    });
  }
  const { stream } = JSON.parse(await readText(request));
  if (stream === true) return await sendWords(response, options);
  const { model, words } = options;
  sendJson(response, 200, {
    id: "chatcmpl-demo",
    object: "chat.completion",
    created: Math.floor(Date.now() / 1000),
    model,
    choices: [{
      index: 0,
      message: { role: "assistant", content: words.join(" ") },
      finish_reason: "stop",
    }],
    usage: { prompt_tokens: 4, completion_tokens: words.length, total_tokens: 4 + words.length },
  });
}

/** Starts a stand-in on a free port of this machine. */
export async function startStandIn(options: StandInOptions): Promise<StandIn> {
  let headers: readonly string[] = [];
  const server = createServer((request, response) => {
    headers = Object.keys(request.headers);
    answer(request, response, options).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // listening on TCP: neither null nor a path
  return {
    url: `http://127.0.0.1:${port}/v1`,
    lastHeaders: () => headers,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
