/**
 * `--env-file`: variables from files, the same on every runtime. They never replace variables that
 * are set.
 */
// runtimes: all
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { COMMAND_NAMES, specOf } from "../../src/cli/command_table.ts";
import { parseVariables } from "../../src/cli/env_file.ts";
import { it } from "../support/cases.ts";
import { endPrograms, makeFolder, runProgram, startProgram } from "../support/program.ts";
import { runtime } from "../support/runtimes.ts";

const SECRET = "canary-0123456789#of-a-file";

describe("--env-file", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(async () => {
    await endPrograms();
    folder.remove();
  });
  const write = (name: string, text: string): string => {
    const file = join(folder.path, name);
    writeFileSync(file, text);
    return file;
  };
  const checked = async (args: readonly string[], env: Record<string, string> = {}) => {
    const { status, stdout, stderr } = await runProgram(["check", ...args], {
      cwd: folder.path,
      env,
    });
    assert.equal(status, 0, stderr);
    return JSON.parse(stdout);
  };

  it("sets missing variables; the last of several files wins", async () => {
    write(
      "a.env",
      `SALLYPORT_PROVIDER_A=openai\nSALLYPORT_KEYS=${SECRET}\nSALLYPORT_CURRENCY=EUR\nSALLYPORT_LOG=json`,
    );
    write("b.env", "SALLYPORT_CURRENCY=CHF");
    const files = ["--env-file", "a.env", "--env-file=b.env"];
    const config = await checked(files);
    assert.deepEqual([config.currency, config.log, Object.keys(config.providers)], ["CHF", "json", [
      "a",
    ]]);
    assert.equal((await checked(files, { SALLYPORT_CURRENCY: "GBP" })).currency, "GBP");
    // An empty variable counts as set, so a variable of a file can be switched off.
    assert.equal((await checked(files, { SALLYPORT_LOG: "" })).log, "auto");
  });

  it("selects the configuration, for keys, usage and the doctor as well as for check", async () => {
    write(
      "gateway.json",
      JSON.stringify({ providers: { a: { upstream: "http://127.0.0.1:1/v1" } } }),
    );
    const file = write(
      "x.env",
      "SALLYPORT_CONFIG=gateway.json\nSALLYPORT_KEYS_FILE=keys.json\nMY_KEY=sk-mine\n",
    );
    const run = (...args: string[]) =>
      runProgram([...args, "--env-file", file], { cwd: folder.path });
    const made = await run("keys", "create", "--name", "team-x");
    assert.equal(made.status, 0, made.stderr);
    assert.match((await run("keys", "list")).stdout, / team-x +active /);
    const doctor = await run("doctor", "a", "--model", "m", "--key-env", "MY_KEY");
    assert.match(doctor.stdout, /127\.0\.0\.1:1/);
    assert.equal(doctor.status, 1, "the key is there, the provider is not");
  });

  it("is read again by serve at SIGHUP", async () => {
    const file = write(
      "x.env",
      `SALLYPORT_LISTEN=127.0.0.1:0\nSALLYPORT_PROVIDER_A=http://127.0.0.1:1/v1\nSALLYPORT_KEYS=${SECRET}`,
    );
    const program = startProgram(["serve", "--env-file", file]);
    const url = await program.waitFor(/listening on (http:\S+)/);
    const statusFor = async (key: string) => {
      const headers = { authorization: "Bearer sk-x", "gateway-auth": `Bearer ${key}` };
      const answer = await fetch(`${url}/v1/models`, { headers });
      await answer.text();
      return answer.headers.get("sallyport-error");
    };
    const before = await statusFor(SECRET);
    assert.equal(before, "upstream_unreachable");
    write("x.env", "SALLYPORT_LISTEN=127.0.0.1:0\nSALLYPORT_KEYS=another-key-of-the-file\n");
    program.kill("SIGHUP");
    await program.waitFor(/not reloaded, the previous one stays in effect: providers: is missing/);
    write(
      "x.env",
      "SALLYPORT_PROVIDER_A=http://127.0.0.1:1/v1\nSALLYPORT_KEYS=another-key-of-the-file\nSALLYPORT_LISTEN=127.0.0.1:0",
    );
    program.kill("SIGHUP");
    await program.waitFor(/(the configuration was reloaded)/);
    const again = await program.waitFor(/listening on (http:\S+)/);
    assert.equal(again, url);
    assert.equal(await statusFor("another-key-of-the-file"), before);
    assert.equal(await statusFor(SECRET), "invalid_gateway_key");
  });

  it("names a mistake in a file and its place, without its secrets", async () => {
    const cases: readonly [text: string, says: string][] = [
      [`A=1\n\n${SECRET}\n`, "expected NAME=value (x.env:3)"],
      [`A=1\nB="${SECRET}\n`, "expected a closing quote, and at most a comment after it (x.env:2)"],
      [`'B'=${SECRET}`, "expected NAME=value (x.env:1)"],
      [
        `B='${SECRET}'${SECRET}`,
        "expected a closing quote, and at most a comment after it (x.env:1)",
      ],
    ];
    for (const [text, says] of cases) {
      write("x.env", text);
      const { status, stdout, stderr } = await runProgram(["check", "--env-file", "x.env"], {
        cwd: folder.path,
      });
      assert.deepEqual({ status, stdout, stderr }, {
        status: 2,
        stdout: "",
        stderr: `sallyport: --env-file: ${says}\n`,
      });
    }
    const { status, stderr } = await runProgram(["check", "--env-file", "none.env"], {
      cwd: folder.path,
    });
    // Node reads the file itself, at any position of the option, and exits if it is missing.
    if (runtime === "node") assert.match(stderr, /none\.env: not found/);
    else assert.equal(stderr, "sallyport: --env-file: cannot read the file (ENOENT) (none.env)\n");
    assert.equal(status, runtime === "node" ? 9 : 2);
  });

  it.unless(
    runtime === "deno" ? undefined : "only Deno has permissions",
    "needs only the permissions on Deno that check --deno-flags prints",
    async () => {
      const file = write(
        "x.env",
        `SALLYPORT_PROVIDER_A=openai\nSALLYPORT_KEYS=${SECRET}\nOTHER=1\nSALLYPORT_LISTEN=127.0.0.1:0`,
      );
      const config = write("gateway.jsonc", '{ "providers": { "a": { "upstream": "openai" } } }');
      const args = ["--config", config, "--env-file", file];
      const { stdout } = await runProgram(["check", "--deno-flags", ...args]);
      assert.match(stdout, /--allow-env=OTHER,SALLYPORT_KEYS,/);
      const permissions = stdout.trim().split(" ").map((flag) =>
        flag.replace("127.0.0.1:0", "127.0.0.1")
      );
      const program = startProgram(["serve", ...args], { permissions });
      await program.waitFor(/listening on (http:\S+)/);
      const narrow = permissions.map((flag) => flag.replace("OTHER,", ""));
      const refused = await runProgram(["check", ...args], { permissions: narrow });
      assert.match(
        refused.stderr,
        /^sallyport: --env-file: cannot set OTHER: Deno has to be started with --allow-env=OTHER/,
      );
    },
  );

  it("is accepted by every command that reads the configuration", () => {
    for (const name of COMMAND_NAMES) {
      const { options } = specOf(name);
      assert.equal(options.includes("env-file"), options.includes("config"), name);
    }
  });

  it("reads values as the configuration page describes", () => {
    const read = parseVariables(
      [
        "\uFEFF# a comment",
        "PLAIN=one",
        "  SPACED =  two words  ",
        "export EXPORTED=three",
        "EMPTY=",
        "EMPTY_TOO= # a comment",
        "HASH=four#five # a comment",
        "HASH_FIRST=#six",
        "SINGLE='se\\nven #7' # a comment",
        'DOUBLE="ei\\nght \\"8\\" C:\\\\x \\d"',
        "BACK=`n'i\"ne`",
        'LINES="one',
        '# two"',
        'INNER=it\'s "plain"',
        "DOLLAR=$PLAIN ${PLAIN}",
        'JSON={"a":1}',
        "EQUALS=a=b==",
        "TWICE=1",
        "TWICE=2",
        "\t",
        "LAST=end",
      ].join("\r\n"),
    );
    assert.deepEqual(Object.fromEntries(read), {
      PLAIN: "one",
      SPACED: "two words",
      EXPORTED: "three",
      EMPTY: "",
      EMPTY_TOO: "",
      HASH: "four#five",
      HASH_FIRST: "#six",
      SINGLE: "se\\nven #7",
      DOUBLE: 'ei\nght "8" C:\\x \\d',
      BACK: "n'i\"ne",
      LINES: "one\n# two",
      INNER: 'it\'s "plain"',
      DOLLAR: "$PLAIN ${PLAIN}",
      JSON: '{"a":1}',
      EQUALS: "a=b==",
      TWICE: "2",
      LAST: "end",
    });
  });
});
