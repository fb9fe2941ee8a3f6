/**
 * Retries of client libraries.
 *
 * @module
 */
import type { GatewayRequest } from "../http/message.ts";

/**
 * Header with the number of the retry, as the client libraries of OpenAI and others send it; 0 for
 * the first attempt.
 */
const RETRY_COUNT = "x-stainless-retry-count";

/** Returns whether a client library retries a call; `undefined` if it does not state that. */
export function isClientRetry(
  headers: Pick<GatewayRequest["headers"], "get">,
): boolean | undefined {
  const retries = headers.get(RETRY_COUNT);
  return retries === null ? undefined : Number(retries) > 0;
}
