/**
 * `sallyport explain` with identity tokens: the owner of a token, its permissions, and the reason
 * for a refusal.
 */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { AUDIENCE, startIssuer, type TestIssuer } from "../support/issuer.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { runCommand } from "../support/command.ts";
import { makeFolder } from "../support/program.ts";

describe("sallyport explain with identity tokens", () => {
  let issuer: TestIssuer;
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(async () => {
    issuer = await startIssuer();
    folder = makeFolder();
    writeFileSync(
      join(folder.path, "gateway.jsonc"),
      JSON.stringify({
        identity: [{
          issuer: issuer.url,
          audience: AUDIENCE,
          name: "corp",
          claims: { name: "name", team: "group", models: "models" },
        }],
        teams: { search: { limits: { requests: "600/min" } } },
        providers: { a: { hosts: ["*"], upstream: "http://127.0.0.1:9/v1" } },
      }),
    );
  });
  afterEach(async () => {
    folder.remove();
    await issuer.stop();
  });

  const good = { name: "Ann", group: "search", models: ["test-*"] };
  async function explain(claims: Record<string, unknown>, body = GOOD_BODY) {
    const token = await issuer.token({ claims: { ...good, ...claims } });
    const headers = { host: "a", authorization: "Bearer sk-1", "content-type": "application/json" };
    const lines = Object.entries({ ...headers, "gateway-auth": `Bearer ${token}` }).map((
      [name, value],
    ) => `${name}: ${value}`);
    writeFileSync(
      join(folder.path, "request"),
      ["POST /v1/chat/completions HTTP/1.1", ...lines, `content-length: ${body.length}`, "", body]
        .join("\r\n"),
    );
    const { stdout, stderr } = await runCommand(["explain", "request", "--json"], {
      cwd: folder.path,
    });
    assert.ok(!`${stdout}${stderr}`.includes(token.split(".")[2] ?? ""), "the token is told");
    assert.ok(stdout.startsWith("{"), stderr);
    return JSON.parse(stdout);
  }

  it("shows its owner", async () => {
    const { outcome, key } = await explain({});
    assert.deepEqual([outcome, key], ["forwarded", {
      id: "jwt:corp:ann",
      name: "Ann",
      team: "search",
    }]);
  });

  it("shows the reason for a refusal, and where to change it", async () => {
    const now = Math.floor(Date.now() / 1000);
    const revoked = await runCommand(["tokens", "revoke", "jwt:corp:eve"], { cwd: folder.path });
    assert.equal(revoked.status, 0, revoked.stderr);
    const cases: [claims: Record<string, unknown>, code: string, fix: RegExp][] = [
      [{ iat: now - 900, exp: now - 600 }, "invalid_gateway_key", /maxAge/],
      [{ aud: "another" }, "invalid_gateway_key", /iss and aud/],
      [{ sub: "eve", iat: now - 60 }, "invalid_gateway_key", /sallyport tokens list/],
      [{ models: ["other-*"] }, "model_not_allowed", /other-\*: change the claims at its issuer/],
    ];
    for (const [claims, code, fix] of cases) {
      const { refusal } = await explain(claims);
      assert.equal(refusal.code, code);
      assert.match(refusal.fix, fix);
    }
  });
});
