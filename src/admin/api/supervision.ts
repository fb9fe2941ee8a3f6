/**
 * Supervision of operators: what each role may do, and the audit of what may change something.
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";
import type { GatewayResponse } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { AuditEntry } from "../../observe/audit_line.ts";
import { toErrorAnswer } from "./answers.ts";
import type { Operator } from "./guard.ts";
import type { RouteFacts } from "./route.ts";

/** A call of a route, as the audit names it. */
export interface SupervisedCall extends Pick<RouteFacts, "method" | "path" | "operationId"> {
  /** Id of what it is about; empty where the answer names it. */
  readonly target: string;
}

/** The answer of a route. */
export interface Answered {
  readonly response: GatewayResponse;
  /** Id of what it is about, if its content has one. */
  readonly id?: string | undefined;
}

/** Parts of {@link supervise}. */
export interface SupervisionParts {
  /** Takes a line about a change that an operator asked for. */
  readonly audit: (entry: AuditEntry) => void;
  readonly clock: Clock;
}

/**
 * Runs a call if the operator's role allows it, and writes a line of the audit for each call that
 * may change something.
 *
 * @throws {GatewayError} `role_not_allowed`, or what the call throws
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
    const { response, id } = await run();
    const outcome = response.headers["sallyport-error"] ?? "ok";
    audit({ ...entry, target: target || id, outcome });
    return response;
  } catch (thrown) {
    audit({
      ...entry,
      target: target || undefined,
      outcome: toErrorAnswer(thrown).headers["sallyport-error"] ?? "failed",
    });
    throw thrown;
  }
}
