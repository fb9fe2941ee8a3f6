/**
 * Converts between the gateway's own requests and answers and those of the web.
 *
 * @module
 */
import { type ByteSource, fromRequest, toReadableStream } from "./byte_source.ts";
import { type GatewayRequest, type GatewayResponse, isWhole } from "./message.ts";

/** Answers requests. Never rejects. */
export interface Handler {
  /**
   * Answers a web request.
   *
   * @param request A web request
   * @returns A web response
   */
  fetch(request: Request): Promise<Response>;
  /**
   * Answers a request without web objects, for servers that have none of their own (Node).
   *
   * @param request What arrived
   * @returns What goes back
   */
  handle(request: GatewayRequest): Promise<GatewayResponse>;
}

/**
 * Converts an answer to a web response.
 *
 * @param answer What goes back
 * @returns The response; nothing of its body is read ahead
 */
export function toResponse({ status, headers, body }: GatewayResponse): Response {
  // Bytes of ours never sit in shared memory.
  const content = isWhole(body) ? body as string | Uint8Array<ArrayBuffer> | null : toReadableStream(body);
  const response = new Response(content, { status });
  // One by one: a third of what they cost Deno and Node in the constructor.
  for (const name in headers) response.headers.set(name, headers[name] ?? "");
  return response;
}

/**
 * A web request as the gateway looks at it. A class, since every object literal with an accessor gets a shape of its
 * own, and V8 keeps each of these until it collects the old generation.
 */
export class WebRequest implements GatewayRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Headers;
  readonly body: ByteSource | null;
  readonly #request: Request;

  /**
   * @param request What arrived
   * @param body Its body, if it is to be read otherwise than by {@link fromRequest}
   */
  constructor(request: Request, body: ByteSource | null = fromRequest(request)) {
    const { method, url, headers } = request;
    this.method = method;
    this.url = url;
    this.headers = headers;
    this.body = body;
    this.#request = request;
  }

  /** Aborted when the caller leaves; asked for only when needed, as it costs the runtimes much. */
  get signal(): AbortSignal {
    return this.#request.signal;
  }
}

/**
 * Makes a handler from its `handle` method.
 *
 * @param handle Answers without web objects
 * @returns The handler, with `fetch` too
 */
export function toHandler(handle: Handler["handle"]): Handler {
  return {
    handle,
    async fetch(request) {
      const answer = await handle(new WebRequest(request));
      // Deno.serve sends a 205 without a length and takes one that is given off: callers would wait for its body until
      // the connection closes (RFC 9110 §15.3.6 wants it framed). A 204 says the same, and nobody waits for more.
      if (answer.status === 205) answer.status = 204;
      return toResponse(answer);
    },
  };
}
