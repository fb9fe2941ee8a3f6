/** `sallyport check`, and what the command line says of mistakes. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { makeFolder, runProgram } from "../support/program.ts";

const KEY = "0123456789-secret-key";
const CONFIG = `{
  // two providers
  "providers": {
    "a": { "upstream": "openai", "hosts": ["a.example"] },
    "b": { "upstream": "https://b.example/v1", },
  },
  "keys": [{ "id": "team", "key": "${KEY}" }, { "id": "other", "digest": "${"ab".repeat(32)}" }],
}`;

describe("sallyport check", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(() => folder.remove());
  const write = (text: string, name = "gateway.jsonc") => {
    const file = join(folder.path, name);
    writeFileSync(file, text);
    return file;
  };

  it("prints the effective configuration with its secrets masked", async () => {
    const { status, stdout, stderr } = await runProgram(["check", "--config", write(CONFIG)]);
    assert.equal(status, 0, stderr);
    const config = JSON.parse(stdout);
    assert.deepEqual(config.providers.a.upstreams, ["https://api.openai.com/v1"]);
    assert.deepEqual(config.providers.b.hosts, ["b.localhost"]);
    assert.deepEqual(config.keys, [{ id: "team", key: "(masked)" }, { id: "other", digest: "(masked)" }]);
    assert.doesNotMatch(stdout + stderr, /secret|abab/);
  });

  it("finds the file by SALLYPORT_CONFIG or in the working directory", async () => {
    const file = write(CONFIG);
    assert.equal((await runProgram(["check"], { cwd: folder.path })).status, 0);
    const elsewhere = await runProgram(["check"], { env: { SALLYPORT_CONFIG: file } });
    assert.equal(elsewhere.status, 0, elsewhere.stderr);
  });

  it("lays the environment over the file", async () => {
    const env = {
      SALLYPORT_PROVIDER_A: "groq,https://two.example",
      SALLYPORT_KEEP_ALIVE_A: "off",
      SALLYPORT_HOSTS_A: "x.example, y.example:81",
      SALLYPORT_MESSAGES_A: "any",
      SALLYPORT_DEADLINES_A: "idle=1m,total=1h",
      SALLYPORT_PROVIDER_NEW_ONE: "mistral",
      SALLYPORT_KEYS: `${KEY},${KEY}-2`,
      SALLYPORT_LISTEN: "127.0.0.1:1,http://[::1]:2",
      SALLYPORT_LIMITS_BODY: "1MB",
      SALLYPORT_LIMITS_BODY_TIME: "5s",
      SALLYPORT_LIMITS_BODIES: "2MB",
      SALLYPORT_LIMITS_EXCHANGES: "7",
      SALLYPORT_LIMITS_WRITE_STALL: "9s",
      SALLYPORT_ADMIN: "127.0.0.1:3",
      SALLYPORT_DRAIN_DELAY: "1s",
      SALLYPORT_DRAIN_LIMIT: "2s",
    };
    const { status, stdout, stderr } = await runProgram(["check", "--config", write(CONFIG)], { env });
    assert.equal(status, 0, stderr);
    const { providers, keys, listen, limits, admin, drain } = JSON.parse(stdout);
    assert.deepEqual(providers.a.upstreams, ["https://api.groq.com/openai/v1", "https://two.example"]);
    assert.deepEqual(providers.a.hosts, ["x.example", "y.example:81"]);
    assert.equal(providers.a.messages, "any");
    assert.equal(providers.a.deadlines.idleMs, 60_000);
    assert.deepEqual(providers["new-one"].upstreams, ["https://api.mistral.ai/v1"]);
    assert.equal(providers.a.keepAliveMs, 0);
    assert.deepEqual(keys.map(({ id }: { id: string }) => id), ["key-1", "key-2"]);
    assert.deepEqual(listen, [{ hostname: "127.0.0.1", port: 1 }, { hostname: "::1", port: 2 }]);
    assert.deepEqual(limits, {
      maxBodyBytes: 1024 * 1024,
      bodyTimeMs: 5000,
      maxBodiesBytes: 2 * 1024 * 1024,
      maxExchanges: 7,
      writeStallMs: 9000,
    });
    assert.deepEqual(admin, { hostname: "127.0.0.1", port: 3 });
    assert.deepEqual(drain, { delayMs: 1000, limitMs: 2000 });
  });

  it("takes the whole keys setting as JSON", async () => {
    const env = { SALLYPORT_PROVIDER_A: "openai", SALLYPORT_KEYS: `[{"id":"k","key":"${KEY}","models":["m-*"]}]` };
    const { stdout } = await runProgram(["check"], { env, cwd: folder.path });
    assert.deepEqual(JSON.parse(stdout).keys, [{ id: "k", models: ["m-*"], key: "(masked)" }]);
  });

  it("names every mistake with its line or its variable", async () => {
    const file = write(
      '{\n  "providers": {\n    "a": {\n      "upstream": "nowhere",\n      "speed": 1\n    }\n  }\n}',
    );
    const env = { SALLYPORT_LIMITS_BODY: "huge" };
    const { status, stdout, stderr } = await runProgram(["check", "--config", file], { env });
    assert.equal(status, 2);
    assert.equal(stdout, "");
    assert.match(stderr, /^sallyport: providers\.a\.upstream: expected an http or https URL.*gateway\.jsonc:4\)$/m);
    assert.match(stderr, /^sallyport: providers\.a\.speed: unknown setting .*gateway\.jsonc:5\)$/m);
    assert.match(stderr, /^sallyport: limits\.body: expected a size .*\(SALLYPORT_LIMITS_BODY\)$/m);
    assert.equal(stderr.trim().split("\n").length, 3);
  });

  it("names the line of a mistake in the syntax", async () => {
    const { status, stderr } = await runProgram(["check", "--config", write('{\n  "providers": {\n    "a" 1\n}')]);
    assert.equal(status, 2);
    assert.match(stderr, /cannot parse the file: \w+ \(.*gateway\.jsonc:3\)/);
  });

  it("names each certificate file that it can't read", async () => {
    const env = { SALLYPORT_PROVIDER_A: "openai", SALLYPORT_LISTEN: "https://127.0.0.1:1?cert=c.pem&key=k.pem" };
    const { status, stderr } = await runProgram(["check"], { env, cwd: folder.path });
    assert.equal(status, 2);
    const [cert, key, ...rest] = stderr.trim().split("\n");
    assert.match(cert ?? "", /^sallyport: listen\[0\]\.tls\.cert: cannot read the PEM file \(.*c\.pem\)$/);
    assert.match(key ?? "", /^sallyport: listen\[0\]\.tls\.key: cannot read the PEM file \(.*k\.pem\)$/);
    assert.deepEqual(rest, []);
  });

  it("refuses what it does not know, in one line that says what to do", async () => {
    const cases: [string[], RegExp, Record<string, string>?][] = [
      [["chek"], /unknown command: chek\. See sallyport --help/],
      [["check", "--fast"], /--fast.*See sallyport --help/],
      [["check", "now"], /unexpected argument: now\. See sallyport --help/],
      [["check", "--once"], /check takes no --once\. See sallyport --help/],
      [["demo", "--config", "x"], /demo takes no --config\. See sallyport --help/],
      [["check", "--config", "none.jsonc"], /cannot read the file \(ENOENT\)/],
      [["check"], /SALLYPORT_SPEED: unknown variable \(environment\)/, {
        SALLYPORT_SPEED: "1",
        SALLYPORT_PROVIDER_A: "openai",
      }],
      [["check"], /providers: expected/],
    ];
    for (const [args, says, env = {}] of cases) {
      const { status, stdout, stderr } = await runProgram(args, { env, cwd: folder.path });
      assert.equal(status, 2, args.join(" "));
      assert.equal(stdout, "");
      assert.match(stderr, says);
      assert.match(stderr, /^sallyport: .*\n$/, "one line");
    }
  });
});
