/** Teams of the configuration and stored ones, by a clock that the test moves. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { TeamDirectory } from "../../src/keys/team_directory.ts";
import type { TeamStore } from "../../src/keys/team_store.ts";

const CONFIGURED = { search: { limits: { concurrency: 1 } } };

/** A directory over records that a test changes, the number of its reads, and its clock. */
function makeDirectory() {
  const records = new Map<string, string>();
  let reads = 0;
  let now = 0;
  let isFailing = false;
  const store: TeamStore = {
    read() {
      reads++;
      if (isFailing) return Promise.reject(new Error("away"));
      return Promise.resolve({ records: new Map(records), isComplete: true });
    },
    replace: () => assert.fail(),
  };
  const clock = { ...systemClock, monotonic: () => now };
  return {
    teams: new TeamDirectory(CONFIGURED, store, clock),
    write: (name: string, concurrency: number) =>
      records.set(name, JSON.stringify({ limits: { concurrency } })),
    pass: (ms: number) => now += ms,
    fail: () => isFailing = true,
    reads: () => reads,
  };
}

describe("the teams of keys", () => {
  it("of the configuration are found at once, and hide stored ones of the same name", async () => {
    const { teams, write, reads } = makeDirectory();
    write("search", 9);
    assert.equal(teams.find("search"), CONFIGURED.search);
    assert.equal(reads(), 0);
    assert.deepEqual(await teams.load(), CONFIGURED);
  });

  it("are answered from memory for half a second, and a change applies within a second", async () => {
    const { teams, write, pass, reads } = makeDirectory();
    write("ads", 1);
    assert.deepEqual(await teams.find("ads"), { limits: { concurrency: 1 } });
    write("ads", 2);
    pass(499);
    assert.deepEqual(teams.find("ads"), { limits: { concurrency: 1 } });
    assert.equal(reads(), 1);
    pass(501);
    assert.deepEqual(await teams.find("ads"), { limits: { concurrency: 2 } });
    assert.equal(reads(), 2);
  });

  it("stay in effect while their store fails, without a read for each call", async () => {
    const { teams, write, pass, fail, reads } = makeDirectory();
    write("ads", 1);
    await teams.find("ads");
    fail();
    pass(3_600_000);
    for (let call = 0; call < 5; call++) {
      assert.deepEqual(await teams.find("ads"), { limits: { concurrency: 1 } });
    }
    assert.equal(reads(), 2);
    await assert.rejects(async () => await teams.find("new"), { code: "key_store_unavailable" });
  });

  it("that have names of object methods are unknown", async () => {
    const { teams } = makeDirectory();
    for (const name of ["constructor", "tostring"]) {
      assert.equal(await teams.find(name), undefined);
    }
  });
});
