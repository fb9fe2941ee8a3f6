/**
 * The supervisor of `serve --workers` in brief states that the test prolongs: failing spawns, slow
 * starts.
 */
// runtimes: all
import assert from "node:assert/strict";
import { chmodSync, copyFileSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { makeIssuerKey } from "../support/issuer.ts";
import { isRunning, type Program, type ProgramOptions, startProgram } from "../support/program.ts";
import { runtime } from "../support/runtimes.ts";
import { parseAnswer } from "../support/tcp_peer.ts";
import { timeOfPauses, until } from "../support/until.ts";
import { isRefused, KEY, plain, waitUntilServed, WorkerStage } from "../support/worker_stage.ts";

/** Serves key sets of an issuer. Each path is answered as often as `answer` says, and then held. */
async function startKeySets() {
  const asked: Record<string, number> = {};
  const held: ServerResponse[] = [];
  const answered: Record<string, number> = {};
  const keySet = JSON.stringify({ keys: [(await makeIssuerKey()).publicJwk] });
  const server = createServer(({ url = "" }, response) => {
    asked[url] = (asked[url] ?? 0) + 1;
    if (asked[url] > (answered[url] ?? Infinity)) held.push(response);
    else response.end(keySet);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    asked: (path: string) => asked[path] ?? 0,
    /** Sets the number of requests for a path that are answered. */
    answer: (path: string, times: number) => void (answered[path] = times),
    /** A configuration whose preparation waits for a key set. */
    identity: (
      path: string,
    ) => [{
      issuer: "https://idp.test",
      audience: "gateway",
      jwks: `http://127.0.0.1:${port}${path}`,
    }],
    /** Answers the held requests. */
    release: () => held.splice(0).forEach((response) => response.end(keySet)),
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

describe("a supervisor", () => {
  let stage: WorkerStage;
  let keySets: Awaited<ReturnType<typeof startKeySets>>;
  let file: string;
  beforeEach(async () => {
    stage = await WorkerStage.start();
    file = join(stage.folder.path, "gateway.jsonc");
    keySets = await startKeySets();
  });
  afterEach(async () => {
    await stage.stop();
    await keySets.close();
  });

  const write = (settings: Record<string, unknown> = {}) =>
    writeFileSync(
      file,
      JSON.stringify({
        listen: [{ port: 0 }],
        admin: { port: 0 },
        providers: { a: { upstream: stage.provider.url } },
        keys: [{ id: "team", key: KEY }],
        drain: { delay: "0s" },
        ...settings,
      }),
    );
  const start = (settings?: Record<string, unknown>, options: ProgramOptions = {}) => {
    write(settings);
    return startProgram(["serve", "--config", file, "--workers", "2"], {
      cwd: stage.folder.path,
      ...options,
    });
  };
  const reload = async (program: Program) => {
    const before = program.reports().length;
    program.kill("SIGHUP");
    await until(
      () => /reloaded.*\n/.test(program.reports().slice(before)),
      "the reload is reported",
      40_000,
    );
    return program.reports().slice(before);
  };
  it("tries again when a worker cannot be started, and ends on SIGTERM meanwhile", async () => {
    const program = join(stage.folder.path, "runtime");
    copyFileSync(process.execPath, program);
    chmodSync(program, 0o755);
    const served = await waitUntilServed(
      start(undefined, { on: { kind: runtime, command: program } }),
    );
    const killOne = async () =>
      process.kill((await served.health()).workers[0]?.pid ?? assert.fail(), "SIGKILL");
    const failures = () =>
      served.program.reports().match(/a worker could not be started: EACCES/g)?.length ?? 0;
    chmodSync(program, 0o644);
    await killOne();
    await until(() => failures() >= 2, "it was tried twice");
    assert.equal((await served.health()).workers.length, 1);
    chmodSync(program, 0o755);
    await until(async () => (await served.health()).workers.length === 2, "a new worker serves");
    assert.equal(await plain(served.url), 200);
    chmodSync(program, 0o644);
    const before = failures();
    await killOne();
    await until(() => failures() > before, "a worker could not be started");
    served.program.kill("SIGTERM");
    assert.equal(await served.program.ended, 0, served.program.stderr());
  });

  it("reloads while a worker catches up: no stream is cut, no worker ends, no port stays open", async () => {
    const [port, otherPort] = [await freePort(), await freePort()];
    const other = `http://127.0.0.1:${otherPort}`;
    // The supervisor and the running worker get each key set at once. The restarted worker waits.
    keySets.answer("/0", 3);
    keySets.answer("/1", 2);
    const listen = [{ port }];
    const { program, url, health } = await waitUntilServed(
      start({ listen, identity: keySets.identity("/0") }),
    );
    const [victim] = (await health()).workers;
    process.kill(victim?.pid ?? assert.fail(), "SIGKILL");
    await until(
      () => keySets.asked("/0") === 4,
      "the restarted worker prepares its first configuration",
    );
    write({ listen: [...listen, { port: otherPort }], identity: keySets.identity("/1") });
    assert.match(await reload(program), /was reloaded/);
    await until(() => keySets.asked("/1") === 3, "the restarted worker catches up");
    const streams = await stage.open(url, 12);
    const { workers } = await health();
    for (const keys of [[{ id: "team", key: KEY }], [{ id: "renamed", key: KEY }]]) {
      write({ listen, keys });
      assert.match(await reload(program), /was reloaded/);
      keySets.release();
      const { config } = await health();
      const isLatest = ({ digest }: { readonly digest: string }) => digest === config.digest;
      await until(
        async () => (await health()).workers.every(isLatest),
        "all workers have the configuration",
      );
    }
    await until(() => isRefused(other), "no worker listens on the port that is gone");
    assert.deepEqual((await health()).workers.map(({ pid }) => pid), workers.map(({ pid }) => pid));
    await stage.assertWhole(streams);
    assert.doesNotMatch(program.reports().split("\n").slice(1).join("\n"), /worker \d+/);
  });

  it("that is killed cuts no stream: its workers finish them, and then exit", async () => {
    const { program, url, health } = await waitUntilServed(start());
    const streams = await stage.open(url, 12);
    await until(async () => (await health()).openExchanges === streams.length, "all are counted");
    const { workers } = await health();
    program.kill("SIGKILL");
    await until(() => isRefused(url), "the listeners are closed");
    await stage.assertWhole(streams);
    await until(() => workers.every(({ pid }) => !isRunning(pid)), "the workers have ended");
  });

  it("that is killed leaves no worker behind, even if a stream lasts longer than drain.limit: none waits for it", async () => {
    const { program, url, health } = await waitUntilServed(
      start({ drain: { delay: "0s", limit: "200ms" } }),
    );
    const streams = await stage.open(url, 2);
    const { workers } = await health();
    program.kill("SIGKILL");
    for (const each of streams) {
      assert.match(parseAnswer(await each.closed).body, /gateway_draining/);
    }
    // A supervisor that is slow, and not gone, gets five seconds for the last usage.
    const isLate = timeOfPauses(40, 100).then(() => true);
    const haveEnded = until(
      () => workers.every(({ pid }) => !isRunning(pid)),
      "the workers have ended",
    );
    assert.notEqual(await Promise.race([haveEnded, isLate]), true);
  });

  it("drains on SIGTERM the calls of the first worker while the others start", async () => {
    const port = await freePort();
    keySets.answer("/0", 2);
    const program = start({ listen: [{ port }], identity: keySets.identity("/0") });
    const url = `http://127.0.0.1:${port}`;
    await until(() => keySets.asked("/0") === 3, "the second worker starts");
    const streams = await stage.open(url, 1);
    program.kill("SIGTERM");
    await until(() => isRefused(url), "the listeners are closed");
    await stage.assertWhole(streams);
    assert.equal(await program.ended, 0, program.stderr());
  });

  it("ends its workers at once at the second SIGTERM", async () => {
    const { program, url, health } = await waitUntilServed(start());
    const streams = await stage.open(url, 4);
    const { workers } = await health();
    program.kill("SIGTERM");
    await until(() => isRefused(url), "the listeners are closed");
    program.kill("SIGTERM");
    assert.equal(await program.ended, 143);
    await until(() => workers.every(({ pid }) => !isRunning(pid)), "the workers have ended");
    for (const each of streams) await each.closed;
  });
});
