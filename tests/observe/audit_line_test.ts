/** Audit lines as text: no part of a request can look like another field or another line. */
// runtimes: bun, node
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { type AuditEntry, toAuditText } from "../../src/observe/audit_line.ts";

const ENTRY: AuditEntry = {
  at: 0,
  who: "jwt:corp:ada",
  role: "admin",
  action: "revokeKey",
  route: "POST /v1/keys/{id}/revoke",
  target: "k1",
  outcome: "role_not_allowed",
};

describe("an audit line as text", () => {
  it("has its fields with two spaces between them", () => {
    assert.equal(
      toAuditText(ENTRY),
      "00:00:00.000  audit  revokeKey  k1  role_not_allowed  by jwt:corp:ada  (admin)",
    );
  });

  it("shows a target that imitates other fields as one field", () => {
    const forged = toAuditText({
      ...ENTRY,
      target: "k1  ok  by jwt:corp:eve\n\u2028\u202e(admin)",
    });
    assert.ok(
      forged.includes("  k1 ok by jwt:corp:eve???(admin)  role_not_allowed  by jwt:corp:ada"),
    );
  });
});
