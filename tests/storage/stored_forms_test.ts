/** The forms of stored data: they belong to a version, and a later form is refused, not misread. */
// runtimes: once
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { afterEach } from "@std/testing/bdd";
import { Redis } from "ioredis";
import { VERSION } from "../../src/cli/command.ts";
import { STORED_FORMS } from "../../src/storage/stored_forms.ts";
import { AUDIENCE, startIssuer } from "../support/issuer.ts";
import { makePlace, type Place } from "../support/key_place.ts";
import { makePreviousBuild, previousCommit } from "../support/previous_build.ts";
import { ONE_FILE, runProgram, startProgram } from "../support/program.ts";
import { type RedisServer, startRedis } from "../support/redis.ts";
import { needs } from "../support/requires.ts";
import { readStoredForms } from "../support/stored_forms.ts";

const FILE = new URL("stored_forms.json", import.meta.url);
const HOW =
  "raise the version in package.json, deno.json and src/cli/command.ts, and run this test with UPDATE_FORMS=1";
const NO_PREVIOUS = previousCommit === undefined
  ? "the history of the repository is not here"
  : undefined;
const withRedis = needs(["redis-server"]);

const readAll = async (file: string) => ({
  redis: await readStoredForms(file, "redis"),
  files: await readStoredForms(file, "files"),
});

withRedis.describe("the forms of stored data", () => {
  let at: Place | undefined;
  let redis: RedisServer | undefined;
  let raw: Redis | undefined;
  afterEach(async () => {
    raw?.disconnect();
    await at?.remove();
    await redis?.stop();
    raw = at = redis = undefined;
  });

  const serve = () => startProgram(["serve"], { cwd: at?.path ?? assert.fail("no place") });
  const assertRefused = async (args: readonly string[], says: RegExp) => {
    const { status, stderr } = await runProgram(args, { cwd: at?.path ?? assert.fail("no place") });
    assert.equal(status, 2, stderr);
    assert.match(stderr, says);
  };

  withRedis.it("change only with the version", async () => {
    const forms = await readAll(ONE_FILE);
    if (process.env.UPDATE_FORMS === "1") {
      writeFileSync(FILE, `${JSON.stringify({ since: VERSION, forms }, null, 2)}\n`);
    }
    assert.deepEqual(forms, JSON.parse(readFileSync(FILE, "utf8")).forms, HOW);
  });

  needs(["redis-server"], NO_PREVIOUS).it(
    "have another version in the previous build if its forms differ",
    async () => {
      const file = makePreviousBuild(previousCommit ?? assert.fail("no history"));
      const { stdout } = await runProgram(["--version"], { file });
      const { since, forms } = JSON.parse(readFileSync(FILE, "utf8"));
      const before = await readAll(file);
      if (JSON.stringify(before) === JSON.stringify(forms)) return;
      assert.notEqual(stdout.trim(), VERSION, HOW);
      assert.notEqual(stdout.trim(), since, HOW);
    },
  );

  withRedis.it("of a later version in Redis are refused, also by commands", async () => {
    redis = await startRedis();
    raw = new Redis(redis.url);
    at = makePlace("http://127.0.0.1:9", redis);
    await at.good("create", "--name", "one");
    assert.equal(await raw.get("sallyport:forms"), null, "a command writes no number");
    await serve().waitFor(/listening on (http:\S+)/);
    assert.equal(await raw.get("sallyport:forms"), String(STORED_FORMS));
    await raw.set("sallyport:forms", STORED_FORMS + 1);
    const says =
      /redis: this Redis is used by a later version, in a form that this one cannot read: run that version/;
    await assertRefused(["serve"], says);
    await assertRefused(["keys", "list"], says);
    assert.equal(await raw.get("sallyport:forms"), String(STORED_FORMS + 1));
  });

  withRedis.it("of a later version are reported by a gateway whose Redis is replaced", async () => {
    redis = await startRedis();
    at = makePlace("http://127.0.0.1:9", redis);
    const program = serve();
    await program.waitFor(/listening on (http:\S+)/);
    // The other Redis has the number before the gateway can reach it.
    raw = new Redis(redis.url);
    raw.on("error", () => {});
    await raw.set("sallyport:forms", STORED_FORMS + 1);
    await raw.save();
    await redis.restart();
    await program.waitFor(/(this Redis is used by a later version)/);
  });

  withRedis.it("of a later version in a file are refused without a change", async () => {
    const issuer = await startIssuer();
    at = makePlace("http://127.0.0.1:9");
    at.configure({ identity: [{ issuer: issuer.url, audience: AUDIENCE, name: "corp" }] });
    await at.good("create", "--name", "one");
    const keys = readFileSync(join(at.path, "keys.json"), "utf8");
    const later: Readonly<Record<string, string>> = {
      "keys.json": keys.replace('],"checksum"', `],"version":${STORED_FORMS + 1},"checksum"`),
      "keys.revoked.json": JSON.stringify({ version: STORED_FORMS + 1, revoked: [] }),
      "keys.state.json": JSON.stringify({ version: STORED_FORMS + 1, used: {}, budgets: [] }),
    };
    for (const [name, text] of Object.entries(later)) {
      const path = join(at.path, name);
      writeFileSync(path, text);
      await assertRefused(["serve"], /later version/);
      assert.equal(readFileSync(path, "utf8"), text);
      writeFileSync(path, name === "keys.json" ? keys : text.replace(/"version":\d+,/, ""));
    }
    await serve().waitFor(/listening on (http:\S+)/);
    await issuer.stop();
  });
});
