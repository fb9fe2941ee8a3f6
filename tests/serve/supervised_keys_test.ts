/** Keys that workers ask each other for while Redis is away. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { readRecord } from "../../src/keys/key_record.ts";
import { type KeyMessage, SupervisedKeys, WorkerKeys } from "../../src/serve/workers/supervised_keys.ts";
import { digest } from "../keys/key_store_suite.ts";

const KEY = readRecord({ id: "one", digest: digest("one"), created: "2026-11-21T00:00:00.000Z" });

/** Workers under one supervisor, the questions that they were asked, and a clock that a test moves. */
function startWorkers(count: number) {
  const asked: string[] = [];
  let now = 0;
  const clock: Clock = { ...systemClock, monotonic: () => now };
  const workers: SupervisedKeys[] = [];
  const supervisor = new WorkerKeys<SupervisedKeys>({
    serving: () => workers,
    say(worker, message) {
      if (message.type === "findKey") asked.push(message.digest);
      worker.heard(message);
    },
  });
  for (let index = 0; index < count; index++) {
    const worker: SupervisedKeys = new SupervisedKeys(
      (message: KeyMessage) => supervisor.heard(worker, message),
      clock,
    );
    workers.push(worker);
  }
  return { asked, workers, pass: (ms: number) => now += ms };
}

describe("keys that workers ask each other for", () => {
  it("are asked for once a second where no worker knows them, however often they are presented", async () => {
    const { asked, workers: [first = assert.fail()], pass } = startWorkers(4);
    for (let call = 0; call < 50; call++) assert.equal(await first.find(KEY.digest), undefined);
    assert.equal(asked.length, 3, "each other worker once");
    pass(999);
    await first.find(KEY.digest);
    assert.equal(asked.length, 3);
    pass(1);
    await first.find(KEY.digest);
    assert.equal(asked.length, 6);
  });

  it("are found a second after a miss, where another worker has met them meanwhile", async () => {
    const { workers: [first = assert.fail(), second = assert.fail()], pass } = startWorkers(2);
    assert.equal(await first.find(KEY.digest), undefined);
    second.onAsked(() => ({ key: KEY, ageMs: 5 }));
    pass(1000);
    assert.equal((await first.find(KEY.digest))?.key.id, "one");
  });

  it("are asked for two hundred at once at most, and what was not asked is no miss", async () => {
    const sent: KeyMessage[] = [];
    const worker = new SupervisedKeys((message) => void sent.push(message));
    const open = Array.from({ length: 200 }, (_, index) => worker.find(digest(`guess ${index}`)));
    assert.equal(await worker.find(KEY.digest), undefined);
    assert.equal(sent.length, 200);
    for (const { call } of sent) worker.heard({ type: "foundKey", call, found: null });
    await Promise.all(open);
    const asking = worker.find(KEY.digest);
    assert.equal(sent.length, 201);
    worker.heard({ type: "foundKey", call: sent[200]?.call ?? 0, found: null });
    assert.equal(await asking, undefined);
  });
});
