/**
 * Supervision of operators: the permissions of each role, and the audit of calls that can change
 * something.
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";
import type { GatewayResponse } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { AuditEntry } from "../../observe/audit_line.ts";
import { toFailureResponse } from "./responses.ts";
import type { Operator } from "./guard.ts";
import type { RouteDescription } from "./route.ts";

/** A call of a route, as the audit names it. */
export interface SupervisedCall extends Pick<RouteDescription, "method" | "path" | "operationId"> {
  /** Id of the target. Empty if it is only in the response. */
  readonly target: string;
}

/** The response of a route. */
export interface Answered {
  readonly response: GatewayResponse;
  /** Id of the target, if the content has one. */
  readonly id?: string | undefined;
  /** Amount that the operator gave, if the content has one. */
  readonly amount?: string | undefined;
  /** Reason that the operator stated, if the content has one. */
  readonly reason?: string | undefined;
}

/** Parts of {@link supervise}. */
export interface SupervisionParts {
  /** Receives a line about a change by an operator. */
  readonly audit: (entry: AuditEntry) => void;
  readonly clock: Clock;
}

/**
 * Runs a call if the operator's role allows it. Writes an audit line for each call that can change
 * something.
 *
 * @throws {GatewayError} `role_not_allowed`, or the error of the call
 */
export async function supervise(
  call: SupervisedCall,
  { who, role }: Operator,
  { audit, clock }: SupervisionParts,
  run: () => Promise<Answered>,
): Promise<GatewayResponse> {
  const { method, path, operationId: action, target } = call;
  if (method === "get") return (await run()).response;
  const entry = { at: clock.now(), who, role, action, route: `${method.toUpperCase()} ${path}` };
  try {
    if (role !== "admin") throw new GatewayError("role_not_allowed");
    const { response, id, amount, reason } = await run();
    const outcome = response.headers["sallyport-error"] ?? "ok";
    audit({ ...entry, target: target || id, amount, reason, outcome });
    return response;
  } catch (thrown) {
    audit({
      ...entry,
      target: target || undefined,
      outcome: toFailureResponse(thrown).headers["sallyport-error"] ?? "failed",
    });
    throw thrown;
  }
}
