/**
 * Answers to callers that attach to a recorded answer, and the address at which it can be read
 * again.
 *
 * @module
 */
import type { Attachment } from "../../durable/attachment.ts";
import { type Exchange, toExchangeEnd } from "../../exchange/exchange.ts";
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import { prefixOf } from "../../inbound/host.ts";
import { finish } from "../finish.ts";
import type { Flow } from "../flow.ts";

/**
 * Makes the answer for a caller that attaches. Its exchange counts no tokens, because the exchange
 * of the call counts them.
 */
export function answerAttached(
  attachment: Attachment,
  { request, exchange }: Flow,
  own: Readonly<Record<string, string>> = {},
): GatewayResponse {
  const { id, head, reader, expiresAt } = attachment;
  const { status, headers } = head;
  exchange.facts.operation = "exchange.attach";
  exchange.facts.isMetered = false;
  exchange.facts.genAi = undefined;
  exchange.status = status;
  exchange.reader = reader;
  // Waits until all listeners have run: a call that is aborted with its readers ends its answer
  // with an event, which they must receive.
  const fail = () => reader.fail(exchange.reason, toExchangeEnd(exchange.reason));
  exchange.onAbort(() => queueMicrotask(fail));
  reader.onOver(({ outcome, code }) => {
    exchange.bytesOut = reader.bytesOut;
    exchange.settle({ outcome, ...(code && { code }) });
  });
  const all = { ...headers, ...own, ...addressOf(id, expiresAt, request) };
  if (status !== 204 && status !== 205) {
    return { status, headers: exchange.addHeaders(all), body: reader };
  }
  // RFC 9110 §15.3.5 and §15.3.6: no body, not even an empty one.
  const answer = answerWhole(status, all, exchange);
  reader.cancel();
  return answer;
}

/** Makes an answer that is complete, and settles its exchange. */
export function answerWhole(
  status: number,
  headers: Readonly<Record<string, string>>,
  exchange: Exchange,
  body: string | null = null,
): GatewayResponse {
  return finish({ status, headers: exchange.addHeaders({ ...headers }), body }, exchange);
}

/**
 * Returns the headers with the address at which an answer can be read again, and the earliest time
 * at which it expires. The address has no host, because a proxy in front can use another host. It
 * begins with the path prefix of the request.
 */
export function addressOf(
  id: string,
  expiresAt: number,
  { url }: GatewayRequest,
): Record<string, string> {
  return {
    "location": `${prefixOf(url)}/v1/exchanges/${id}`,
    "exchange-expires": new Date(expiresAt).toUTCString(),
  };
}
