/** `sallyport health`: the command of a container's health check. */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { runCommand } from "../support/command.ts";
import { endPrograms, makeFolder, runProgram, startProgram } from "../support/program.ts";
import { chunk, startProvider } from "../support/provider.ts";
import { startTcpPeer } from "../support/tcp_peer.ts";

const KEY = "0123456789-secret-key";

describe("sallyport health", () => {
  let folder: ReturnType<typeof makeFolder>;
  let port: number;
  beforeEach(async () => {
    folder = makeFolder();
    port = await freePort();
  });
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });
  const environment = (more: Record<string, string> = {}) => ({
    SALLYPORT_PROVIDER_A: "openai",
    SALLYPORT_KEYS: KEY,
    SALLYPORT_LISTEN: "127.0.0.1:0",
    SALLYPORT_ADMIN: `0.0.0.0:${port}`,
    SALLYPORT_ADMIN_TOKEN: "an-admin-token-of-mine",
    ...more,
  });
  const health = (args: string[] = [], env = environment()) =>
    runCommand(["health", ...args], { env, cwd: folder.path });
  const at = () => `http://127.0.0.1:${port}`;

  it("reports that the gateway is ready, then that it drains, and always that it is alive", async () => {
    const provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("a")); // without an end
    });
    const env = environment({ SALLYPORT_PROVIDER_A: provider.url, SALLYPORT_DRAIN_DELAY: "30s" });
    const program = startProgram(["serve"], { env, cwd: folder.path });
    const url = await program.waitFor(/listening on (http:\S+)/);
    await program.waitFor(/admin on (http:\S+)/);
    assert.deepEqual(await health(), {
      status: 0,
      stdout: `the gateway at ${at()} is ready, 0 exchanges open\n`,
      stderr: "",
    });
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${KEY}`,
      "content-type": "application/json",
    };
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: STREAM_BODY,
    });
    program.kill("SIGTERM");
    // The gateway has handled the signal.
    while ((await fetch(`${at()}/readyz`).then(({ status }) => status)) === 200);
    assert.deepEqual(await health(), {
      status: 1,
      stdout: "",
      stderr: `sallyport: the gateway at ${at()} is draining, 1 exchange open\n`,
    });
    assert.deepEqual(await health(["--live"]), {
      status: 0,
      stdout: `the gateway at ${at()} is alive\n`,
      stderr: "",
    });
    program.kill("SIGTERM");
    await program.ended;
    await response.body?.cancel().catch(() => {});
    await provider.close();
  });

  it("fails if no gateway runs, if another server answers, and if nothing answers", async () => {
    const cases: [answer: string | undefined, says: RegExp][] = [
      [undefined, /: no gateway runs at /],
      [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        /: the server at .* is no gateway: /,
      ],
      ["", /: the gateway at .* does not answer as it should$/m],
    ];
    for (const [answer, says] of cases) {
      const peer = answer === undefined
        ? undefined
        : await startTcpPeer((socket) => socket.end(answer));
      const env = environment({ SALLYPORT_ADMIN: `127.0.0.1:${peer?.port ?? port}` });
      const { status, stdout, stderr } = await health([], env);
      await peer?.close();
      assert.equal(status, 1, stderr);
      assert.equal(stdout, "");
      assert.match(stderr, says);
      assert.match(stderr, /^sallyport: .*\n$/, "one line");
    }
  });

  it("waits for a gateway that is starting, as long as --wait says", async () => {
    const waiting = startProgram(["health", "--wait", "50s"], {
      env: environment(),
      cwd: folder.path,
    });
    await waiting.waitFor(/(waiting at most)/);
    startProgram(["serve"], { env: environment(), cwd: folder.path });
    assert.equal(await waiting.ended, 0);
    assert.equal(waiting.stdout(), `the gateway at ${at()} is ready, 0 exchanges open\n`);
    const [first, ...more] = waiting.stderr().trimEnd().split("\n");
    const prefix = "sallyport: waiting at most 50s until it is ready: ";
    assert.equal(first, `${prefix}no gateway runs at ${at()}`);
    for (const line of more) {
      assert.ok(line.startsWith(`${prefix}the gateway at ${at()} is `), line);
    }
  });

  it("fails when the time of --wait is over, with the last state", async () => {
    assert.deepEqual(await health(["--wait", "2s"]), {
      status: 1,
      stdout: "",
      stderr: `sallyport: waiting at most 2s until it is ready: no gateway runs at ${at()}\n` +
        `sallyport: no gateway runs at ${at()} (asked for 2s)\n`,
    });
    const silent = await startTcpPeer(() => {});
    const env = environment({ SALLYPORT_ADMIN: `127.0.0.1:${silent.port}` });
    const { status, stderr } = await health(["--live", "--wait", "2s"], env);
    await silent.close();
    assert.equal(status, 1);
    assert.match(
      stderr,
      /^sallyport: the gateway at .* does not answer as it should \(asked for 2s\)\n$/,
    );
  });

  it("prints JSON with --json, and its exit status is the same", async () => {
    const read = async (args: string[]) => {
      const { status, stdout, stderr } = await health([...args, "--json"]);
      assert.equal(stderr, "");
      return { exit: status, ...JSON.parse(stdout) };
    };
    assert.deepEqual(await read([]), {
      exit: 1,
      url: at(),
      isWell: false,
      status: "absent",
      message: `no gateway runs at ${at()}`,
    });
    const program = startProgram(["serve"], { env: environment(), cwd: folder.path });
    await program.waitFor(/listening on (http:\S+)/);
    const found = await read(["--current"]);
    assert.match(found.digest, /^[0-9a-f]{64}$/);
    assert.deepEqual(found, {
      exit: 0,
      url: at(),
      isWell: true,
      status: "ready",
      openExchanges: 0,
      digest: found.digest,
      isCurrent: true,
      message: `the gateway at ${at()} is ready, 0 exchanges open`,
    });
    const { status, message } = await read(["--live"]);
    assert.deepEqual([status, message], ["alive", `the gateway at ${at()} is alive`]);
  });

  it("waits with --current until a reload has taken effect", async () => {
    const file = join(folder.path, "gateway.jsonc");
    const write = (requests: string) =>
      writeFileSync(
        file,
        JSON.stringify({
          listen: [{ port: 0 }],
          admin: { port },
          providers: { a: { upstream: "openai", limits: { requests } } },
          keys: [{ id: "me", key: KEY }],
        }),
      );
    write("60/min");
    const options = { cwd: folder.path };
    const program = startProgram(["serve"], options);
    const current = (wait: string) => runProgram(["health", "--current", "--wait", wait], options);
    assert.equal((await current("60s")).status, 0);
    write("90/min");
    assert.deepEqual(await runProgram(["health", "--current"], options), {
      status: 1,
      stdout: "",
      stderr: `sallyport: the gateway at ${at()} is ready, 0 exchanges open, with another ` +
        "configuration: reload it by SIGHUP, or restart it\n",
    });
    assert.equal((await runProgram(["health"], options)).status, 0, "it is ready");
    program.kill("SIGHUP");
    assert.equal((await current("60s")).status, 0);
  });

  it("says what --wait and --current need", async () => {
    const cases: [args: string[], says: string][] = [
      [["--wait", "soon"], '--wait needs a duration such as "30s"'],
      [["--live", "--current"], "health accepts --live or --current, not both"],
    ];
    for (const [args, says] of cases) {
      const { status, stderr } = await health(args);
      assert.equal(status, 2);
      assert.equal(stderr, `sallyport: ${says}. See sallyport health --help\n`);
    }
  });

  it("says what to configure if no token is set", async () => {
    for (const address of ["", "127.0.0.1:0"]) {
      const env = environment({ SALLYPORT_ADMIN: address, SALLYPORT_ADMIN_TOKEN: "" });
      const { status, stderr } = await health([], env);
      assert.equal(status, 2);
      assert.match(stderr, /^sallyport: .*configure admin with a port.*\n$/);
    }
  });
});
