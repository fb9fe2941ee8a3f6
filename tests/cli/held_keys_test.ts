/** Held provider keys at the command line: `check` finds sources that can't be read. */
// runtimes: once
import assert from "node:assert/strict";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach, describe, it } from "@std/testing/bdd";
import { type Running, startAdmin, TOKEN } from "../support/admin.ts";
import { runCommand } from "../support/command.ts";
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
