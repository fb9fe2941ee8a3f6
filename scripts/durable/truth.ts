/**
 * A provider whose answers are all different, and which records the bytes that it sent: the truth
 * about a durable exchange.
 */
import { Buffer } from "node:buffer";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { chunk, type Provider, startProvider, stream } from "../../tests/support/provider.ts";
import { pause } from "../chaos/long_run.ts";

/** An answer that a provider must give. */
export interface AnswerPlan {
  readonly isStream: boolean;
  readonly pieces: number;
  /** Approximate size of a piece. Bytes. */
  readonly pieceBytes: number;
  /** Time from the first piece to the last. Milliseconds. */
  readonly lastsMs: number;
}

/** A call that the provider received. Times in milliseconds of one clock. */
export interface MadeCall {
  /** Name of the exchange; its idempotency key contains the same name. */
  readonly name: string;
  /** Number of the caller's attempt that caused it. */
  readonly attempt: string;
  /** The whole answer, if it is not stopped. */
  readonly whole: string;
  readonly begunAt: number;
  /** Infinity while it runs. */
  endedAt: number;
  /** True if the gateway closed it before its end. */
  isCut: boolean;
}

/** Header with the name of the exchange and the number of the attempt. It reaches the provider. */
export const ATTEMPT_HEADER = "x-client-request-id";

/** Writes the answer to a numbered call, in pieces. */
function writeAnswer(number: number, { isStream, pieces, pieceBytes }: AnswerPlan): string[] {
  const words = Array.from({ length: pieces }, (_, index) => {
    const word = `call ${number} word ${index} `;
    return word + "x".repeat(Math.max(0, pieceBytes - word.length));
  });
  if (isStream) return [...words.map((word) => chunk(word)), stream()];
  return ['{"object":"chat.completion","choices":[{"message":{"content":"', ...words, '"}}]}'];
}

/** The provider. */
export class Truth {
  readonly calls: MadeCall[] = [];
  /** Answers to the calls of each name. */
  readonly plans: Map<string, AnswerPlan> = new Map();
  #provider: Provider | undefined;

  static async start(): Promise<Truth> {
    const truth = new Truth();
    truth.#provider = await startProvider((response, { headers }) =>
      truth.#answer(response, String(headers[ATTEMPT_HEADER]))
    );
    return truth;
  }

  get url(): string {
    if (this.#provider === undefined) throw new Error("The provider does not run");
    return this.#provider.url;
  }

  async close(): Promise<void> {
    await this.#provider?.close();
  }

  async #answer(response: ServerResponse, attempt: string): Promise<void> {
    const name = attempt.slice(0, attempt.indexOf("/"));
    const plan = this.plans.get(name);
    if (plan === undefined) return void response.writeHead(500).end();
    const pieces = writeAnswer(this.calls.length, plan);
    const call: MadeCall = {
      ...{
        name,
        attempt,
        whole: pieces.join(""),
        begunAt: performance.now(),
        endedAt: Infinity,
        isCut: false,
      },
    };
    this.calls.push(call);
    response.on("close", () => {
      call.endedAt = performance.now();
      call.isCut = !response.writableFinished;
    });
    response.writeHead(200, {
      "content-type": plan.isStream ? "text/event-stream" : "application/json",
    });
    response.flushHeaders();
    for (const piece of pieces) {
      if (response.destroyed) return;
      if (!response.write(Buffer.from(piece))) {
        await Promise.race([once(response, "drain"), once(response, "close")]);
      }
      await pause(plan.lastsMs / pieces.length);
    }
    response.end();
  }
}
