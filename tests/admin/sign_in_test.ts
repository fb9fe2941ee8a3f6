/**
 * Sign-in of operators at a real identity provider (`oidc-provider`): the exchange of a code, and
 * everything that must not sign an operator in.
 */
// runtimes: bun, deno, node
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { type AdminOptions, assertRefusal, type Running, startAdmin } from "../support/admin.ts";
import { it } from "../support/cases.ts";
import { freePort } from "../support/free_port.ts";
import {
  CLIENT_ID,
  CLIENT_SECRET,
  type IdentityProvider,
  signInAt,
  startIdentityProvider,
} from "../support/oidc.ts";
import { runCommand } from "../support/command.ts";
import { until } from "../support/until.ts";

describe("sign-in at an identity provider", () => {
  let provider: IdentityProvider;
  let running: Running;
  let page: string;
  beforeEach(async () => {
    page = `http://127.0.0.1:${await freePort()}/`;
    provider = await startIdentityProvider(page);
  });
  afterEach(async () => {
    await running?.stop();
    await provider.stop();
  });

  const start = async (
    signIn: Record<string, unknown> = {},
    more: Record<string, unknown> = {},
    options: AdminOptions = {},
    port = Number(new URL(page).port),
  ) =>
    running = await startAdmin(
      {
        admin: { port, token: "an-admin-token-of-32-characters!" },
        identity: [{
          issuer: provider.url,
          audience: [CLIENT_ID, `${CLIENT_ID}-2`],
          name: "corp",
          callers: false,
          admin: {
            role: { claim: "roles", map: { "gw-admins": "admin", "gw-readers": "viewer" } },
            signIn: { clientId: CLIENT_ID, url: page, scopes: [], ...signIn },
          },
          ...more,
        }],
      },
      undefined,
      options,
    );

  const secret = () => randomBytes(32).toString("base64url");
  /** Signs in at the provider, as the page does. @returns The grant that the page sends */
  async function getGrant(name: string, nonce = secret()) {
    const { json } = await running.call("GET", "/v1/sign-in/corp", { authorization: "" });
    const url = new URL(json.url);
    const [verifier, state] = [secret(), secret()];
    url.searchParams.set("state", state);
    url.searchParams.set("nonce", nonce);
    const challenge = createHash("sha256").update(verifier).digest("base64url");
    url.searchParams.set("code_challenge", challenge);
    const { searchParams } = await signInAt(url.href, name, page);
    assert.equal(searchParams.get("state"), state);
    const code = String(searchParams.get("code"));
    return { issuer: "corp", code, iss: String(searchParams.get("iss")), verifier, nonce };
  }
  const end = (body: unknown) => running.call("POST", "/v1/sign-in", { authorization: "", body });

  it("gives each operator a token with the role of the claims", async () => {
    await start();
    const { json } = await running.call("GET", "/v1/sign-in", { authorization: "" });
    assert.deepEqual(json, { issuers: [{ name: "corp" }] });
    for (const [name, role] of [["ada", "admin"], ["vera", "viewer"]] as const) {
      const answer = await end(await getGrant(name));
      assert.equal(answer.status, 200, answer.text);
      const authorization = `Bearer ${answer.json.token}`;
      const me = await running.call("GET", "/v1/me", { authorization });
      assert.deepEqual(me.json, { who: `jwt:corp:${name}`, role });
      await running.program.waitFor(new RegExp(`("audit":"signIn","who":"jwt:corp:${name}")`));
    }
  });

  it("identifies the gateway with a client secret, which check does not print", async () => {
    await start({ clientId: `${CLIENT_ID}-2`, clientSecret: CLIENT_SECRET });
    assert.equal((await end(await getGrant("ada"))).status, 200);
    const checked = await runCommand(["check"], { cwd: running.at.path });
    assert.match(checked.stdout, /"clientSecret": "\(masked\)"/);
    assert.ok(!checked.stdout.includes(CLIENT_SECRET));
  });

  it("reads the client secret for each sign-in from a file of its owner, or a variable", async () => {
    const place = mkdtempSync(join(tmpdir(), "sallyport-"));
    const file = join(place, "client-secret");
    const signIn = { clientId: `${CLIENT_ID}-2`, clientSecret: { file } };
    try {
      await start(signIn);
      assertRefusal(await end(await getGrant("ada")), 503, "sign_in_unavailable");
      await running.program.waitFor(/Cannot read a client secret: the file .* \(ENOENT\)/);
      writeFileSync(file, `${CLIENT_SECRET}\n`, { mode: 0o600 });
      assert.equal((await end(await getGrant("ada"))).status, 200);
      const checked = await runCommand(["check"], { cwd: running.at.path });
      assert.equal(checked.status, 0, checked.stderr);
      assert.ok(!checked.stdout.includes(CLIENT_SECRET));
      writeFileSync(file, "another-secret-of-the-console");
      assertRefusal(await end(await getGrant("ada")), 401, "sign_in_failed");
      chmodSync(file, 0o640);
      const refused = await end(await getGrant("ada"));
      assertRefusal(refused, 503, "sign_in_unavailable");
      assert.ok(!refused.text.includes(file));
      await running.program.waitFor(/client-secret can be used by others than its owner/);
      const wide = await runCommand(["check"], { cwd: running.at.path });
      assert.equal(wide.status, 2);
      assert.match(wide.stderr, /signIn\.clientSecret: Cannot read a client secret: .*chmod 600/);
      assert.match(wide.stderr, /sign-ins would be refused/);
    } finally {
      rmSync(place, { recursive: true });
    }
    await running.stop();
    const env = { CONSOLE_SECRET: CLIENT_SECRET };
    await start({ ...signIn, clientSecret: { env: "CONSOLE_SECRET" } }, {}, { env });
    assert.equal((await end(await getGrant("ada"))).status, 200);
  });

  it("ends at another gateway than the one where it began", async () => {
    await start();
    const first = running;
    try {
      const grant = await getGrant("ada");
      // The second listens elsewhere, as behind a load balancer with one name for both.
      await start({}, {}, {}, 0);
      const answer = await end(grant);
      assert.equal(answer.status, 200, answer.text);
      const authorization = `Bearer ${answer.json.token}`;
      for (const each of [first, running]) {
        const me = await each.call("GET", "/v1/me", { authorization });
        assert.deepEqual(me.json, { who: "jwt:corp:ada", role: "admin" });
      }
    } finally {
      await first.stop();
    }
  });

  it("signs no one in with a code of another sign-in, twice, or without its secrets", async () => {
    await start();
    const [one, other] = [await getGrant("ada"), await getGrant("ada")];
    const wrong = [
      { ...one, verifier: other.verifier },
      { ...other, nonce: one.nonce },
      { ...await getGrant("ada"), iss: "https://other.example" },
      { ...await getGrant("ada"), iss: undefined },
      { ...await getGrant("ada"), code: "made-up" },
      { ...await getGrant("ada"), issuer: "elsewhere" },
    ];
    for (const grant of wrong) assertRefusal(await end(grant), 401, "sign_in_failed");
    const good = await getGrant("ada");
    assert.equal((await end(good)).status, 200);
    assertRefusal(await end(good), 401, "sign_in_failed");
    for (const body of [{}, { ...good, code: "" }, { ...good, more: 1 }, []]) {
      assert.equal((await end(body)).status, 400, JSON.stringify(body));
    }
    const printed = running.program.stdout() + running.program.stderr();
    for (const { code, verifier, nonce } of [one, other, good]) {
      for (const each of [code, verifier, nonce]) assert.ok(!printed.includes(each));
    }
  });

  it("says that an operator without a role is known, but has none", async () => {
    await start();
    const answer = await end(await getGrant("eve"));
    assertRefusal(answer, 401, "sign_in_failed");
    assert.match(answer.text, /have no role at this gateway/);
    assert.ok(!answer.text.includes("eyJ"), "the token is told");
  });

  it("says why it cannot accept a token, such as an access token that is none for it", async () => {
    await start({ token: "access" });
    const answer = await end(await getGrant("ada"));
    assertRefusal(answer, 401, "sign_in_failed");
    assert.match(answer.text, /its token cannot be accepted \(token_form\)/);
  });

  it("says so if the identity provider does not answer", async () => {
    await start();
    const grant = await getGrant("ada");
    await provider.stop();
    assertRefusal(await end(grant), 503, "sign_in_unavailable");
    // Its description is used for a minute.
    const begun = await running.call("GET", "/v1/sign-in/corp", { authorization: "" });
    assert.equal(begun.status, 200);
    provider = await startIdentityProvider(page);
  });

  /** Starts an issuer that does not answer codes. */
  async function startStandIn(description: Record<string, unknown>) {
    const waiting: ServerResponse[] = [];
    const server = createServer(({ url }, response) => {
      if (url === "/token") return void waiting.push(response);
      const { port } = server.address() as AddressInfo;
      const issuer = `http://127.0.0.1:${port}`;
      const stated = {
        issuer,
        jwks_uri: issuer,
        token_endpoint: `${issuer}/token`,
        ...description,
      };
      response.setHeader("content-type", "application/json").end(JSON.stringify(stated));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const close = () => new Promise((resolve) => server.close(resolve).closeAllConnections());
    return { issuer: `http://127.0.0.1:${port}`, waiting, close };
  }

  it("exchanges sixteen codes at the same time, and refuses more", async () => {
    const standIn = await startStandIn({});
    try {
      await start({}, { issuer: standIn.issuer });
      const grant = { issuer: "corp", code: "c", verifier: "v".repeat(43), nonce: "n" };
      const pending = Array.from({ length: 16 }, () => end(grant));
      await until(() => standIn.waiting.length === 16, "all codes arrive");
      assertRefusal(await end(grant), 429, "too_many_sign_ins");
      for (const response of standIn.waiting) response.socket?.destroy();
      for (const answer of await Promise.all(pending)) {
        assertRefusal(answer, 503, "sign_in_unavailable");
      }
    } finally {
      await standIn.close();
    }
  });

  it("sends codes only to the configured address, whatever Host a request has", async () => {
    await start();
    const headers = { host: "evil.example", "x-forwarded-host": "evil.example" };
    const answer = await fetch(`${running.admin}/v1/sign-in/corp`, { headers });
    const { url } = await answer.json();
    assert.equal(new URL(url).searchParams.get("redirect_uri"), page);
  });

  it.once("is checked with the configuration", async () => {
    await start();
    const mistakes: [Record<string, unknown>, RegExp][] = [
      [{ url: "http://gateway.example/" }, /expected the address of the console/],
      [{ url: "https://gateway.example/?a=b" }, /expected the address of the console/],
      [{ clientId: "other" }, /expected admin\.signIn\.clientId in audience/],
      [{ scopes: ["a b"] }, /expected a scope without spaces/],
      [{ token: "any" }, /expected "id" or "access"/],
      [{ clientSecret: "short" }, /clientSecret: expected 16 to 512 visible ASCII characters/],
      [{ clientSecret: { file: "a", env: "B" } }, /clientSecret: expected .*, one of them/],
      [{ clientSecret: {} }, /clientSecret: expected { "file": … } or { "env": … }, one of them/],
      [{ clientSecret: { exec: ["a"] } }, /clientSecret\.exec: unknown setting/],
      [{ clientSecret: 5 }, /expected the secret .*, { "file": … } or { "env": … }/],
    ];
    for (const [signIn, expected] of mistakes) {
      const identity = [{
        issuer: provider.url,
        audience: CLIENT_ID,
        name: "corp",
        admin: { role: "roles", signIn: { clientId: CLIENT_ID, url: page, ...signIn } },
      }];
      running.at.configure({
        admin: { port: 0, token: "an-admin-token-of-32-characters!" },
        identity,
      });
      const { status, stderr } = await runCommand(["check"], { cwd: running.at.path });
      assert.equal(status, 2, stderr);
      assert.match(stderr, expected);
    }
  });
});
