/**
 * A provider that behaves as each check of correctness needs it, and records the calls that reach
 * it. The body's `user` names the scene.
 */
import { Buffer } from "node:buffer";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** The behaviours of the provider. */
export type Scene =
  | "plain"
  | "stream"
  | "cut"
  | "ended"
  | "cut-plain"
  | "quiet"
  | "silent"
  | "slow";

/** Usage in a plain answer: the input tokens, and the most output tokens that the call can have. */
export const STATED_TOKENS = { input: 30, output: 100 } as const;
/** Duration of a slow answer in milliseconds. All calls of a check are open by then. */
const SLOW_MS = 500;

/**
 * Whitespace, escapes, a long number and a duplicate name: a parser that rewrites them changes
 * them.
 */
const PLAIN_ANSWER = Buffer.from(
  '{"id":"chatcmpl-1", "object":"chat.completion" ,"created":1700000000,"model":"stand-in","seed":12345678901234567890,' +
    '"x":1.0,"x":2.50,"choices":[{"index":0,"message":{"role":"assistant","content":"caf\\u00e9 \\/ café"},' +
    '"finish_reason":"stop"}],\n"usage":{"prompt_tokens":' +
    `${STATED_TOKENS.input},"completion_tokens":${STATED_TOKENS.output},` +
    `"total_tokens":${STATED_TOKENS.input + STATED_TOKENS.output}}}\n`,
);

const toEvent = (text: string, finish = "null") =>
  'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"stand-in","x":1.0,' +
  `"choices":[{"index":0,"delta":{"content":"${text}"},"finish_reason":${finish}}]}\n\n`;

/**
 * Comments, both kinds of line ends, an event without the space, and a character that is split
 * between two pieces.
 */
const STREAM_ANSWER = Buffer.from(
  `: queued\n\n${toEvent("caf\\u00e9")}${toEvent("naïve 🦜").replaceAll("\n", "\r\n")}` +
    `${toEvent("x").replace("data: ", "data:")}${toEvent("", '"stop"')}data: [DONE]\n\n`,
);

/** The bytes that a caller must receive for a scene that runs to its end. */
export const EXPECTED: Readonly<Record<"plain" | "stream", Buffer>> = {
  plain: PLAIN_ANSWER,
  stream: STREAM_ANSWER,
};

/** A call that reached the provider. */
export interface Arrival {
  readonly scene: Scene;
  readonly body: Buffer;
  /** When the other side closed before the answer's end (`performance.now()`). */
  readonly closed: Promise<number>;
}

/** The provider, with a record of its calls. */
export class SceneProvider {
  readonly #server: Server = createServer((request, response) =>
    void this.#play(request, response)
  );
  readonly #waiting: ((arrival: Arrival) => void)[] = [];
  /** Plain answers since the last {@link reset}. */
  answered = 0;
  /** The most concurrent calls since the last reset. */
  mostOpen = 0;
  #open = 0;

  /** Listens on a free port. @returns Its URL */
  async listen(): Promise<string> {
    this.#server.keepAliveTimeout = 0;
    this.#server.listen(0, "127.0.0.1");
    await new Promise((resolve) => this.#server.once("listening", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Resets the counters. */
  reset(): void {
    this.answered = this.mostOpen = 0;
  }

  /** Resolves with the next call that arrives. */
  next(): Promise<Arrival> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #play(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const closed = new Promise<number>((resolve) =>
      response.once("close", () => {
        this.#open--;
        if (!response.writableFinished) resolve(performance.now());
      })
    );
    this.mostOpen = Math.max(this.mostOpen, ++this.#open);
    const parts: Buffer[] = [];
    try {
      for await (const part of request) parts.push(part);
    } catch {
      return; // the caller left while it was sending
    }
    const body = Buffer.concat(parts);
    const scene = (/"user"\s*:\s*"scene-([a-z-]+)"/.exec(body.toString())?.[1] ?? "plain") as Scene;
    this.#waiting.shift()?.({ scene, body, closed });
    this.#answer(scene, response);
  }

  #answer(scene: Scene, response: ServerResponse): void {
    const events = (text: Buffer | string) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(text);
    };
    const plain = () => {
      this.answered++;
      response.writeHead(200, {
        "content-type": "application/json",
        "content-length": PLAIN_ANSWER.length,
      });
    };
    const half = PLAIN_ANSWER.length >> 1;
    const parrot = STREAM_ANSWER.indexOf("🦜") + 2;
    if (scene === "plain") plain(), response.end(PLAIN_ANSWER);
    else if (scene === "slow") setTimeout(() => (plain(), response.end(PLAIN_ANSWER)), SLOW_MS);
    else if (scene === "cut-plain") {
      plain(), response.write(PLAIN_ANSWER.subarray(0, half), () => response.destroy());
    } else if (scene === "stream") {
      events(STREAM_ANSWER.subarray(0, parrot));
      setTimeout(() => response.end(STREAM_ANSWER.subarray(parrot)), 20);
    } else if (scene === "quiet") events(toEvent("x"));
    else if (scene === "ended" || scene === "cut") {
      events(toEvent("x").repeat(2));
      setTimeout(() => scene === "cut" ? response.destroy() : response.end(), 50);
    }
  }
}
