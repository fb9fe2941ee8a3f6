/**
 * `sallyport init`: the files that it writes work with serve, and the commands that it prints run
 * unchanged.
 */
// runtimes: all
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import process from "node:process";
import { Ajv } from "ajv";
import { parse } from "jsonc-parser";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { it } from "../support/cases.ts";
import { freePort } from "../support/free_port.ts";
import { endPrograms, makeFolder, ONE_FILE, runProgram, startProgram } from "../support/program.ts";
import { startProvider } from "../support/provider.ts";
import { needs } from "../support/requires.ts";
import { runtime } from "../support/runtimes.ts";

const KEY = /gk_\w{12}_\w{43}_\w{6}/;
const SH = { kind: "node", command: "sh" } as const;

describe("sallyport init", () => {
  let folder: ReturnType<typeof makeFolder>;
  const closers: (() => unknown)[] = [];
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    for (const close of closers.splice(0)) await close();
    folder.remove();
  });
  const run = (args: readonly string[], env: Record<string, string> = {}) =>
    runProgram(args, { cwd: folder.path, env });
  const read = (name: string) => readFileSync(join(folder.path, name), "utf8");
  const modeOf = (name: string) => statSync(join(folder.path, name)).mode & 0o777;
  const config = (name = "gateway.jsonc") => parse(read(name), [], { allowTrailingComma: true });

  it("uses the defaults without a terminal, and writes files that check and the schema for editors accept", async () => {
    const { status, stdout, stderr } = await run(["init"]);
    assert.deepEqual([status, stderr], [0, ""]);
    assert.equal(stdout.match(new RegExp(KEY, "g"))?.length, 1, "the key is shown once");
    assert.deepEqual([modeOf("gateway.jsonc"), modeOf("gateway-keys.json")], [0o644, 0o600]);
    const [key = ""] = KEY.exec(stdout) ?? [];
    for (const file of ["gateway.jsonc", "gateway-keys.json"]) {
      assert.doesNotMatch(read(file), new RegExp(key));
    }
    const { listen, providers, keys } = config();
    assert.deepEqual(listen, [{ hostname: "127.0.0.1", port: 8787 }]);
    assert.deepEqual(providers, {
      openai: { hosts: ["localhost", "127.0.0.1"], upstream: "openai", messages: "any" },
    });
    assert.deepEqual(keys, { file: "gateway-keys.json" });
    const validate = new Ajv({ strict: false }).compile(
      JSON.parse(readFileSync("dist/gateway.schema.json", "utf8")),
    );
    assert.ok(validate(config()), JSON.stringify(validate.errors));
    assert.equal((await run(["check"])).status, 0);
    assert.match((await run(["keys", "list"])).stdout, / first +active /);
  });

  it.once("names the schema of its version, or the installed schema", async () => {
    await run(["init"]);
    const { version } = JSON.parse(readFileSync("package.json", "utf8"));
    assert.equal(
      config().$schema,
      `https://unpkg.com/sallyport@${version}/dist/gateway.schema.json`,
    );
    const installed = "node_modules/sallyport/dist/gateway.schema.json";
    mkdirSync(join(folder.path, dirname(installed)), { recursive: true });
    writeFileSync(join(folder.path, installed), "{}");
    await run(["init", "--force"]);
    assert.equal(config().$schema, `./${installed}`);
  });

  const { it: withCurl } = needs(["curl"]);
  for (const host of ["local", "gw.example.com"]) {
    withCurl(`prints commands that run as they stand: ${host}`, async () => {
      const upstream = await startProvider((response) =>
        response.writeHead(200, { "content-type": "application/json" }).end(
          '{"object":"list","data":[]}',
        )
      );
      closers.push(upstream.close);
      const port = await freePort();
      const args = ["--upstream", upstream.url, "--host", host, "--port", String(port)];
      const { status, stdout } = await run(["init", ...args]);
      assert.equal(status, 0);
      const commands =
        /gateway:\n( .*)\n( .*)\n\nThen.*\n([^]*)\n\nClient/.exec(stdout)?.slice(1) ??
          assert.fail(stdout);
      const [check = "", serve = "", calls = ""] = commands;
      const command = runtime === "deno" ? "deno run -A" : runtime;
      assert.equal(check, `  ${command} ${ONE_FILE} check`);
      // The shell finds the runtime of this test by name.
      const PATH = `${dirname(process.execPath)}:${process.env.PATH}`;
      const shell = (line: string) =>
        startProgram(["-c", line], { file: "-e", on: SH, cwd: folder.path, env: { PATH } });
      assert.equal(await shell(check).ended, 0);
      const serving = shell(`exec ${serve.trim()}`);
      await serving.waitFor(/listening on (https?:\S+)/);
      const called = shell(calls);
      assert.equal(await called.ended, 0, called.stderr());
      assert.equal(called.stdout(), '{"object":"list","data":[]}');
      if (host === "local") return;
      const { subjectAltName } = new X509Certificate(read("gateway.crt"));
      assert.match(
        subjectAltName ?? "",
        /DNS:gw\.example\.com, DNS:localhost, IP Address:127\.0\.0\.1/,
      );
      assert.equal(modeOf("gateway.key"), 0o600);
    });
  }

  it.once("replaces nothing unless requested, and adds to existing keys", async () => {
    for (const name of ["gateway.jsonc", "gateway.key"]) {
      writeFileSync(join(folder.path, name), "mine");
    }
    for (
      const [args, name] of [[[], "gateway.jsonc"], [
        ["--config", "b.jsonc", "--host", "x"],
        "gateway.key",
      ]] as const
    ) {
      const { status, stdout, stderr } = await run(["init", ...args]);
      assert.deepEqual([status, stdout, read(name)], [2, "", "mine"]);
      assert.match(
        stderr,
        new RegExp(`^sallyport: cannot replace ${name} without --force`),
      );
    }
    for (const name of ["b.jsonc", "gateway.crt", "gateway-keys.json"]) {
      assert.ok(!existsSync(join(folder.path, name)));
    }
    assert.equal((await run(["init", "--force", "--host", "x"])).status, 0);
    assert.equal((await run(["init", "--force"])).status, 0);
    assert.equal((await run(["keys", "list"])).stdout.match(/ first +active /g)?.length, 2);
  });

  it.once("writes everything except a key while Redis is down, and says so", async () => {
    const { status, stdout, stderr } = await run([
      "init",
      "--keys",
      "redis://:pass-canary@127.0.0.1:1",
    ]);
    assert.equal(status, 1);
    assert.match(
      stderr,
      /^sallyport: Cannot use the keys in Redis: .*All is written but a gateway key\n$/,
    );
    assert.match(
      stdout,
      /Then create a gateway key.*\n {2}GATEWAY_KEY=\$\(.* keys create --name first\)\n/,
    );
    assert.doesNotMatch(stdout + stderr, /pass-canary/);
    assert.deepEqual([config().keys, config().redis], [
      "redis",
      "redis://:pass-canary@127.0.0.1:1",
    ]);
    assert.equal(modeOf("gateway.jsonc"), 0o600, "it holds a password");
    assert.equal((await run(["check"])).status, 0);
  });

  it.once("describes a wrong option in one line, and writes nothing", async () => {
    const mistakes: readonly [args: readonly string[], says: RegExp][] = [
      [["--upstream", "opnai"], /--upstream: expected/],
      [["--upstream", "http://user:pw@x/v1"], /--upstream: expected/],
      [["--host", "gw.example.com:443"], /--host expects local, or a host name without a port/],
      [["--host", "a b"], /--host expects local/],
      [["--port", "0"], /--port expects a whole number from 1 to 65535/],
      [["--keys", "disk"], /--keys expects file, redis, or a URL such as redis:/],
      [["--config", "no/where.jsonc"], /cannot write no\/where\.jsonc: ENOENT/],
    ];
    for (const [args, says] of mistakes) {
      const { status, stdout, stderr } = await run(["init", ...args]);
      assert.deepEqual([status, stdout], [2, ""], args.join(" "));
      assert.match(stderr, says);
      assert.equal(stderr.split("\n").length, 2);
    }
    assert.ok(!existsSync(join(folder.path, "gateway.jsonc")));
  });

  // Its `script` runs a command at a separate terminal.
  const { it: atTerminal } = needs(["bsdutils"]);
  const start = (args: string) => {
    const command = `${process.execPath} ${
      runtime === "deno" ? "run -A " : ""
    }${ONE_FILE} init ${args}`;
    const on = { kind: "node", command: "script" } as const;
    return startProgram([command, "/dev/null"], {
      file: "-qec",
      on,
      cwd: folder.path,
      isTyping: true,
    });
  };

  atTerminal(
    "asks at a terminal for what no option says, again where an answer can't be served",
    async () => {
      const program = start("--keys file --port 9443");
      await program.waitFor(/Which provider[^]*\[openai\] /);
      program.type("opnai\r");
      await program.waitFor(/(expected[^]*\[openai\] )/);
      program.type("groq\r");
      await program.waitFor(/What is the address for callers[^]*\[local\] /);
      program.type("gw.example.com\r");
      assert.equal(await program.ended, 0, program.stdout());
      assert.doesNotMatch(program.stdout(), /Where are gateway keys stored/);
      const { listen, providers } = config();
      assert.deepEqual([listen[0].port, Object.keys(providers)], [9443, ["groq"]]);
      assert.ok(providers.groq.hosts.includes("gw.example.com"));
      const wide = program.stdout().split(/\r?\n/).filter((line) =>
        line.length > 80 && !line.includes(relative("/", ONE_FILE))
      );
      assert.deepEqual(wide.filter((line) => !line.includes("gk_")), []);
    },
  );

  atTerminal(
    "takes the defaults for empty answers, and writes nothing when the questions are ended",
    async () => {
      const ended = start("");
      await ended.waitFor(/(\[openai\] )/);
      ended.type("\x04"); // the end of the input
      assert.equal(await ended.ended, 2);
      assert.match(ended.stdout(), /sallyport: the questions were cancelled: nothing was written/);
      assert.ok(!existsSync(join(folder.path, "gateway.jsonc")));
      const program = start("");
      for (const fallback of ["openai", "local", "file"]) {
        await program.waitFor(new RegExp(`(\\[${fallback}\\] )`));
        program.type("\r");
      }
      assert.equal(await program.ended, 0);
      assert.deepEqual(Object.keys(config().providers), ["openai"]);
    },
  );
});
