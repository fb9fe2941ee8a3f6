/**
 * A handler that passes requests to another handler, which can be replaced while listeners are
 * open.
 *
 * @module
 */
import type { Handler } from "../http/web.ts";

/**
 * A handler that forwards to another one. Listeners read its functions at each request, so that the
 * switch costs nothing.
 */
export interface HandlerSwitch extends Handler {
  /** Passes all further requests to another handler. */
  turnTo(handler: Handler): void;
}

/** Creates a switch. Requests that arrive before the first handler is set wait for it. */
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
