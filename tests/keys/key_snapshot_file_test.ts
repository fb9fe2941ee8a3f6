/** The snapshot of keys in a file: its content, its lifetime, and how processes share it. */
// runtimes: once
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { writeKeyRecord } from "../../src/keys/key_record.ts";
import { KeySnapshot, SNAPSHOT_MS } from "../../src/keys/key_snapshot_file.ts";
import type { GatewayKey } from "../../src/keys/key_store.ts";
import { SharedFile } from "../../src/storage/shared_file.ts";
import { makeFolder } from "../support/program.ts";
import { until } from "../support/until.ts";
import { digest, record, SOME_DAY } from "./key_store_suite.ts";

const [ONE, TWO] = [record("one"), record("two")];

describe("a snapshot of keys", () => {
  const folder = { path: "", remove: (): void => {} };
  let file = "";
  let now = SOME_DAY;
  let reports: string[] = [];
  beforeEach(() => {
    Object.assign(folder, makeFolder());
    file = join(folder.path, "keys.snapshot.jsonl");
    now = SOME_DAY;
    reports = [];
  });
  afterEach(() => folder.remove());

  const clock: Clock = {
    now: () => now,
    monotonic: systemClock.monotonic,
    timer: (_, fire) => systemClock.timer(20, fire),
  };
  const open = async (): Promise<KeySnapshot> => {
    const snapshot = new KeySnapshot(new SharedFile(file), {
      clock,
      report: (text) => void reports.push(text),
    });
    await snapshot.start();
    return snapshot;
  };
  const see = (snapshot: KeySnapshot, key: GatewayKey) =>
    snapshot.see(key, writeKeyRecord(key), now);
  const ids = (snapshot: KeySnapshot, ...keys: GatewayKey[]) =>
    keys.map((key) => snapshot.find(key.digest)?.id);

  it("has the keys that were used, also by their previous secret, until a day has passed", async () => {
    const first = await open();
    assert.equal(first.isUsable, false);
    see(first, { ...ONE, previous: { digest: digest("before"), expiresAt: SOME_DAY + 5000 } });
    first.mark("a generation");
    first.noteGateways(3);
    await first.close();
    const second = await open();
    assert.deepEqual([second.isUsable, second.generation, second.gateways], [
      true,
      "a generation",
      3,
    ]);
    assert.equal(second.find(digest("before"))?.id, "one");
    now += SNAPSHOT_MS - 1;
    assert.deepEqual(ids(second, ONE, TWO), ["one", undefined]);
    now += 1;
    assert.deepEqual(ids(second, ONE), [undefined]);
    assert.equal(second.isUsable, false);
  });

  it("has the stored teams, until a day has passed since they were seen", async () => {
    const first = await open();
    assert.equal(first.teams, undefined);
    first.seeTeams(new Map([["ads", "{}"], ["search", "{}"]]));
    now += 1;
    first.seeTeams(new Map([["ads", '{"limits":{}}']]));
    await first.close();
    const second = await open();
    assert.deepEqual(second.teams, new Map([["ads", '{"limits":{}}']]));
    now += SNAPSHOT_MS;
    assert.equal(second.teams, undefined);
  });

  it("is written again only for changes, or for keys that were used an hour later", async () => {
    const snapshot = await open();
    see(snapshot, ONE);
    await until(() => existsSync(file), "it is written");
    const before = readFileSync(file, "utf8");
    writeFileSync(file, ""); // a write would show
    now += 60_000;
    see(snapshot, ONE);
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(readFileSync(file, "utf8"), "");
    now += 3_600_000;
    see(snapshot, ONE);
    await until(() => readFileSync(file, "utf8") !== "", "it is written");
    assert.notEqual(readFileSync(file, "utf8"), before);
    await snapshot.close();
  });

  it("is shared by processes: each adds its keys, and a change that one hears of remains", async () => {
    const [here, there] = [await open(), await open()];
    see(here, ONE);
    await here.close();
    see(there, TWO);
    await there.close();
    const third = await open();
    assert.deepEqual(ids(third, ONE, TWO), ["one", "two"]);
    now += 1000;
    third.forget(ONE.digest);
    now += 1000;
    // An answer to a question from before the change, and a file that another process wrote before
    // it heard of the change.
    third.see(ONE, writeKeyRecord(ONE), now - 1500);
    await there.close();
    await third.close();
    assert.deepEqual(ids(third, ONE, TWO), [undefined, "two"]);
    assert.deepEqual(ids(await open(), ONE, TWO), [undefined, "two"]);
  });

  it("is not used if it is broken or cut, and then replaced", async () => {
    const first = await open();
    for (const key of [ONE, TWO]) see(first, key);
    await first.close();
    const good = readFileSync(file, "utf8");
    const broken = [
      "",
      "{",
      "[]\n",
      good.slice(0, -30),
      good.split("\n").slice(0, 2).join("\n"),
      good.replace("digest", "x"),
      good.replace("{", '{"gateways":0,'),
    ];
    for (const text of broken) {
      reports = [];
      writeFileSync(file, text);
      const next = await open();
      assert.equal(next.isUsable, false, text);
      assert.match(reports.join("\n"), /: this snapshot of keys is broken and is not used$/);
      see(next, ONE);
      await next.close();
      assert.deepEqual(ids(await open(), ONE), ["one"]);
    }
  });

  it("has a bounded number of keys, the last used ones", async () => {
    const snapshot = await open();
    const keys = Array.from({ length: 56_000 }, (_, index) => record(`key-${index}`));
    for (const key of keys) see(snapshot, key);
    await snapshot.close();
    const lines = readFileSync(file, "utf8").trimEnd().split("\n").length - 1;
    assert.ok(lines >= 50_000 && lines <= 55_000, String(lines));
    const last = keys.at(-1) ?? assert.fail();
    assert.deepEqual(ids(await open(), last, record("key-0")), [last.id, undefined]);
  });
});
