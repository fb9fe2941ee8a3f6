/** A caller that reports the bytes it received, and how the answer ended. */
import { Buffer } from "node:buffer";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import type { RunningSubject } from "../subjects.ts";
import { type Scene, STATED_TOKENS } from "./provider.ts";

/** Milliseconds after which a call counts as hanging. */
const TIMEOUT_MS = 10_000;

/** The result of a call. */
export interface CallResult {
  /** 0 if there was no answer. */
  readonly status: number;
  readonly body: Buffer;
  /** True if the answer is complete; otherwise the connection broke. */
  readonly isEnded: boolean;
}

/**
 * A body with whitespace, escapes, a long number and a trailing zero. A proxy that parses and
 * rewrites it changes it.
 */
export function toBody(scene: Scene): string {
  const isStream = !["plain", "slow", "cut-plain", "silent"].includes(scene);
  return `{"model":"stand-in", "user":"scene-${scene}","seed":1234567890123456789,"temperature":1.0 ,` +
    `"max_tokens":${STATED_TOKENS.output},${isStream ? '"stream":true,' : ""}\n` +
    '"messages":[{"role":"user","content":"caf\\u00e9 \\/ café"}]}';
}

/** Starts a call. */
export function begin(subject: RunningSubject, scene: Scene): ClientRequest {
  const body = Buffer.from(toBody(scene));
  const headers = {
    ...subject.headers,
    "content-type": "application/json",
    "content-length": body.length,
  };
  const target = {
    host: "127.0.0.1",
    port: subject.port,
    method: "POST",
    path: "/v1/chat/completions",
  };
  const call = request({ ...target, headers, agent: false, timeout: TIMEOUT_MS });
  call.on("timeout", () => call.destroy());
  call.on("error", () => {}); // `close` handles it
  call.end(body);
  return call;
}

/** Makes a call and waits until it ends in any way. */
export function callScene(subject: RunningSubject, scene: Scene): Promise<CallResult> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let answer: IncomingMessage | undefined;
    begin(subject, scene)
      .on("response", (response) => {
        answer = response;
        // `complete` shows it
        response.on("data", (part: Buffer) => parts.push(part)).on("error", () => {});
      })
      .on("close", () =>
        resolve({
          status: answer?.statusCode ?? 0,
          body: Buffer.concat(parts),
          isEnded: answer?.complete === true,
        }));
  });
}
