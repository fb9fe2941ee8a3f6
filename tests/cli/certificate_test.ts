/** `sallyport certificate`: two files, and an https listener that callers trust because of them. */
// runtimes: all
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { join } from "node:path";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { runCommand } from "../support/command.ts";
import { endPrograms, makeFolder, startProgram } from "../support/program.ts";

const KEY = "0123456789-secret-key";
const DAY_MS = 24 * 3_600_000;

describe("sallyport certificate", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });
  const run = (...args: string[]) => runCommand(["certificate", ...args], { cwd: folder.path });
  const read = (name: string) => readFileSync(join(folder.path, name), "utf8");
  const modeOf = (name: string) => statSync(join(folder.path, name)).mode & 0o777;

  it("makes a certificate that a listener presents, and that callers trust if configured", async () => {
    const { status, stdout, stderr } = await run("b", "--hosts", "b.localhost,localhost,127.0.0.1");
    assert.deepEqual([status, stderr], [0, ""]);
    assert.match(
      stdout,
      /^b\.crt {2}for b\.localhost, localhost, 127\.0\.0\.1, until \d{4}-\d\d-\d\d$/m,
    );
    assert.match(stdout, /curl --cacert b\.crt/);
    assert.equal(modeOf("b.key"), 0o600);
    writeFileSync(
      join(folder.path, "gateway.jsonc"),
      JSON.stringify({
        listen: [{ port: 0, tls: { cert: "b.crt", key: "b.key" } }],
        providers: { b: { upstream: "openai" } },
        keys: [{ id: "me", key: KEY }],
      }),
    );
    const program = startProgram(["serve"], { cwd: folder.path });
    const url = await program.waitFor(/listening on (https:\S+)/);
    const answer = (ca?: string) =>
      new Promise<number | string>((resolve) => {
        const call = request(
          `${url}/v1/models`,
          { ...(ca !== undefined && { ca }) },
          (response) => {
            response.resume();
            resolve(response.statusCode ?? 0);
          },
        );
        call.on("error", () => resolve("not trusted"));
        call.end();
      });
    assert.equal(await answer(read("b.crt")), 401);
    assert.equal(await answer(), "not trusted");
  });

  it.once("contains hosts and addresses of each kind, and is valid for the requested time", async () => {
    const before = Date.now();
    const args = [
      "--hosts",
      "*.gw.example,gw.example,10.1.2.3,::1,2001:db8::5",
      "--expires",
      "30d",
    ];
    assert.equal((await run(...args)).status, 0);
    const certificate = new X509Certificate(read("gateway.crt"));
    // Runtimes format zeros differently.
    const names = certificate.subjectAltName?.toLowerCase().replace(":0:0:0:0:0:0:0:1", ":::1")
      .replace(":0:0:0:0:0:5", "::5");
    assert.equal(
      names,
      "dns:*.gw.example, dns:gw.example, ip address:10.1.2.3, ip address:::1, ip address:2001:db8::5",
    );
    const lifeMs = Date.parse(certificate.validTo) - before;
    assert.ok(lifeMs > 29.9 * DAY_MS && lifeMs < 30.1 * DAY_MS, certificate.validTo);
    assert.match(read("gateway.key"), /^-----BEGIN PRIVATE KEY-----\n/);
  });

  it.once("replaces nothing unless requested, and then also replaces the file mode", async () => {
    writeFileSync(join(folder.path, "b.key"), "mine", { mode: 0o644 });
    const { status, stderr } = await run("b");
    assert.equal(status, 2);
    assert.match(stderr, /^sallyport: cannot replace b\.key without --force/);
    assert.equal(read("b.key"), "mine");
    assert.throws(() => read("b.crt"), "half of a pair");
    assert.equal((await run("b", "--force")).status, 0);
    assert.notEqual(read("b.key"), "mine");
    assert.equal(modeOf("b.key"), 0o600);
  });

  it.once("describes a mistake in one line, and writes nothing", async () => {
    const mistakes: [RegExp, ...string[]][] = [
      [/--hosts expects names and addresses without ports/, "--hosts", "localhost:8788"],
      [/--hosts expects names/, "--hosts", "a b"],
      [/--hosts expects names/, "--hosts", "localhost,"],
      [/--expires expects a duration from 1d to 397d/, "--expires", "400d"],
      [/--expires expects a duration/, "--expires", "soon"],
      [/unexpected argument: b/, "a", "b"],
      [/certificate has no option --config/, "--config", "gateway.jsonc"],
      [/cannot write nowhere\/b\.key: ENOENT/, "nowhere/b"],
    ];
    for (const [message, ...args] of mistakes) {
      const { status, stdout, stderr } = await run(...args);
      assert.deepEqual([status, stdout], [2, ""], args.join(" "));
      assert.match(stderr, message);
      assert.equal(stderr.split("\n").length, 2);
    }
    assert.throws(() => read("gateway.key"));
  });
});
