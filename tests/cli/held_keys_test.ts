/** Held provider keys at the command line: `check` finds sources that can't be read. */
// runtimes: once
import assert from "node:assert/strict";
import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
import { isRunning } from "../support/program.ts";
import { callRaw } from "../support/tcp_peer.ts";
import { GOOD_BODY } from "../support/gateway.ts";
import { until } from "../support/until.ts";

describe("a source of a held key", () => {
  let running: Running;
  afterEach(() => running.stop());

  const toConfig = (upstream: string, upstreamKey: object, other: object = {}) => ({
    admin: { port: 0, token: TOKEN },
    drain: { delay: "0s" },
    providers: { a: { upstream, hosts: ["*"], upstreamKey } },
    ...other,
  });

  it("that can't be read is reported by the start and by check, which runs no command", async () => {
    running = await startAdmin({}, undefined, {
      providers: (upstream) =>
        toConfig(upstream, { file: "secret" }).providers as Record<string, unknown>,
    });
    await running.program.waitFor(
      /providers\.a\.upstreamKey: Cannot read a held key: the file \S+secret cannot be read \(ENOENT\)/,
    );
    const upstream = running.provider.url;
    const check = (...args: string[]) => runCommand(["check", ...args], { cwd: running.at.path });
    const limits = { requests: "100/min" };
    const touched = join(running.at.path, "touched");
    running.at.configure(toConfig(upstream, { exec: ["/bin/touch", touched] }, {
      teams: { ads: { limits, upstreamKeys: { a: { env: "ABSENT_VARIABLE" } } } },
    }));
    const refused = await check();
    assert.equal(refused.status, 2);
    assert.match(
      refused.stderr,
      /teams\.ads\.upstreamKeys\.a: Cannot read a held key: the variable ABSENT_VARIABLE is not set/,
    );
    assert.doesNotMatch(refused.stderr, /touch|sound/);
    assert.ok(refused.stdout.includes('"(masked)"') && !refused.stdout.includes("touched"));
    assert.equal((await check("--force")).status, 0);
    writeFileSync(join(running.at.path, "secret"), "held-1");
    chmodSync(join(running.at.path, "secret"), 0o644);
    running.at.configure(toConfig(upstream, { file: "secret" }));
    assert.match(
      (await check()).stderr,
      /secret can be used by others than its owner: run chmod 600/,
    );
  });

  it("that fails at a reload keeps the key that was read before in use", async () => {
    running = await startAdmin({}, undefined, {
      providers: (upstream) =>
        toConfig(upstream, { file: "secret" }).providers as Record<string, unknown>,
    });
    writeFileSync(join(running.at.path, "secret"), "held-1", { mode: 0o600 });
    const { key } = (await running.call("POST", "/v1/keys", { body: { heldKeys: true } })).json;
    const call = async () =>
      (await callRaw(running.url, {
        path: "/v1/chat/completions",
        headers: { "gateway-auth": `Bearer ${key}`, "content-type": "application/json" },
        body: GOOD_BODY,
      })).status;
    assert.equal(await call(), 200);
    rmSync(join(running.at.path, "secret"));
    process.kill(running.program.pid, "SIGHUP");
    await running.program.waitFor(/the configuration was reloaded/);
    assert.equal(await call(), 200);
    assert.equal(running.provider.calls.at(-1)?.headers.authorization, "Bearer held-1");
  });

  it("that is slow after a reload keeps the key that was read before in use", async () => {
    const script = "if [ -f slow ]; then echo $$ > pid; exec sleep 300; fi; echo held-1";
    const source = { exec: ["/bin/sh", "-c", script] };
    running = await startAdmin({}, undefined, {
      providers: (upstream) => toConfig(upstream, source).providers as Record<string, unknown>,
    });
    const { key } = (await running.call("POST", "/v1/keys", { body: { heldKeys: true } })).json;
    const call = async () =>
      (await callRaw(running.url, {
        path: "/v1/chat/completions",
        headers: { "gateway-auth": `Bearer ${key}`, "content-type": "application/json" },
        body: GOOD_BODY,
      })).status;
    assert.equal(await call(), 200);
    writeFileSync(join(running.at.path, "slow"), "");
    process.kill(running.program.pid, "SIGHUP");
    await running.program.waitFor(/the configuration was reloaded/);
    assert.equal(await call(), 200);
    const pid = () => Number(readFileSync(join(running.at.path, "pid"), "utf8"));
    await until(() => existsSync(join(running.at.path, "pid")) && pid() > 0, "it is read again");
    assert.ok(isRunning(pid()), "the call did not wait for it");
    assert.equal(running.provider.calls.at(-1)?.headers.authorization, "Bearer held-1");
  });

  it("whose key the provider refuses is reported once until it works, and counts as an error", async () => {
    let status = 401;
    running = await startAdmin({ teams: { ads: { limits: { requests: "100/min" } } } }, undefined, {
      answering: (response) => response.writeHead(status).end("{}"),
      providers: (upstream) =>
        toConfig(upstream, { env: "HELD" }).providers as Record<string, unknown>,
      env: { HELD: "held-1" },
    });
    const { key } = (await running.call("POST", "/v1/keys", {
      body: { heldKeys: true, team: "ads" },
    })).json;
    const headers = { "gateway-auth": `Bearer ${key}`, "content-type": "application/json" };
    for (const each of [401, 401, 403, 200, 401]) {
      status = each;
      const { status: answered } = await callRaw(running.url, {
        path: "/v1/chat/completions",
        headers,
        body: GOOD_BODY,
      });
      assert.equal(answered, each);
    }
    const reported = () =>
      running.program.events().filter(({ event, setting }) =>
        event === "held_key_refused" && setting === "providers.a.upstreamKey"
      );
    await until(() => reported().length === 2, "both refusals are reported");
    const { json } = await running.call("GET", "/v1/history?team=ads&last=1h");
    const ends = json.ends.map((each: Record<string, unknown>) => [each.end, each.concern]);
    assert.deepEqual(ends, [["upstream_401", "operator"], ["upstream_403", "operator"]]);
  });

  it("pays for calls that usage, its exports and repriced reports name", async () => {
    running = await startAdmin({ prices: { "test-1": { input: 1, output: 1 } } }, undefined, {
      providers: (upstream) =>
        toConfig(upstream, { env: "HELD" }).providers as Record<string, unknown>,
      env: { HELD: "held-1" },
    });
    const { key } = (await running.call("POST", "/v1/keys", { body: { heldKeys: true } })).json;
    const headers = { "gateway-auth": `Bearer ${key}`, "content-type": "application/json" };
    for (const authorization of [undefined, undefined, "Bearer sk-own"]) {
      const { status } = await callRaw(running.url, {
        path: "/v1/chat/completions",
        headers: { ...headers, ...(authorization && { authorization }) },
        body: GOOD_BODY,
      });
      assert.equal(status, 200);
    }
    const env = {
      SALLYPORT_ADMIN: `127.0.0.1:${new URL(running.admin).port}`,
      SALLYPORT_ADMIN_TOKEN: TOKEN,
    };
    const usage = async (...args: string[]) => {
      const { status, stdout, stderr } = await runCommand(["usage", ...args], {
        cwd: running.at.path,
        env,
      });
      assert.equal(status, 0, stderr);
      return stdout;
    };
    const prices = join(running.at.path, "prices.json");
    writeFileSync(prices, '{"test-1":{"input":5,"output":5}}');
    for (const more of [[], ["--prices", prices]]) {
      const { rows } = JSON.parse(await usage("--by", "payer", "--json", ...more));
      const calls = rows.map((row: Record<string, unknown>) => [row.payer, row.requests]);
      assert.deepEqual(calls, [["gateway", 2], ["caller", 1]]);
    }
    assert.match(await usage("--by", "payer,model", "--payer", "gateway"), /^gateway +test-1 +2 /m);
    const lines = (await usage("export", "--payer", "caller")).trim().split("\n");
    assert.deepEqual(lines.map((line) => [JSON.parse(line).payer, JSON.parse(line).requests]), [
      ["caller", 1],
    ]);
    assert.match(await usage("export", "--csv"), /,payer\r\n[^\n]*,(caller|gateway)\r\n/);
    const wrong = await runCommand(["usage", "--payer", "ads"], { cwd: running.at.path });
    assert.equal(wrong.status, 2);
    assert.match(wrong.stderr, /--payer: expected gateway or caller/);
  });

  it("is read again by a reload, on each worker, without a failed call", async () => {
    const secret = (text: string) => {
      writeFileSync(join(running.at.path, "secret"), text, { mode: 0o600 });
    };
    running = await startAdmin({}, undefined, {
      args: ["--workers", "2"],
      providers: (upstream) =>
        toConfig(upstream, { file: "secret", refresh: "24h" }).providers as Record<string, unknown>,
    });
    secret("held-1");
    const { key } = (await running.call("POST", "/v1/keys", { body: { heldKeys: true } })).json;
    const call = async () => {
      const { status } = await callRaw(running.url, {
        path: "/v1/chat/completions",
        headers: { "gateway-auth": `Bearer ${key}`, "content-type": "application/json" },
        body: GOOD_BODY,
      });
      assert.equal(status, 200);
      return running.provider.calls.at(-1)?.headers.authorization;
    };
    for (let calls = 0; calls < 8; calls++) assert.equal(await call(), "Bearer held-1");
    secret("held-2");
    process.kill(running.program.pid, "SIGHUP");
    const seen = new Set<unknown>();
    await until(async () => {
      const last = await Promise.all(Array.from({ length: 8 }, call));
      for (const each of last) seen.add(each);
      return last.every((each) => each === "Bearer held-2");
    }, "each worker has the new key");
    assert.deepEqual([...seen].filter((each) => each !== "Bearer held-1"), ["Bearer held-2"]);
  });
});
