/**
 * What listeners are opened with, in front of a handler that changes.
 *
 * @module
 */
import type { Handler } from "../http/web.ts";

/** A handler that stands for another one. Listeners ask it for its functions at each request, so that this costs nothing. */
export interface HandlerSwitch extends Handler {
  /** Has another one answer what comes from now on. */
  turnTo(handler: Handler): void;
}

/** Makes a switch. Callers that come before there is a handler wait for the first one. */
export function createSwitch(): HandlerSwitch {
  let begin = (_handler: Handler): void => {};
  const first = new Promise<Handler>((resolve) => begin = resolve);
  const current = {
    fetch: async (request: Parameters<Handler["fetch"]>[0]) => (await first).fetch(request),
    handle: async (request: Parameters<Handler["handle"]>[0]) => (await first).handle(request),
    turnTo({ fetch, handle }: Handler) {
      Object.assign(current, { fetch, handle });
      begin(current);
    },
  };
  return current;
}
