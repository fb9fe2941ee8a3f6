/**
 * Operators with identity tokens at the admin listener: their roles, the audit log of their
 * changes, and revocations.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { Redis } from "ioredis";
import type { ChangeView } from "../../src/admin/changes.ts";
import { assertRefusal, type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { isElsewhere, it } from "../support/cases.ts";
import { AUDIENCE, startIssuer, type TestIssuer } from "../support/issuer.ts";
import { runCommand } from "../support/command.ts";
import { startProgram } from "../support/program.ts";
import { type RedisServer, startRedis, withRedis } from "../support/redis.ts";
import { until, untilSoon } from "../support/until.ts";

describe("the admin listener with identity tokens", () => {
  let issuer: TestIssuer;
  let running: Running | undefined;
  let redis: RedisServer | undefined;
  let direct: Redis | undefined;
  const shown: string[] = [];
  beforeEach(async () => {
    issuer = await startIssuer();
  });
  afterEach(async () => {
    const output = running === undefined ? "" : running.program.stdout() + running.program.stderr();
    for (
      const secret of [
        TOKEN,
        ...shown.splice(0).flatMap((token) => token.split(".").slice(1)),
      ]
    ) {
      assert.ok(!output.includes(secret), "a token is told");
    }
    await running?.stop();
    running = undefined;
    direct?.disconnect();
    direct = undefined;
    await redis?.stop();
    redis = undefined;
    await issuer.stop().catch(() => {});
  });

  const identity = (more: Record<string, unknown> = {}) => [{
    issuer: issuer.url,
    audience: AUDIENCE,
    name: "corp",
    admin: { role: { claim: "roles", map: { "gw-admins": "admin", "gw-readers": "viewer" } } },
    ...more,
  }];
  const start = async (
    more: Record<string, unknown> = {},
    options: Parameters<typeof startAdmin>[2] = {},
  ) => running = await startAdmin({ identity: identity(), ...more }, redis, options);
  const bearer = async (claims: Record<string, unknown>): Promise<{ authorization: string }> => {
    const token = await issuer.token({ claims });
    shown.push(token);
    return { authorization: `Bearer ${token}` };
  };
  const audits = (): Record<string, unknown>[] =>
    (running?.program.stdout() ?? "").split("\n").filter((line) => line.includes('"audit":')).map((
      line,
    ) => JSON.parse(line));
  const token = async (claims: Record<string, unknown> = {}): Promise<string> => {
    const made = await issuer.token({ claims });
    shown.push(made);
    return made;
  };

  it("lets viewers read and admins change, and writes a line for each change", async () => {
    const { call } = await start();
    const viewer = await bearer({ sub: "vera", roles: ["gw-readers", "other"] });
    const admin = await bearer({ sub: "ada", roles: ["gw-readers", "gw-admins"] });
    for (const path of ["/v1/keys", "/v1/teams", "/v1/usage", "/v1/tokens/revoked"]) {
      assert.equal((await call("GET", path, viewer)).status, 200, path);
    }
    assert.deepEqual((await call("GET", "/v1/me", viewer)).json, {
      who: "jwt:corp:vera",
      role: "viewer",
    });
    assert.deepEqual((await call("GET", "/v1/me")).json, { who: "admin token", role: "admin" });
    assertRefusal(
      await call("POST", "/v1/keys", { ...viewer, body: { name: "x" } }),
      403,
      "role_not_allowed",
    );
    assertRefusal(await call("POST", "/v1/drain", viewer), 403, "role_not_allowed");
    const made = await call("POST", "/v1/keys", { ...admin, body: { name: "x" } });
    assert.equal(made.status, 201);
    const { id, key } = made.json;
    assertRefusal(await call("POST", "/v1/keys/nobody/revoke", admin), 404, "key_not_found");
    assert.equal((await call("PATCH", `/v1/keys/${id}`, { body: { name: "y" } })).status, 200);
    assert.equal((await call("POST", `/v1/keys/${id}/revoke`)).status, 200);
    assert.equal((await call("POST", "/v1/drain", admin)).status, 200);
    await until(() => audits().length === 7, "all lines");
    assert.deepEqual(
      audits().map(({ time, ...rest }) => (assert.match(String(time), /^20\d\d-.*Z$/), rest)),
      [
        {
          audit: "createKey",
          who: "jwt:corp:vera",
          role: "viewer",
          route: "POST /v1/keys",
          outcome: "role_not_allowed",
        },
        {
          audit: "drain",
          who: "jwt:corp:vera",
          role: "viewer",
          route: "POST /v1/drain",
          outcome: "role_not_allowed",
        },
        {
          audit: "createKey",
          who: "jwt:corp:ada",
          role: "admin",
          route: "POST /v1/keys",
          target: id,
          outcome: "ok",
        },
        {
          audit: "revokeKey",
          who: "jwt:corp:ada",
          role: "admin",
          route: "POST /v1/keys/{id}/revoke",
          target: "nobody",
          outcome: "key_not_found",
        },
        {
          audit: "updateKey",
          who: "admin token",
          role: "admin",
          route: "PATCH /v1/keys/{id}",
          target: id,
          outcome: "ok",
        },
        {
          audit: "revokeKey",
          who: "admin token",
          role: "admin",
          route: "POST /v1/keys/{id}/revoke",
          target: id,
          outcome: "ok",
        },
        {
          audit: "drain",
          who: "jwt:corp:ada",
          role: "admin",
          route: "POST /v1/drain",
          outcome: "ok",
        },
      ],
    );
    assert.ok(!running?.program.stdout().includes(key));
  });

  it.once("also writes these lines as text, and without an access log", async () => {
    const { call, program } = await start({}, { args: ["--log", "off"] });
    assert.equal((await call("POST", "/v1/drain")).status, 200);
    await until(() => program.stdout().includes('"audit":"drain"'), "the line");
  });

  it.once("refuses tokens without a role, bad tokens, and tokens for callers only", async () => {
    const { call } = await start({ identity: identity({ audience: [AUDIENCE, "other"] }) });
    const now = Math.floor(Date.now() / 1000);
    const bad = [{}, { roles: "viewer" }, { roles: ["gw-admins"], exp: now - 60 }, {
      roles: ["gw-admins"],
      aud: "x",
    }];
    for (const claims of bad) {
      assertRefusal(
        await call("GET", "/v1/keys", await bearer(claims)),
        401,
        "invalid_admin_token",
      );
    }
  });

  it("refuses operators whose tokens lack the issuer's required claims", async () => {
    const { call } = await start({ identity: identity({ require: { org: "mine" } }) });
    const admin = { roles: ["gw-admins"] };
    assert.equal(
      (await call("GET", "/v1/keys", await bearer({ ...admin, org: "mine" }))).status,
      200,
    );
    for (const claims of [admin, { ...admin, org: "another" }]) {
      assertRefusal(
        await call("GET", "/v1/keys", await bearer(claims)),
        401,
        "invalid_admin_token",
      );
    }
  });

  it.once("works without an admin token, and then refuses requests without a token", async () => {
    const { call } = await start({ admin: { port: 0 } });
    assertRefusal(await call("GET", "/v1/keys", { authorization: "" }), 401, "invalid_admin_token");
    assert.equal(
      (await call("GET", "/v1/keys", await bearer({ roles: ["gw-readers"] }))).status,
      200,
    );
  });

  it("reports the age of an issuer's keys, and keeps using them while the issuer is down", async () => {
    const { call, chat, admin } = await start({ identity: identity({ refresh: "1s" }) });
    assert.equal(await chat(await token()), 200);
    await issuer.stop();
    const health = async () => (await call("GET", "/readyz")).json.identity[0];
    await until(async () => (await health()).failures > 0, "a fetch that fails");
    const { name, keys, ageSeconds, failure } = await health();
    assert.deepEqual([name, keys, typeof ageSeconds, typeof failure], [
      "corp",
      1,
      "number",
      "string",
    ]);
    assert.equal(await chat(await token({ sub: "bob" })), 200);
    const metrics =
      await (await fetch(`${admin}/metrics`, { headers: { authorization: `Bearer ${TOKEN}` } }))
        .text();
    assert.match(metrics, /^sallyport_identity_keys\{issuer="corp"\} 1$/m);
    assert.match(metrics, /^sallyport_identity_keys_age_seconds\{issuer="corp"\} \d+$/m);
    assert.match(
      metrics,
      /^sallyport_identity_tokens_total\{issuer="corp",result="verified"\} 2$/m,
    );
    await issuer.rotate();
    await issuer.start();
    await until(async () => await chat(await token()) === 200, "the issuer's new key");
  });

  it.once("starts while an issuer is down, and accepts its tokens once it is up", async () => {
    await issuer.stop();
    const { chat, at } = await start();
    assert.equal(await chat(await token()), 503);
    const { key } = await at.create();
    assert.equal(await chat(key), 200);
    await issuer.start();
    await until(async () => await chat(await token()) === 200, "the issuer");
  });

  const chatAt = async (url: string, key: string): Promise<number> => {
    const headers = {
      authorization: "Bearer sk-1",
      "gateway-auth": `Bearer ${key}`,
      "content-type": "application/json",
    };
    const body = '{"model":"m","messages":[{"role":"user","content":"x"}]}';
    const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
    await response.text();
    return response.status;
  };

  const REVOKED = (makes: () => Promise<Running>) => async () => {
    const { call, chat, at } = await makes();
    const iat = Math.floor(Date.now() / 1000) - 60;
    const [one, two, bob] = [
      await token({ jti: "one", iat }),
      await token({ jti: "two", iat }),
      await token({ sub: "bob", iat }),
    ];
    for (const each of [one, two, bob]) assert.equal(await chat(each), 200);
    const second = startProgram(["serve"], { cwd: at.path });
    const url = await second.waitFor(/listening on (http:\S+)/);
    const chatThere = (key: string) => chatAt(url, key);
    assert.equal(await chatThere(one), 200);
    const revoked = await call("POST", "/v1/tokens/revoke", { body: { jti: "one" } });
    assert.equal(revoked.status, 200, revoked.text);
    const [status] = await Promise.all([
      chat(one),
      untilSoon(async () => await chatThere(one) === 401, "the other gateway", 1000),
    ]);
    assert.equal(status, 401);
    assert.equal(await chat(two), 200);
    assert.equal(
      (await call("POST", "/v1/tokens/revoke", { body: { id: "jwt:corp:ann" } })).status,
      200,
    );
    await until(async () => await chatThere(two) === 401, "the other gateway");
    assert.equal(await chat(bob), 200);
    assert.equal(
      (await call("POST", "/v1/tokens/revoke", { body: { subject: "bob" } })).status,
      200,
    );
    assert.equal(await chat(bob), 401);
    // A token that is issued later is a different one.
    assert.equal(
      await chat(await token({ sub: "bob", iat: Math.floor(Date.now() / 1000) + 29, jti: "n" })),
      401,
    );
    const { json } = await call("GET", "/v1/tokens/revoked");
    assert.deepEqual(json.revoked.map(({ id }: { id: string }) => id), [
      "subject bob",
      "jwt:corp:ann",
      "jti one",
    ]);
    // The command line shows and does the same.
    const listed = await runCommand(["tokens", "list", "--json"], { cwd: at.path });
    assert.deepEqual(JSON.parse(listed.stdout), json.revoked);
    const carl = await token({ sub: "carl", iat });
    assert.equal(await chatThere(carl), 200);
    const reason = ["--reason", "left the company"];
    const ran = await runCommand(["tokens", "revoke", "jwt:corp:carl", ...reason], {
      cwd: at.path,
    });
    assert.equal(ran.status, 0, ran.stderr);
    await until(async () => await chatThere(carl) === 401, "what the command line has revoked");
    const none = await runCommand(["tokens", "revoke", "tester"], { cwd: at.path });
    assert.deepEqual([none.status, none.stdout], [2, ""]);
    assert.match(none.stderr, /^sallyport: Cannot find the issuer of this id[^\n]*\n$/);
    const changes = (await call("GET", "/v1/changes")).json.changes as ChangeView[];
    assert.deepEqual(
      changes.map(({ of, action, id, who }) => [of, action, id, who.replace(/^cli:.*/, "cli")]),
      [
        ["token", "revoke", "jwt:corp:carl", "cli"],
        ["token", "revoke", "subject bob", "admin token"],
        ["token", "revoke", "jwt:corp:ann", "admin token"],
        ["token", "revoke", "jti one", "admin token"],
      ],
    );
    assert.equal(changes[0]?.reason, "left the company");
    assert.deepEqual(changes[3]?.settings, [{ setting: "issuer", to: issuer.url }]);
    const ofAnn = (await call("GET", "/v1/changes?key=jwt:corp:ann")).json.changes;
    assert.deepEqual(ofAnn, [changes[2]]);
    // It survives a restart.
    const third = startProgram(["serve"], { cwd: at.path });
    const thirdUrl = await third.waitFor(/listening on (http:\S+)/);
    const headers = {
      authorization: "Bearer sk-1",
      "gateway-auth": `Bearer ${two}`,
      "content-type": "application/json",
    };
    const response = await fetch(`${thirdUrl}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: "{}",
    });
    assert.equal(response.status, 401, await response.text());
    assertRefusal(await call("POST", "/v1/tokens/revoke", { body: {} }), 409, "refused");
    assertRefusal(
      await call("POST", "/v1/tokens/revoke", { body: { id: "tester" } }),
      409,
      "refused",
    );
  };

  it.once("revokes tokens on all gateways that share a file of keys", REVOKED(() => start()));

  it("revokes tokens on all workers", async () => {
    const { call, chat, at } = await start({}, { args: ["--workers", "2"] });
    const one = await token({ jti: "one" });
    assert.equal(await chat(one), 200);
    assert.equal((await call("POST", "/v1/tokens/revoke", { body: { jti: "one" } })).status, 200);
    let refusals = 0;
    await until(
      async () => (refusals = await chat(one) === 401 ? refusals + 1 : 0) >= 20,
      "all workers",
    );
    const file = join(at.path, "keys.revoked.json");
    assert.match(readFileSync(file, "utf8"), /"value": "one"/);
    // A damaged file does not undo any revocation.
    writeFileSync(file, "{");
    await until(
      () => (running?.program.reports() ?? "").includes("The previous ones stay revoked"),
      "the message",
    );
    assert.equal(await chat(one), 401);
  });

  const { it: onRedis } = isElsewhere ? { it: () => {} } : withRedis;
  onRedis("revokes tokens on all gateways that share a Redis", async () => {
    redis = await startRedis();
    await REVOKED(() => start())();
  });

  for (const loss of ["is flushed", "starts again empty"]) {
    onRedis(
      `keeps revoked tokens refused everywhere when Redis ${loss} and one more is revoked`,
      async () => {
        redis = await startRedis();
        const raw = direct = new Redis(redis.url, {
          retryStrategy: () => 20,
          maxRetriesPerRequest: null,
        });
        raw.on("error", () => {});
        const { call, chat, at } = await start();
        const second = startProgram(["serve"], { cwd: at.path });
        const there = await second.waitFor(/listening on (http:\S+)/);
        const revoke = (jti: string) => call("POST", "/v1/tokens/revoke", { body: { jti } });
        const [one, two, three] = [
          await token({ jti: "one" }),
          await token({ jti: "two" }),
          await token({ jti: "three" }),
        ];
        assert.equal((await revoke("one")).status, 200);
        await until(
          async () => await chatAt(there, one) === 401,
          "the other gateway knows the first",
        );
        for (const each of [two, three]) assert.equal(await chatAt(there, each), 200);
        await (loss === "is flushed" ? raw.flushall() : redis.restart());
        // The number of revocations is now the same as before the loss.
        await until(async () => (await revoke("two")).status === 200, "the second is revoked");
        await until(
          async () => await chatAt(there, two) === 401,
          "the other gateway knows the second",
        );
        assert.equal((await revoke("three")).status, 200);
        await until(
          async () => await chatAt(there, three) === 401,
          "the other gateway knows the third",
        );
        const listed = async () => {
          const { json } = await call("GET", "/v1/tokens/revoked");
          return json.revoked.map(({ id }: { id: string }) => id).sort();
        };
        const all = ["jti one", "jti three", "jti two"];
        await until(
          async () => await raw.zcard("sallyport:{revoked}:tokens") === all.length,
          "all are written back",
        );
        assert.deepEqual(await listed(), all);
        const third = startProgram(["serve"], { cwd: at.path });
        const late = await third.waitFor(/listening on (http:\S+)/);
        for (const each of [one, two, three]) {
          assert.equal(await chat(each), 401);
          for (const url of [there, late]) assert.equal(await chatAt(url, each), 401);
        }
      },
    );
  }
});
