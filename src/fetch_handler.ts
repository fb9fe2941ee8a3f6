/**
 * From the gateway's own view of a request and an answer to the web's, and back.
 *
 * @module
 */
import { fromRequest, toReadableStream } from "./byte_source.ts";
import { type Answer, type InboundRequest, isWhole } from "./exchange.ts";

/** Answers requests. Never rejects. */
export interface Handler {
  /**
   * @param request A web request
   * @returns A web response
   */
  fetch(request: Request): Promise<Response>;
  /**
   * The same without web objects, for servers that have none of their own (Node).
   *
   * @param request What arrived
   * @returns What goes back
   */
  handle(request: InboundRequest): Promise<Answer>;
}

/**
 * An answer as a web response.
 *
 * @param answer What goes back
 * @returns The response; nothing of its body is read ahead
 */
export function toResponse({ status, headers, body }: Answer): Response {
  // Bytes of ours never sit in shared memory.
  const content = isWhole(body) ? body as string | Uint8Array<ArrayBuffer> | null : toReadableStream(body);
  return new Response(content, { status, headers });
}

/**
 * A handler from its narrow half.
 *
 * @param handle Answers without web objects
 * @returns Both halves
 */
export function toHandler(handle: Handler["handle"]): Handler {
  return {
    handle,
    async fetch(request) {
      const { method, url, headers } = request;
      const inbound: InboundRequest = {
        method,
        url,
        headers,
        body: fromRequest(request),
        get signal() {
          return request.signal;
        },
      };
      return toResponse(await handle(inbound));
    },
  };
}
