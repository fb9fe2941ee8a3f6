/** `sallyport keys` with mistakes in the command, in the file, and in Redis. */
// runtimes: once
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { GOOD_BODY } from "../support/gateway.ts";
import { freePort } from "../support/free_port.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { assertRefused, makePlace, manyKeys, type Place } from "../support/key_place.ts";
import { runCommand } from "../support/command.ts";
import { cleanEnvironment, ONE_FILE, startProgram } from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { runtime } from "../support/runtimes.ts";
import { until } from "../support/until.ts";

const run = promisify(execFile);

/** A configuration that contains keys. */
const INLINE = {
  keys: [{ id: "own", key: "0123456789-own-key", models: ["m-*"] }, {
    id: "two",
    digest: "ab".repeat(32),
  }],
};

/** Mistakes in the command, for any keys. */
const MISTAKES: readonly [args: readonly string[], says: RegExp][] = [
  [
    [],
    /: keys expects create, list, show, update, rotate, disable, enable, revoke, credit, export, import or confirm\./,
  ],
  [["destroy", "x"], /: keys expects create, list, show, update, rotate, disable, /],
  [["constructor"], /: keys expects create, list/],
  [["create", "x"], /: unexpected argument: x\./],
  [["list", "x"], /: unexpected argument: x\./],
  [["show"], /: keys show expects the id of a key\./],
  [["revoke"], /: keys revoke expects the id of a key\./],
  [["show", "x", "y"], /: unexpected argument: y\./],
  [["list", "--name", "x"], /: keys list has no option --name\./],
  [["create", "--overlap", "1h"], /: keys create has no option --overlap\./],
  [["rotate", "x", "--once"], /: keys rotate has no option --once\./],
  [["create", "--speed", "1"], /--speed/],
  [["create", "--name"], /--name/],
  [["create", "--name", "-x"], /--name/],
  [["create", "--requests", "600"], /: --requests: expected a rate such as "600\/min"/],
  [["create", "--requests", "600rpm"], /: the period is written "\/min"/],
  [["create", "--budget", "$50/month"], /: --budget: expected money such as "50 USD\/month"/],
  [["create", "--tokens", "1k/fortnight"], /: --tokens: expected a rate/],
  [
    ["create", "--budget", "5M/year"],
    /: --budget: expected a budget by day, week or month, such as/,
  ],
  [["create", "--concurrency", "0"], /: --concurrency: expected a whole number from 1 to 1000000/],
  [["create", "--concurrency", "0x10"], /: --concurrency: expected a whole number/],
  [["create", "--concurrency", "many"], /: --concurrency: expected a whole number/],
  [["create", "--mode", "dream"], /: --mode: expected "enforce", "observe" or "strict"/],
  [["create", "--durable", "yes"], /: --durable: unknown setting/],
  [["create", "--durable", "keep=long"], /: --durable: expected a duration with its unit/],
  [["create", "--durable", "retries=often"], /: --durable: expected true or false/],
  [
    ["create", "--expires", "1y"],
    /: --expires: expected a duration such as "90d".*or a time such as 20/,
  ],
  [
    ["create", "--expires", "99999999999d"],
    /: --expires: expected a duration such as "90d", up to 36500d/,
  ],
  [["create", "--expires", "2027-02-30T00:00:00Z"], /: --expires: expected/],
  [["create", "--expires", "2027-02-28T00:00:00+01"], /: --expires: expected/],
  [["create", "--expires", "2027-02-30"], /: --expires: expected .*, a day such as 2027-01-31, or/],
  [["create", "--expires", "2020-01-01"], /: Cannot make a key that has expired already/],
  [
    ["create", "--expires", "0s"],
    /: Cannot make a key that has expired already: set a later time/,
  ],
  [["create", "--expires", "2020-01-01T00:00:00Z"], /: Cannot make a key that has expired already/],
  [["create", "--name", "x".repeat(257)], /: --name: expected at most 256 characters/],
  [["create", "--models", `a,${"x".repeat(257)}`], /: --models: expected at most 256 characters/],
  [["create", "--providers", " , "], /: --providers expects one name or several/],
  [["create", "--metadata", "team"], /: --metadata expects name=value/],
  [["create", "--metadata", "=x"], /: --metadata expects name=value/],
  [["create", "--metadata", "team="], /: --metadata expects name=value/],
  [["create", "--metadata", `team=${"x".repeat(257)}`], /: --metadata: expected at most 256/],
  // A variable that is not set in a script: the key would have no limits at all.
  ...[
    "name",
    "providers",
    "models",
    "requests",
    "tokens",
    "concurrency",
    "budget",
    "mode",
    "expires",
    "metadata",
  ].map(
    (
      name,
    ): [string[], RegExp] => [
      ["create", `--${name}`, ""],
      new RegExp(`: --${name} is empty: set a value`),
    ],
  ),
  [["update", "x"], /: keys update expects a change: --name, --providers/],
  [["rotate", "x", "--overlap", "soon"], /: --overlap expects a duration such as "24h"/],
  [["rotate", "x", "--overlap", "-1h"], /--overlap/],
  [
    ["rotate", "x", "--overlap", "1h", "--now"],
    /: keys rotate accepts --now or --overlap, not both\./,
  ],
  [["enable"], /: keys enable expects the id of a key\./],
  [["export", "keys.jsonl"], /: unexpected argument: keys\.jsonl\./],
  [["import", "a.jsonl", "b.jsonl"], /: unexpected argument: b\.jsonl\./],
  [["import", "none.jsonl"], /: Cannot read the keys to import: ENOENT\./],
  [["list", "--limit", "0"], /: --limit expects a whole number from 1/],
  [["list", "--limit", "1.5"], /: --limit expects a whole number from 1/],
  [["list", "--limit", ""], /: --limit expects a whole number from 1/],
  [["list", "--config", "none.jsonc"], /cannot read the file \(ENOENT\)/],
];

