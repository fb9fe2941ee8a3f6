/**
 * Step 8 for an answer that is complete before it is sent. The end of a relayed body settles its
 * exchange in `upstream/relay.ts`.
 *
 * @module
 */
import type { Exchange, ExchangeEnd } from "../exchange/exchange.ts";
import type { GatewayResponse } from "../http/message.ts";

/** Settles the exchange of a complete answer. */
export function finish(
  answer: GatewayResponse & { readonly body: string | Uint8Array | null },
  exchange: Exchange,
  end: ExchangeEnd = { outcome: "ok" },
): GatewayResponse {
  exchange.status = answer.status;
  exchange.bytesOut = answer.body?.length ?? 0;
  exchange.settle(end);
  return answer;
}
