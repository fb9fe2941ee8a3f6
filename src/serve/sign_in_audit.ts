/**
 * The audit of sign-ins to the console.
 *
 * @module
 */
import type { SignIns } from "../admin/api/sign_in.ts";
import type { Clock } from "../exchange/clock.ts";
import type { AuditEntry } from "../observe/audit_line.ts";

/** Everybody can try to sign in: of the failures in this time, one gets a line. Milliseconds. */
const FAILURE_EVERY_MS = 1000;

/** Creates the function that writes a line for each sign-in, and for failures at most one a second. */
export function createSignInAudit(
  clock: Clock,
  write: (entry: AuditEntry) => void,
): SignIns["audit"] {
  const shared = { action: "signIn", route: "POST /v1/sign-in", target: undefined };
  let writtenAt = -Infinity;
  let untold = 0;
  return (who, outcome) => {
    const entry = { ...shared, at: clock.now(), outcome };
    if ("role" in who) return write({ ...entry, who: who.id, role: who.role });
    if (clock.monotonic() - writtenAt < FAILURE_EVERY_MS) return void untold++;
    const reason = untold === 0 ? undefined : `and ${untold} more since the last line`;
    write({ ...entry, who: `someone at ${who.issuer}`, role: undefined, reason });
    writtenAt = clock.monotonic();
    untold = 0;
  };
}
