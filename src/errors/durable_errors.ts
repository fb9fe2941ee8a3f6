/**
 * Errors of durable exchanges: about their idempotency key, access to their answers, and stopped
 * calls.
 *
 * @module
 */
import { type ErrorSpec, INVALID, UNAVAILABLE } from "./error_spec.ts";

/** Codes of errors of durable exchanges. */
export type DurableErrorCode =
  | "invalid_idempotency_key"
  | "idempotency_key_reused"
  | "exchange_not_found"
  | "exchange_expired"
  | "invalid_offset"
  | "invalid_read"
  | "exchange_broken"
  | "recordings_unavailable"
  | "exchange_stopped"
  | "exchange_lost";

/** The rows of these errors. */
export const DURABLE_ERRORS: Readonly<Record<DurableErrorCode, ErrorSpec>> = {
  invalid_idempotency_key: {
    ...INVALID,
    param: "Idempotency-Key",
    message: "Cannot read the idempotency key: expected 1 to 256 visible ASCII characters, " +
      "with or without double quotes",
  },
  // draft-ietf-httpapi-idempotency-key-header-07 §2.7
  idempotency_key_reused: {
    ...INVALID,
    status: 422,
    param: "Idempotency-Key",
    message: "Cannot use this idempotency key: it belongs to another request. " +
      "Send the same body, or a new key",
  },
  exchange_not_found: {
    ...INVALID,
    status: 404,
    message: "Cannot find this exchange: check its address, and send the same keys as for its call",
  },
  exchange_expired: {
    ...INVALID,
    status: 410,
    message: "Cannot read this exchange: its answer is not kept any more",
  },
  invalid_offset: {
    ...INVALID,
    param: "offset",
    message: "Cannot read from this offset: expected the number of bytes that were read so far",
  },
  invalid_read: {
    ...INVALID,
    param: "live",
    message: "Cannot read in this way: expected live=long-poll or live=sse, or neither",
  },
  exchange_broken: {
    ...INVALID,
    status: 410,
    message: "Cannot read on: the answer broke off here, and is not complete",
  },
  recordings_unavailable: {
    ...UNAVAILABLE,
    message: "Cannot record the answer: the store of recordings does not answer or is full. " +
      "Send the call again later, or without Idempotency-Key and Sallyport-Durable",
  },
  exchange_stopped: {
    status: 409,
    type: "invalid_request_error",
    param: null,
    shouldRetry: false,
    outcome: "client_closed",
    message: "The exchange was stopped before its end",
  },
  exchange_lost: {
    status: 502,
    type: "server_error",
    param: null,
    shouldRetry: false,
    outcome: "upstream_cut",
    message: "Cannot continue the exchange: its gateway or its recording failed. " +
      "If you send the call again, it is made and billed again",
  },
};
