/** `sallyport demo`: the experience of a new user without a configuration. */
// runtimes: all
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer, type Server } from "node:net";
import { promisify } from "node:util";
import { afterEach, describe, it } from "@std/testing/bdd";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { openGateway } from "../../src/cli/demo/demo.ts";
import { parseConfig } from "../../src/config/config.ts";
import { resolveServe } from "../../src/serve/compose.ts";
import type { Serve } from "../../src/serve/listener.ts";
import { endPrograms, runProgram, startProgram } from "../support/program.ts";

describe("sallyport demo", () => {
  const occupied: Server[] = [];
  afterEach(async () => {
    await endPrograms();
    for (const server of occupied.splice(0)) await new Promise((resolve) => server.close(resolve));
  });

  it("makes a plain and a streamed call, even if its usual ports are taken, and ends", async () => {
    const held: number[] = [];
    for (const port of [8787, 8788]) {
      const server = createServer();
      await new Promise<void>((resolve) => {
        server.on("error", () => resolve()); // another program uses it, and can release it
        server.listen(port, "127.0.0.1", () => {
          occupied.push(server);
          held.push(port);
          resolve();
        });
      });
    }
    const { status, stdout, stderr } = await runProgram(["demo", "--once"]);
    assert.equal(status, 0, stderr);
    assert.match(
      stdout,
      /A sally port is an entrance with two doors: you must open both to pass\./,
    );
    assert.match(
      stdout,
      /Two doors, two keys\. The first stays here, the second leaves with you, word by word\./,
    );
    assert.equal(stdout.match(/ 200 first byte/g)?.length, 2);
    assert.match(stdout, /gateway-auth: no/);
    for (const port of held) assert.ok(!stdout.includes(`127.0.0.1:${port}`), `${port} is taken`);
    assert.ok(!stdout.includes("\u001b"), "no colour in a pipe");
    assert.equal(stderr, "");
  });

  it("listens on other ports if its usual ports are taken at the last moment; its hosts follow, and early callers wait", async () => {
    const config = parseConfig({
      providers: { a: { upstream: "http://127.0.0.1:9" }, b: { upstream: "http://127.0.0.1:9" } },
      keys: [{ id: "demo", key: "a-gateway-key-of-the-demo" }],
    });
    const open = await resolveServe();
    const early: Promise<Response>[] = [];
    const serve: Serve = (handler, options) => {
      early.push(handler.fetch(new Request("http://a.localhost/v1/models")));
      if (options.port === 0) return open(handler, options);
      return Promise.reject(
        Object.assign(new Error("somebody was faster"), { code: "EADDRINUSE" }),
      );
    };
    const tls = createSelfSignedCertificate(["localhost"]);
    const { gateway, listeners } = await openGateway(config, tls, serve);
    try {
      assert.deepEqual(listeners.map(({ url }) => new URL(url).protocol), ["http:", "https:"]);
      for (const { url } of listeners) {
        for (const base of [url, url.replace("127.0.0.1", "localhost")]) {
          const { status } = await gateway.fetch(new Request(`${base}/v1/models`));
          assert.equal(status, 401, `${base} is no host of the gateway's`);
        }
      }
      const wrong = await gateway.fetch(new Request("http://127.0.0.1:8787/v1/models"));
      assert.equal(wrong.status, 421);
      assert.deepEqual((await Promise.all(early)).map(({ status }) => status), [
        401,
        401,
        401,
        401,
      ]);
    } finally {
      for (const listener of listeners) await listener.stop();
    }
  });

  it("stays up, shows curl lines that work, and ends cleanly with Ctrl-C", async () => {
    const program = startProgram(["demo"]);
    await program.waitFor(/(Ctrl-C ends it)/);
    const lines = program.stdout().match(/curl -k?N[^]*?-d '[^']*'/g) ?? [];
    assert.equal(lines.length, 2);
    for (const line of lines) {
      const { stdout } = await promisify(execFile)("bash", ["-c", line]);
      assert.match(stdout, /data: \[DONE\]/);
    }
    program.kill("SIGINT");
    assert.equal(await program.ended, 0);
  });
});
