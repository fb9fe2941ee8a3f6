/** A quick check of the commands on every runtime: all details are tested on one runtime. */
// runtimes: all, old node
import assert from "node:assert/strict";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { makeFolder, runProgram } from "../support/program.ts";

describe("the command line", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(() => folder.remove());
  const run = (...args: string[]) =>
    runProgram(args, {
      env: { SALLYPORT_PROVIDER_A: "openai", SALLYPORT_KEYS_FILE: join(folder.path, "keys.json") },
    });

  it("makes, lists and revokes a key", async () => {
    const made = await run("keys", "create", "--name", "team-x", "--json");
    assert.deepEqual([made.status, made.stderr], [0, ""]);
    const { id, key } = JSON.parse(made.stdout);
    assert.match(key, /^gk_/);
    const list = await run("keys", "list");
    assert.match(list.stdout, new RegExp(`^${id} +team-x +active`, "m"));
    assert.equal((await run("keys", "revoke", id)).status, 0);
    assert.equal(JSON.parse((await run("keys", "show", id, "--json")).stdout).state, "revoked");
  });

  it("checks a configuration, and prints one line and exits with 2 for a mistake", async () => {
    await run("keys", "create"); // otherwise there is no file of keys
    const { status, stdout } = await run("check");
    assert.equal(status, 0);
    assert.deepEqual(Object.keys(JSON.parse(stdout).providers), ["a"]);
    const mistake = await run("keys", "destroy");
    assert.deepEqual([mistake.status, mistake.stdout], [2, ""]);
    assert.match(mistake.stderr, /^sallyport: keys expects create, .*\n$/);
  });
});
