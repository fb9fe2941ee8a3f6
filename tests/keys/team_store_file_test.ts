/** Teams in a file: the suite of all stores, and faults of the file. */
// runtimes: all
import assert from "node:assert/strict";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "@std/testing/bdd";
import { KeyStoreUnavailable } from "../../src/keys/key_store.ts";
import { TeamDirectory } from "../../src/keys/team_directory.ts";
import { FileTeamStore } from "../../src/keys/team_store_file.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { makeFolder } from "../support/program.ts";
import { describeTeamStore } from "./team_store_suite.ts";

describeTeamStore("in a file", () => {
  const { path, remove } = makeFolder();
  return Promise.resolve({
    open: () => Promise.resolve(new FileTeamStore(new SharedFile(join(path, "teams.json")))),
    close: () => Promise.resolve(remove()),
  });
});

describe("a file of teams", () => {
  it("is only for its owner", async () => {
    const { path, remove } = makeFolder();
    const file = join(path, "teams.json");
    await new FileTeamStore(new SharedFile(file)).replace("search", undefined, "{}");
    assert.equal(statSync(file).mode & 0o777, 0o600);
    remove();
  });

  for (const content of ["{", "[]", "{}", '{"teams":[]}', '{"teams":{"No Name":{}}}']) {
    it(`that contains ${content} is refused with the fix, and is not replaced`, async () => {
      const { path, remove } = makeFolder();
      const file = join(path, "teams.json");
      writeFileSync(file, content);
      const store = new FileTeamStore(new SharedFile(file));
      const isRefused = (error: unknown) => {
        assert.ok(error instanceof KeyStoreUnavailable);
        assert.match(
          error.message,
          /^Cannot use .*teams\.json: expected .* correct it, or restore/,
        );
        return true;
      };
      await assert.rejects(store.read(), isRefused);
      await assert.rejects(store.replace("search", undefined, "{}"), isRefused);
      remove();
    });
  }

  it("that breaks leaves the known teams in effect; others are unavailable", async () => {
    const { path, remove } = makeFolder();
    const file = join(path, "teams.json");
    const teams = new TeamDirectory({}, new FileTeamStore(new SharedFile(file)));
    const policy = { limits: { concurrency: 2 } };
    await teams.change("search", () => policy);
    writeFileSync(file, "{");
    assert.deepEqual(await teams.find("search"), policy);
    await assert.rejects(async () => await teams.find("ads"), { code: "key_store_unavailable" });
    assert.deepEqual(await teams.find("search"), policy);
    remove();
  });
});
