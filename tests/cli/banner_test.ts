/** The first lines of `sallyport serve`: every URL in them works as printed. */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { toBanner } from "../../src/cli/banner.ts";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import type { ShapeName } from "../../src/config/shape.ts";
import { freePort } from "../support/free_port.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";

const KEY = "0123456789-secret-key";
const to = (...hosts: string[]) => ({
  hosts,
  upstreams: ["https://api.example/v1"],
  shape: "v1" as ShapeName,
});
const linesOf = (
  urls: string[],
  providers: Record<string, ReturnType<typeof to>>,
  admins: string[] = [],
) => toBanner({ version: "1.2.3", urls, admins, providers }).slice(1);

describe("the lines that serve prints", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });

  /** The status of a URL's answer; `ca` is trusted. */
  const ask = (url: string, ca = ""): Promise<number> =>
    new Promise((resolve, reject) => {
      const options = { ...(ca !== "" && { ca }), agent: false };
      const call = (ca === "" ? requestHttp : requestHttps)(url, options, (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
      call.on("error", reject);
      call.end();
    });

  for (const workers of ["1", "2"]) {
    it(`contain a URL of each provider, in the form of the README, from ${workers} process(es)`, async () => {
      const [plain, tls, admin] = [await freePort(), await freePort(), await freePort()];
      const identity = createSelfSignedCertificate(["localhost"]);
      for (const [name, text] of Object.entries(identity)) {
        writeFileSync(join(folder.path, `b.${name}`), text);
      }
      writeFileSync(
        join(folder.path, "gateway.jsonc"),
        JSON.stringify({
          listen: [{ port: plain }, { port: tls, tls: { cert: "b.cert", key: "b.key" } }],
          admin: { port: admin },
          providers: {
            a: { hosts: ["a.localhost", `localhost:${plain}`], upstream: "openai" },
            b: { hosts: ["b.localhost", `localhost:${tls}`], upstream: "groq" },
            c: { hosts: [`localhost:${plain}/c`, "c.localhost/c/openai"], upstream: "xai" },
          },
          keys: [{ id: "me", key: KEY }],
        }),
      );
      const program = startProgram(["serve", "--workers", workers], { cwd: folder.path });
      await program.waitFor(/provider c: (.*)/);
      const lines = program.told().trimEnd().split("\n").slice(1, 7);
      assert.deepEqual(lines, [
        `listening on http://localhost:${plain}`,
        `listening on https://localhost:${tls}`,
        `admin on http://127.0.0.1:${admin}`,
        `provider a: http://localhost:${plain}/v1, also a.localhost -> https://api.openai.com/v1`,
        `provider b: https://localhost:${tls}/v1, also b.localhost -> https://api.groq.com/openai/v1`,
        `provider c: http://localhost:${plain}/c/v1, also c.localhost/c/openai -> https://api.x.ai/v1`,
      ]);
      assert.equal(await ask(`http://localhost:${plain}/c/v1/models`), 401);
      assert.equal(await ask(`http://localhost:${plain}/v1/models`), 401);
      assert.equal(await ask(`https://localhost:${tls}/v1/models`, identity.cert), 401);
      assert.equal(await ask(`http://127.0.0.1:${admin}/readyz`), 200);
    });
  }

  it("contain an address of this machine instead of the address for all", async () => {
    const env = {
      SALLYPORT_PROVIDER_A: "openai",
      SALLYPORT_KEYS: KEY,
      SALLYPORT_LISTEN: "0.0.0.0:0",
      SALLYPORT_ADMIN: "0.0.0.0:0",
      SALLYPORT_ADMIN_TOKEN: "an-admin-token-of-mine",
    };
    const program = startProgram(["serve"], { env, cwd: folder.path });
    const url = await program.waitFor(/^listening on (http:\/\/127\.\S+) \(all interfaces\)$/m);
    assert.equal(await ask(`${url}/v1/models`), 401);
    const admin = await program.waitFor(/^admin on (http:\/\/127\.\S+) \(all interfaces\)$/m);
    assert.equal(await ask(`${admin}/livez`), 200);
  });

  it("say if a listener's own address leads to no provider", () => {
    assert.deepEqual(
      linesOf(["http://127.0.0.1:8787"], {
        a: to("a.localhost"),
        b: to("b.example.com", "*.b.example"),
      }),
      [
        "listening on http://127.0.0.1:8787 (callers name a host of a provider)",
        "provider a: http://a.localhost:8787/v1 -> https://api.example/v1",
        "provider b: b.example.com, *.b.example -> https://api.example/v1",
      ],
    );
  });

  it("do not invent an address for a name that can resolve elsewhere", () => {
    assert.deepEqual(
      linesOf(["https://10.0.0.1:443", "http://[::]:80"], {
        a: to("a.localhost", "*"),
        b: to("b.example"),
      }),
      [
        "listening on https://10.0.0.1",
        "listening on http://127.0.0.1 (all interfaces)",
        "provider a: https://10.0.0.1/v1, http://127.0.0.1/v1, also a.localhost -> https://api.example/v1",
        "provider b: b.example -> https://api.example/v1",
      ],
    );
  });

  it("contain no /v1 for the clients of a shape, which add their paths", () => {
    assert.deepEqual(
      linesOf(["http://127.0.0.1:8787"], {
        a: to("localhost:8787"),
        g: { ...to("localhost:8787/gemini", "*/gemini"), shape: "gemini" },
      }).slice(1),
      [
        "provider a: http://localhost:8787/v1 -> https://api.example/v1",
        "provider g: http://127.0.0.1:8787/gemini, also localhost:8787/gemini -> https://api.example/v1",
      ],
    );
  });

  it("contain the path before /v1 of providers that share a host", () => {
    assert.deepEqual(
      linesOf(["http://127.0.0.1:8787"], {
        a: to("localhost:8787", "gw.example"),
        b: to("localhost:8787/b", "localhost/b/openai", "gw.example/b"),
        c: to("*/c", "127.0.0.1:8787/c"),
        d: to("d.example/d"),
      }),
      [
        "listening on http://127.0.0.1:8787",
        "provider a: http://localhost:8787/v1, also gw.example -> https://api.example/v1",
        "provider b: http://localhost:8787/b/v1, also localhost/b/openai, gw.example/b -> https://api.example/v1",
        "provider c: http://127.0.0.1:8787/c/v1 -> https://api.example/v1",
        "provider d: d.example/d -> https://api.example/v1",
      ],
    );
    assert.deepEqual(
      linesOf(["http://127.0.0.1:8787"], { a: to("gw.localhost/a"), b: to("gw.localhost/b/x") }),
      [
        "listening on http://127.0.0.1:8787 (callers name a host of a provider)",
        "provider a: http://gw.localhost:8787/a/v1 -> https://api.example/v1",
        "provider b: http://gw.localhost:8787/b/x/v1 -> https://api.example/v1",
      ],
    );
  });
});
