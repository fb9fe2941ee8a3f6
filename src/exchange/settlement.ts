/**
 * Settlements: the end of an exchange, in the words that its record holds.
 *
 * @module
 */
import { type ErrorCode, ERRORS, GatewayError } from "../errors/gateway_error.ts";
import type { FailureCause, Outcome } from "../errors/outcomes.ts";

/** The abort reason for a caller that left. An outcome, not an error: nothing is sent, logs say 499. */
export class ClientClosed extends Error {
  override readonly name = "ClientClosed";
  constructor() {
    super("The caller closed the connection");
  }
}

/** The end of an exchange, as its record states it. */
export interface Settlement {
  /** `ok` for an answer that was relayed whole, whatever its status. */
  readonly outcome: Outcome;
  readonly code?: ErrorCode | undefined;
  readonly cause?: FailureCause | undefined;
  readonly error?: unknown;
}

/**
 * Turns the reason for which an exchange ended early into its settlement.
 *
 * @param reason A `GatewayError`, {@link ClientClosed}, or a bug
 * @returns The settlement
 */
export function toSettlement(reason: unknown): Settlement {
  if (reason instanceof ClientClosed) return { outcome: "client_closed" };
  if (!GatewayError.is(reason)) return { outcome: "failed", code: "internal_error", error: reason };
  const { code, failureCause, cause } = reason;
  return { outcome: ERRORS[code].outcome, code, cause: failureCause, error: cause };
}

/**
 * Names the outcome of a closed exchange: an answer that was relayed whole is an error where its status says so.
 *
 * @param settlement How it is closed
 * @param status The status that was answered
 * @returns The outcome for its record
 */
export function toOutcome({ outcome }: Settlement, status: number): Outcome {
  return outcome === "ok" && status >= 400 ? "upstream_error" : outcome;
}
