/**
 * Supervision of operators: what each role may do, and the audit of what may change something.
 *
 * @module
 */
import { GatewayError } from "../../errors/gateway_error.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { AuditEntry } from "../../observe/audit_line.ts";
import { toRefusal } from "./answers.ts";
import type { Operator } from "./guard.ts";

/** A call of a route, as the audit names it. */
export interface SupervisedCall {
  readonly method: string;
  readonly path: string;
  readonly operationId: string;
  /** Id of what it is about; empty where the answer names it. */
  readonly target: string;
}

/** Parts of {@link supervise}. */
export interface SupervisionParts {
  /** Takes a line about a change that an operator asked for. */
  readonly audit: (entry: AuditEntry) => void;
  readonly clock: Clock;
}

/**
 * Runs a call if the operator's role allows it, and tells the audit of each that may change
 * something.
 */
export async function supervise<Answer>(
  { method, path, operationId: action, target }: SupervisedCall,
  { who, role }: Operator,
  { audit, clock }: SupervisionParts,
  run: () => Answer | Promise<Answer>,
): Promise<Answer> {
  if (method === "get") return await run();
  const entry = { at: clock.now(), who, role, action, route: `${method.toUpperCase()} ${path}` };
  try {
    if (role !== "admin") throw new GatewayError("role_not_allowed");
    const answer = await run();
    const { id, headers } = Object(answer) as { id?: unknown; headers?: Record<string, string> };
    const made = typeof id === "string" ? id : undefined;
    audit({ ...entry, target: target || made, outcome: headers?.["sallyport-error"] ?? "ok" });
    return answer;
  } catch (thrown) {
    audit({
      ...entry,
      target: target || undefined,
      outcome: toRefusal(thrown).headers["sallyport-error"] ?? "failed",
    });
    throw thrown;
  }
}
