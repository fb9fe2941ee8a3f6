/**
 * Calls that the gateway makes for itself: to fetch documents of issuers, and to send messages to
 * operators.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import {
  createFetchTransport,
  type UpstreamCall,
  type UpstreamResponse,
} from "../upstream/transport.ts";

/** Makes a call and reads its answer. Rejects if both together exceed the deadline. */
export type OwnCaller = <Answer>(
  url: URL,
  request: Pick<UpstreamCall, "method" | "headers" | "body">,
  read: (response: UpstreamResponse) => Promise<Answer>,
) => Promise<Answer>;

/** Creates the function that makes calls with a deadline, milliseconds. It follows no redirects. */
export function createOwnCaller(deadlineMs: number, clock: Clock): OwnCaller {
  const transport = createFetchTransport();
  return async (url, request, read) => {
    const controller = new AbortController();
    const { signal } = controller;
    const abort = (reason: Error) => controller.abort(reason);
    const onAbort = (act: () => void) => {
      signal.addEventListener("abort", act);
      return () => signal.removeEventListener("abort", act);
    };
    const late = new Promise<never>((_, reject) => onAbort(() => reject(signal.reason)));
    const cancel = clock.timer(deadlineMs, () => abort(new Error("no answer in time")), {
      isBackground: true,
    });
    const call = {
      ...request,
      base: url,
      target: url.pathname + url.search,
      connectMs: deadlineMs,
      exchange: { reason: undefined, signal, onAbort, abort },
    };
    const answer = transport.send(call).then(read);
    try {
      return await Promise.race([answer, late]);
    } catch (error) {
      answer.catch(() => {});
      throw error;
    } finally {
      cancel();
    }
  };
}
