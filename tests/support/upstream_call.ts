/** Calls to a transport, and their answers, without a gateway around them. */
import assert from "node:assert/strict";
import type { ByteSource } from "../../src/http/message.ts";
import { readAll } from "../../src/http/read_all.ts";
import { toByteSource } from "../../src/http/web.ts";
import type { UpstreamCall, UpstreamResponse } from "../../src/upstream/transport.ts";

/** The parts of a call that a test can choose. */
export interface CallOptions {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  /** One byte if left out; nothing for `GET`. */
  readonly body?: Uint8Array | null;
  readonly connectMs?: number;
  readonly controller?: AbortController;
  /** Called when the body is released. */
  readonly onReleased?: () => void;
}

/** Makes a call in the form that a transport accepts. */
export function toUpstreamCall(url: string, options: CallOptions = {}): UpstreamCall {
  const { method = "POST", headers = { "content-type": "application/json" }, connectMs = 5000 } =
    options;
  const { controller = new AbortController() } = options;
  const { body = method === "POST" ? new TextEncoder().encode("{1}").subarray(1, 2) : null } =
    options;
  const base = new URL(url);
  return {
    base,
    target: `${base.pathname}${base.search}`,
    method,
    headers,
    body: body && { bytes: body, release: () => options.onReleased?.() },
    connectMs,
    exchange: {
      get reason() {
        return controller.signal.reason;
      },
      signal: controller.signal,
      onAbort(act) {
        controller.signal.addEventListener("abort", act);
        return () => controller.signal.removeEventListener("abort", act);
      },
      abort: (reason) => controller.abort(reason),
    },
  };
}

/** The body of an answer, as a source of pieces. */
export function sourceOf({ body }: UpstreamResponse): ByteSource {
  assert.ok(body !== null, "there is a body");
  return toByteSource(body);
}

/** The whole body of an answer. */
export async function bytesOf({ body }: UpstreamResponse): Promise<Uint8Array> {
  return body === null ? new Uint8Array() : await readAll(body);
}

/** The whole body of an answer, as text. */
export async function textOf(answer: UpstreamResponse): Promise<string> {
  return new TextDecoder().decode(await bytesOf(answer));
}
