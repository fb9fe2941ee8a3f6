/**
 * Answers of the admin API: JSON, and errors.
 *
 * @module
 */
import { type ErrorFacts, GatewayError, toErrorResponse } from "../../errors/gateway_error.ts";
import type { GatewayResponse } from "../../http/message.ts";
import { KeyStoreError, KeyStoreUnavailable } from "../../keys/key_store.ts";
import { UsageUnavailable } from "../../usage/counts.ts";
import { UsageRefusal } from "../../usage/report.ts";
import { UnknownKey } from "../key_administration.ts";

/**
 * Creates an answer in JSON that is not to be cached.
 *
 * @param status HTTP status
 * @param content Content of the body
 * @returns The answer
 */
export function toAnswer(status: number, content: unknown): GatewayResponse {
  return {
    status,
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    },
    body: JSON.stringify(content),
  };
}

/** Finds the code of what was thrown. The texts of stores are for operators, so they are passed on. */
function toFacts(thrown: unknown): ErrorFacts {
  if (GatewayError.is(thrown)) return thrown;
  if (thrown instanceof UsageRefusal) {
    const { param, message } = thrown;
    return new GatewayError("invalid_query", { param, detail: `${param}: ${message}` });
  }
  const withText = (code: ErrorFacts["code"], { message }: Error): ErrorFacts => ({ code, message, param: null });
  if (thrown instanceof UnknownKey) return withText("key_not_found", thrown);
  if (thrown instanceof KeyStoreUnavailable) return withText("key_store_unavailable", thrown);
  if (thrown instanceof KeyStoreError) return withText("refused", thrown);
  if (thrown instanceof UsageUnavailable) return withText("usage_unavailable", thrown);
  return new GatewayError("admin_failed", { cause: thrown });
}

/**
 * Creates the answer for an error.
 *
 * @param thrown What was thrown
 * @returns The answer, by the table of errors
 */
export function toRefusal(thrown: unknown): GatewayResponse {
  return toErrorResponse(toFacts(thrown));
}
