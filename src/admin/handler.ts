/**
 * What operators and load balancers ask on the admin listener: is it alive, is it ready.
 *
 * @module
 */
import type { Answer } from "../exchange.ts";
import { type Handler, toHandler } from "../fetch_handler.ts";

function toAnswer(status: number, content: unknown): Answer {
  return {
    status,
    headers: { "content-type": "application/json", "cache-control": "no-store" },
    body: JSON.stringify(content),
  };
}

/**
 * The admin listener's handler. `GET /livez` says that the process answers; `GET /readyz` says whether new requests
 * are welcome: 503 while the gateway drains.
 *
 * @param gateway Whose state is told
 * @returns The handler
 */
export function createAdminHandler(gateway: { readonly isReady: boolean; readonly openExchanges: number }): Handler {
  return toHandler(({ method, url }) => {
    const path = url.replace(/^https?:\/\/[^/]*/i, "").replace(/\?.*$/, "");
    const isRead = method === "GET" || method === "HEAD";
    if (isRead && path === "/livez") return Promise.resolve(toAnswer(200, { status: "alive" }));
    if (isRead && path === "/readyz") {
      const { isReady, openExchanges } = gateway;
      return Promise.resolve(toAnswer(isReady ? 200 : 503, { status: isReady ? "ready" : "draining", openExchanges }));
    }
    return Promise.resolve(toAnswer(404, { error: "Cannot find this path: use GET /livez or GET /readyz" }));
  });
}
