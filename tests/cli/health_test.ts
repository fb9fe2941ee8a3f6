/** `sallyport health`: the command of a container's health check. */
// runtimes: once
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { freePort } from "../support/free_port.ts";
import { STREAM_BODY } from "../support/gateway.ts";
import { runCommand } from "../support/command.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";
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

  it("says what to configure if no token is set", async () => {
    for (const address of ["", "127.0.0.1:0"]) {
      const env = environment({ SALLYPORT_ADMIN: address, SALLYPORT_ADMIN_TOKEN: "" });
      const { status, stderr } = await health([], env);
      assert.equal(status, 2);
      assert.match(stderr, /^sallyport: .*configure admin with a port.*\n$/);
    }
  });
});