describe("sallyport keys, with mistakes", () => {
  let provider: Provider;
  let at: Place;
  beforeEach(async () => {
    provider = await startProvider();
    at = makePlace(provider.url);
  });
  afterEach(async () => {
    await at.remove();
    await provider.close();
  });
  const file = () => join(at.path, "keys.json");
  const call = async (url: string, key: string) => {
    const headers = {
      "authorization": "Bearer sk-1",
      "gateway-auth": `Bearer ${key}`,
      "content-type": "application/json",
    };
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: GOOD_BODY,
    });
    await response.text();
    return response.status;
  };

  it("answers every mistake with one line and exit status 2, and makes no file", async () => {
    for (const [args, says] of MISTAKES) {
      await assertRefused(at.keys(...args), says, args.join(" "));
    }
    assert.ok(!existsSync(file()));
  });

  // It used to run the demo.
  it("refuses a command and its verb in one word", async () => {
    await assertRefused(
      runCommand(["keys create"], { cwd: at.path }),
      /: unknown command: keys create\./,
    );
  });

  it("keys of the configuration are read-only", async () => {
    at.configure(INLINE);
    const listed = await at.good("list", "--json");
    assert.deepEqual(JSON.parse(listed), [{ id: "two", state: "active" }, {
      id: "own",
      models: ["m-*"],
      state: "active",
    }]);
    assert.doesNotMatch(await at.good("list") + await at.good("show", "own"), /0123456789|abab/);
    for (
      const args of [["create"], ["revoke", "own"], ["rotate", "own"], [
        "update",
        "own",
        "--name",
        "x",
      ]]
    ) {
      await assertRefused(
        at.keys(...args),
        /Cannot change keys of the configuration: set keys to \{ "file"/,
      );
    }
  });

  it("writes a file that only its owner can read, and leaves no temporary file", async () => {
    await at.create("--name", "x");
    await at.create("--name", "y");
    assert.equal(statSync(file()).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(at.path).sort(), [
      "gateway.jsonc",
      "keys.changes.jsonl",
      "keys.json",
    ]);
  });

  it("names the file that cannot be written", async () => {
    at.configure({ keys: { file: "missing/keys.json" } });
    await assertRefused(at.keys("create"), /: Cannot write \S*missing\/keys\.json\S*: ENOENT/);
    at.configure({ keys: { file: "gateway.jsonc/keys.json" } });
    await assertRefused(
      at.keys("create"),
      /: Cannot use \S+keys\.teams\.json: it can't be read: ENOTDIR/,
    );
    at.configure({});
    const { id } = await at.create("--name", "x");
    const before = readFileSync(file(), "utf8");
    let goOn = (): void => {};
    const held = new SharedFile(file()).change(() =>
      new Promise<void>((resolve) => goOn = resolve)
    );
    await until(() => existsSync(`${file()}.lock`), "the lock is held");
    assert.equal(JSON.parse(await at.good("list", "--json")).length, 1, "reading does not wait");
    await assertRefused(
      at.keys("revoke", id),
      /: Cannot change \S+: others have held \S+\.lock for 5 s\. Try again/,
    );
    goOn();
    await held;
    assert.equal(readFileSync(file(), "utf8"), before);
  });

  it("names the damage in the file, and leaves the file unchanged", async () => {
    const [a, b] = manyKeys(2).map(({ id, digest }) => JSON.stringify({ id, digest }));
    const cases: [string, RegExp][] = [
      ["", /keys\.json: expected JSON: correct it, or restore the file from a copy/],
      ["{", /keys\.json: expected JSON: correct it, or restore the file from a copy/],
      ["{}", /keys\.json: expected \{ "keys": \[ … \] \}/],
      [`{"keys":[\n${a},\n${b?.slice(0, 40)}\n]}\n`, /keys\.json: line 3: expected JSON/],
      [`{"keys":[\n${a},\n${a}\n]}\n`, /keys\.json: line 3: its id or digest is there twice/],
      [
        '{"keys":[{"id":"x","key":"0123456789-secret"}]}',
        /keys\[0\]: expected a digest, never a key itself/,
      ],
    ];
    for (const [text, says] of cases) {
      writeFileSync(file(), text);
      await assertRefused(at.keys("list"), says, text);
      await assertRefused(at.keys("create"), says, text);
      assert.equal(readFileSync(file(), "utf8"), text);
    }
  });

  it("a running gateway reports a broken file in one line, and the previous keys stay valid", async () => {
    const { key } = await at.create("--name", "x");
    const gateway = startProgram(["serve"], { cwd: at.path });
    const url = await gateway.waitFor(/listening on (http:\S+)/);
    const good = readFileSync(file(), "utf8");
    const write = (text: string) => {
      writeFileSync(`${file()}.new`, text);
      renameSync(`${file()}.new`, file());
    };
    write(good.replace('"digest"', '"dijest"'));
    await gateway.waitFor(
      /^sallyport: \S+keys\.json: line 2\S* .*\. The previous keys stay valid$/m,
    );
    assert.equal(await call(url, key), 200);
    rmSync(file());
    await gateway.waitFor(/^sallyport: \S+keys\.json: it is gone\. The previous keys stay valid$/m);
    assert.equal(await call(url, key), 200);
    write('{"keys":[]}');
    await gateway.waitFor(/^sallyport: \S+keys\.json: 0 keys are valid from now on$/m);
    assert.equal(await call(url, key), 401);
    write(good);
    await gateway.waitFor(/^sallyport: \S+keys\.json: 1 keys are valid from now on$/m);
    assert.equal(await call(url, key), 200);
    gateway.kill("SIGTERM");
    assert.equal(await gateway.ended, 0);
    assert.equal(gateway.reports().trimEnd().split("\n").length, 4);
  });

  // The end of the process used to truncate the list after the capacity of a pipe, 64 kB.
  it("a slow reader gets all of a long list", async () => {
    await at.fill(manyKeys(2000));
    const program = [process.execPath, ...(runtime === "deno" ? ["run", "-A"] : []), ONE_FILE];
    const args = [
      "-c",
      '"$@" | { sleep 0.5; cat; }',
      "sh",
      ...program,
      "keys",
      "list",
      "--limit",
      "2000",
      "--json",
    ];
    const { stdout } = await run("sh", args, {
      cwd: at.path,
      env: cleanEnvironment(),
      maxBuffer: 1e8,
    });
    assert.equal(JSON.parse(stdout).length, 2000);
  });

  it("prints names that would move a terminal's cursor as plain text", async () => {
    const [key] = manyKeys(1);
    await at.fill(
      key === undefined
        ? []
        : [{ ...key, name: "a\n\u001b[2Jb\u202ec", metadata: { note: "\u0007" } }],
    );
    for (const args of [["list"], ["show", key?.id ?? ""]]) {
      const said = await at.good(...args);
      assert.match(said, /a\ufffd\ufffd\[2Jb\ufffdc/);
      // deno-lint-ignore no-control-regex
      assert.doesNotMatch(said, /[\u0000-\u0009\u000b-\u001f\u202e]/);
    }
    assert.match(await at.good("list", "--json"), /"a\\n\\u001b\[2Jb/);
  });

  it("reports once that Redis does not answer, and needs no Redis if keys are in a file", async () => {
    const redis = `redis://127.0.0.1:${await freePort()}`;
    at.configure({ keys: "redis", redis });
    await assertRefused(at.keys("list"), /: Cannot use the keys in Redis: check that it runs/);
    await assertRefused(at.keys("create"), /: Cannot use the teams in Redis: check that it runs/);
    at.configure({ redis });
    const { status, stderr } = await at.keys("create");
    assert.equal(status, 0);
    assert.doesNotMatch(stderr, /Redis/);
  });
});
