/**
 * Callers of durable exchanges that read slowly, leave and return, and the verdict on the bytes
 * that they received.
 */
import { type ClientRequest, type IncomingMessage, request as requestHttp } from "node:http";
import { Buffer } from "node:buffer";

/** A request to send. */
export interface Sent {
  readonly method?: "GET" | "POST" | "DELETE";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** A streamed answer, over a separate connection. */
export class Reading {
  /** The answer's head; `undefined` if there was none before the connection broke. */
  readonly head: Promise<IncomingMessage | undefined>;
  /** Resolves when the answer is over: `ended` if it ended as a complete answer, or `broken`. */
  readonly over: Promise<"ended" | "broken">;
  readonly #request: ClientRequest;
  readonly #got: Buffer[] = [];
  #response: IncomingMessage | undefined;
  #isPaused = false;
  length = 0;

  constructor(url: string, { method = "GET", headers, body }: Sent) {
    const request = this.#request = requestHttp(url, { method, headers, agent: false });
    let setHead = (_: IncomingMessage | undefined): void => {};
    let setOver = (_: "ended" | "broken"): void => {};
    this.head = new Promise((resolve) => setHead = resolve);
    this.over = new Promise((resolve) => setOver = resolve);
    request.on("response", (response) => {
      this.#response = response;
      if (this.#isPaused) response.pause();
      response.on("data", (bytes: Buffer) => {
        this.#got.push(bytes);
        this.length += bytes.length;
      });
      response.on("error", () => {});
      response.on("close", () => setOver(response.complete ? "ended" : "broken"));
      setHead(response);
    });
    request.on("error", () => {});
    request.on("close", () => {
      if (this.#response !== undefined) return;
      setHead(undefined);
      setOver("broken");
    });
    request.end(body);
  }

  /** The text received so far. */
  get text(): string {
    return Buffer.concat(this.#got).toString();
  }

  /** Stops reading. */
  pause(): void {
    this.#isPaused = true;
    this.#response?.pause();
  }

  /** Continues after {@link pause}. */
  goOn(): void {
    this.#isPaused = false;
    this.#response?.resume();
  }

  leave(): void {
    this.#request.destroy();
  }
}

/** The bytes of an answer that a reader received, over all of its connections. */
export interface Got {
  /** Offset of the first byte that it requested. */
  readonly from: number;
  readonly text: string;
  /** True if the last connection ended as a complete answer does. */
  readonly hasEnd: boolean;
}

/**
 * The verdict: `whole` is everything that the provider sent; `told` has the code of the event that
 * ends an incomplete answer; `cut` is a connection that broke after correct bytes; everything else
 * is `wrong`.
 */
export type Verdict =
  | { readonly is: "whole" | "cut" }
  | { readonly is: "told"; readonly code: string }
  | { readonly is: "wrong"; readonly why: string };

const EVENT = /^data: \{"error":\{.*"code":"(\w+)"\}\}\n\n$/;
const EVENT_BEGIN = 'data: {"error"';
/** Characters of a wrong answer that are printed. */
const SHOWN = 160;

/**
 * Judges the bytes that a reader received.
 *
 * @param got The received bytes
 * @param whole The provider's answer
 */
export function judgeReading({ from, text, hasEnd }: Got, whole: string): Verdict {
  const rest = whole.slice(from);
  if (rest.startsWith(text)) {
    if (!hasEnd) return { is: "cut" };
    if (text === rest) return { is: "whole" };
    return { is: "wrong", why: `it looks complete after ${text.length} of ${rest.length} bytes` };
  }
  const at = text.lastIndexOf(EVENT_BEGIN);
  const before = at === -1 ? text : text.slice(0, at);
  // The event can first complete a line, and an event that had begun.
  const isRight = [0, 1, 2].some((count) =>
    before.endsWith("\n".repeat(count)) && rest.startsWith(before.slice(0, before.length - count))
  );
  const [, code] = EVENT.exec(at === -1 ? "" : text.slice(at)) ?? [];
  if (isRight && code !== undefined) return { is: "told", code };
  if (isRight && !hasEnd) return { is: "cut" };
  let same = 0;
  while (same < text.length && text[same] === rest[same]) same++;
  const shown = JSON.stringify(text.slice(Math.max(0, same - SHOWN / 2), same + SHOWN));
  return {
    is: "wrong",
    why: `other bytes from ${same} of ${text.length} on, ${hasEnd ? "ended" : "broken"}: ${shown}`,
  };
}
