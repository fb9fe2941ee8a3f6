/**
 * Sign-in at an identity provider that misbehaves: what it names, says and answers must not harm the
 * gateway, its log, or the secret of its client.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { assertRefusal, type Running, startAdmin } from "../support/admin.ts";
import { CLIENT_ID, CLIENT_SECRET } from "../support/oidc.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const json = (response: ServerResponse, status: number, content: unknown) =>
  void response.writeHead(status, { "content-type": "application/json" })
    .end(JSON.stringify(content));

describe("sign-in at an identity provider that misbehaves", () => {
  let running: Running;
  let issuer: string;
  let description: Record<string, unknown>;
  let answerDescription: Answer;
  let answerCode: Answer;
  let descriptions: number;
  let codes: number;
  const server = createServer((request, response) => {
    if (request.url === "/token") {
      codes++;
      return answerCode(request, response);
    }
    descriptions++;
    answerDescription(request, response);
  });
  beforeEach(async () => {
    await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
    issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    description = {
      issuer,
      jwks_uri: `${issuer}/keys`,
      authorization_endpoint: `${issuer}/auth`,
      token_endpoint: `${issuer}/token`,
    };
    answerDescription = (_request, response) => json(response, 200, description);
    answerCode = (_request, response) => json(response, 400, { error: "invalid_grant" });
    descriptions = codes = 0;
  });
  afterEach(async () => {
    await running?.stop();
    await new Promise((resolve) => server.close(resolve).closeAllConnections());
  });

  const start = async (signIn: Record<string, unknown> = {}) => {
    running = await startAdmin({
      admin: { port: 0, token: "an-admin-token-of-32-characters!" },
      identity: [{
        issuer,
        audience: CLIENT_ID,
        name: "corp",
        callers: false,
        admin: {
          role: { claim: "roles", map: { "gw-admins": "admin" } },
          signIn: { clientId: CLIENT_ID, url: "http://127.0.0.1/", ...signIn },
        },
      }],
    });
  };
  const begin = () => running.call("GET", "/v1/sign-in/corp", { authorization: "" });
  const end = (more: Record<string, unknown> = {}) =>
    running.call("POST", "/v1/sign-in", {
      authorization: "",
      body: { issuer: "corp", code: "c", verifier: "v".repeat(43), nonce: "n", ...more },
    });
  const linesOf = (text: string) => running.program.stdout().split(text).length - 1;

  it("leads browsers to no address that is not https or on this machine, whatever it looks like", async () => {
    const endpoints = [
      "javascript:alert(1)",
      "http://evil.example/auth",
      "http://localhost:80@evil.example/auth",
      "https://name:password@evil.example/auth",
      ["https://evil.example/auth"],
    ];
    for (const endpoint of endpoints) {
      description.authorization_endpoint = endpoint;
      await start();
      const begun = await begin();
      assertRefusal(begun, 503, "sign_in_unavailable");
      assert.match(begun.text, /it names no https authorization_endpoint/);
      await running.stop();
    }
  });

  it("sends the client secret to no address that is not https or on this machine", async () => {
    const outside = Object.values(networkInterfaces()).flat()
      .find((each) => each?.family === "IPv4" && !each.internal)?.address ?? "0.0.0.0";
    const { port } = server.address() as AddressInfo;
    for (const host of [outside, `127.0.0.1:1@${outside}`]) {
      description.token_endpoint = `http://${host}:${port}/token`;
      await start({ clientSecret: CLIENT_SECRET });
      assertRefusal(await end(), 503, "sign_in_unavailable");
      await running.stop();
    }
    assert.equal(codes, 0);
  });

  it("asks a failing provider for its description once a second, however many operators ask", async () => {
    answerDescription = (_request, response) => json(response, 500, {});
    await start();
    const answers = await Promise.all(Array.from({ length: 20 }, begin));
    answers.push(await begin());
    for (const answer of answers) assertRefusal(answer, 503, "sign_in_unavailable");
    assert.ok(descriptions <= 2, `${descriptions} requests`);
  });

  it("says that a provider is unavailable if its answer to a code is none", async () => {
    await start();
    const answers: Answer[] = [
      (_request, response) => void response.writeHead(500).end(),
      (_request, response) => void response.writeHead(302, { location: "/other" }).end(),
      (_request, response) =>
        void response.writeHead(200, { "content-type": "application/json" }).end("<html>"),
    ];
    for (const answer of answers) {
      answerCode = answer;
      assertRefusal(await end(), 503, "sign_in_unavailable");
    }
  });

  it("tells strangers no word of a provider that is not in the standard", async () => {
    await start({ clientSecret: CLIENT_SECRET });
    answerCode = (_request, response) => json(response, 400, { error: CLIENT_SECRET });
    const refused = await end();
    assertRefusal(refused, 401, "sign_in_failed");
    assert.match(refused.text, /it refuses the code \(unknown\)/);
  });

  it("writes one audit line for the failures of a second, and names no operator in it", async () => {
    await start();
    assertRefusal(await end(), 401, "sign_in_failed");
    const line = await running.program.waitFor(/(\{.*"audit":"signIn".*\})/);
    const { who, role, outcome } = JSON.parse(line);
    assert.deepEqual([who, role, outcome], ["someone at corp", undefined, "sign_in_failed"]);
    const failures = Array.from({ length: 20 }, () => end({ issuer: "made-up" }));
    for (const answer of await Promise.all(failures)) assertRefusal(answer, 401, "sign_in_failed");
    // The audit of another change is written after all of them.
    await running.call("POST", "/v1/keys/none/revoke", { body: {} });
    await running.program.waitFor(/("audit":"revokeKey")/);
    assert.ok(linesOf('"audit":"signIn"') <= 3, running.program.stdout());
  });

  it("reports a client secret that cannot be read once, however many operators try", async () => {
    await start({ clientSecret: { file: "/nonexistent/client-secret" } });
    // The start reports it on its own, and may do so after the gateway listens.
    await running.program.waitFor(/(Cannot read a client secret)/);
    for (let tries = 0; tries < 5; tries++) {
      assertRefusal(await end(), 503, "sign_in_unavailable");
    }
    await running.call("POST", "/v1/keys/none/revoke", { body: {} });
    await running.program.waitFor(/("audit":"revokeKey")/);
    assert.equal(linesOf("Cannot read a client secret"), 2, running.program.stdout());
  });
});
