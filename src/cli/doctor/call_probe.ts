/**
 * Probes of `sallyport doctor`: calls whose answers are observed. No text of an answer is kept.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { OPENAI_CHAT } from "../../dialects/openai_chat.ts";
import type { AnyBody } from "../../http/message.ts";
import { toByteSource } from "../../http/web.ts";
import type { Transport } from "../../upstream/transport.ts";
import { failure, type Step, timed } from "./doctor_probe.ts";

/** One call. */
export interface Call {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Time limit of the whole call, milliseconds. */
  readonly ms: number;
  /** True to leave after the first event. */
  readonly leaves?: boolean;
  /** Sends the call. Default: the runtime's own client. */
  readonly transport?: Transport | undefined;
}

/** Facts of an answer. */
export interface Seen {
  readonly status: number;
  /** Error code of the gateway, if the answer is its own. */
  readonly gatewayError: string | undefined;
  readonly mediaType: string;
  readonly coding: string;
  readonly firstByteMs: number;
  /** Number of non-empty `data` lines in a stream. */
  readonly events: number;
  readonly comments: number;
  readonly hasDone: boolean;
  /** True if the answer itself states that it is complete. */
  readonly isComplete: boolean;
  /** Total tokens, if stated. */
  readonly tokens: number | undefined;
  /** True if the caller left before the end. */
  readonly hasLeft: boolean;
}

const COLON = 0x3a;
const LF = 0x0a;
const CR = 0x0d;

/** Counts comment lines of a stream, regardless of its chunks. */
class CommentCounter {
  count = 0;
  #isAtStart = true;

  push(bytes: Uint8Array): void {
    for (const byte of bytes) {
      if (this.#isAtStart && byte === COLON) this.count++;
      this.#isAtStart = byte === LF || byte === CR;
    }
  }
}

/** The observed part of an answer. */
interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Its body. */
  readonly body: Readable;
  /** True if the answer arrived completely. */
  isComplete(): boolean;
}

const fieldOf = ({ headers }: Answer, name: string): string => String(headers[name] ?? "");

/** Observes an answer to its end, or to its first event. */
function watch(response: Answer, leaves: boolean, startedAt: number): Promise<Seen> {
  const mediaType = fieldOf(response, "content-type").replace(/;.*/, "").trim().toLowerCase();
  const coding = fieldOf(response, "content-encoding").toLowerCase();
  const scanner = OPENAI_CHAT.createScanner(1);
  const meter = OPENAI_CHAT.createMeter();
  const comments = new CommentCounter();
  const body = coding === "gzip" ? response.body.pipe(createGunzip()) : response.body;
  let firstByteMs: number | undefined;
  return new Promise((resolve, reject) => {
    const settle = (hasLeft: boolean) => {
      const isStream = mediaType === "text/event-stream";
      resolve({
        status: response.status,
        gatewayError: response.headers["sallyport-error"] === undefined
          ? undefined
          : fieldOf(response, "sallyport-error"),
        mediaType,
        coding,
        firstByteMs: firstByteMs ?? performance.now() - startedAt,
        events: scanner.payloadCount,
        comments: comments.count,
        hasDone: scanner.hasLastEvent,
        isComplete: scanner.isComplete,
        tokens: (isStream ? scanner.usage : meter.usage)?.total,
        hasLeft,
      });
      if (hasLeft) response.body.destroy();
    };
    body.on("data", (chunk: Uint8Array) => {
      firstByteMs ??= performance.now() - startedAt;
      scanner.push(chunk);
      meter.push(chunk);
      comments.push(chunk);
      const isAmidEvents = scanner.payloadCount > 0 && !scanner.isComplete;
      if (leaves && isAmidEvents) settle(true);
    });
    for (const stream of new Set([body, response.body])) stream.on("error", reject);
    body.on("end", () => {
      scanner.end();
      settle(false);
    });
    response.body.on("close", () => response.isComplete() || reject(failure("ECONNRESET")));
  });
}

const toAnswer = (response: IncomingMessage): Answer => ({
  status: response.statusCode as number, // always set on a client's response
  headers: response.headers,
  body: response,
  isComplete: () => response.complete,
});

/** Returns a body as a stream. Destroying the stream ends the call. */
function toReadable(answered: AnyBody | null): Readable {
  const body = answered && toByteSource(answered);
  return new Readable({
    read() {
      Promise.resolve(body?.read()).then(
        (bytes) => this.push(bytes ?? null),
        (error) => this.destroy(error),
      );
    },
    destroy(error, done) {
      body?.cancel();
      done(error);
    },
  });
}

/** Makes one call through a transport. */
function callThrough(transport: Transport, call: Call): Promise<Step<Seen>> {
  const { url, headers, body, ms, leaves = false } = call;
  return timed(async () => {
    const startedAt = performance.now();
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(failure("ETIMEDOUT")), ms);
    const base = new URL(url);
    const { signal } = controller;
    try {
      const response = await transport.send({
        base,
        target: base.pathname,
        method: "POST",
        headers,
        body: { bytes: Buffer.from(body), release: () => {} },
        connectMs: ms,
        exchange: {
          get reason() {
            return signal.reason;
          },
          signal,
          onAbort(act) {
            signal.addEventListener("abort", act);
            return () => signal.removeEventListener("abort", act);
          },
          abort: (reason) => controller.abort(reason),
        },
      });
      const fields: Record<string, string> = {};
      response.headers.forEach((value, name) => fields[name] = value);
      const stream = toReadable(response.body);
      const answer = {
        status: response.status,
        headers: fields,
        body: stream,
        isComplete: () => stream.readableEnded,
      };
      return await watch(answer, leaves, startedAt);
    } finally {
      clearTimeout(timer);
    }
  });
}

/** Makes one call, on its own connection unless a transport is given. */
export function probeCall(call: Call): Promise<Step<Seen>> {
  const { url, headers, body, ms, leaves = false, transport } = call;
  if (transport !== undefined) return callThrough(transport, call);
  return timed(() =>
    new Promise((resolve, reject) => {
      const startedAt = performance.now();
      const send = url.startsWith("https:") ? requestHttps : requestHttp;
      const calling = send(url, { method: "POST", headers, agent: false }, (response) => {
        watch(toAnswer(response), leaves, startedAt).then(resolve, reject).finally(() =>
          clearTimeout(timer)
        );
      });
      const timer = setTimeout(() => {
        reject(failure("ETIMEDOUT"));
        calling.destroy();
      }, ms);
      calling.on("error", (error) => {
        clearTimeout(timer);
        reject(error);
      });
      calling.end(body);
    })
  );
}
