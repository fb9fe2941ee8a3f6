/** Keys that workers request from each other while Redis is away. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { readKeyRecord } from "../../src/keys/key_record.ts";
import type { KeyMessage } from "../../src/serve/workers/key_messages.ts";
import { KeysClient } from "../../src/serve/workers/worker/keys_client.ts";
import { WorkerKeys } from "../../src/serve/workers/supervisor/worker_keys.ts";
import { digest } from "../keys/key_store_suite.ts";
import { until } from "../support/until.ts";

const KEY = readKeyRecord({
  id: "one",
  digest: digest("one"),
  created: "2026-11-21T00:00:00.000Z",
});

/**
 * Workers under one supervisor, the digests of each question that they received, and a clock that a
 * test moves.
 */
function startWorkers(count: number) {
  const asked: (readonly string[])[] = [];
  let now = 0;
  const clock: Clock = { ...systemClock, monotonic: () => now };
  const workers: KeysClient[] = [];
  const supervisor = new WorkerKeys<KeysClient>({
    serving: () => workers,
    send(worker, message) {
      if (message.type === "findKeys") asked.push(message.digests);
      queueMicrotask(() => worker.handle(message));
    },
  });
  for (let index = 0; index < count; index++) {
    const worker: KeysClient = new KeysClient(
      (message: KeyMessage) => supervisor.handle(worker, message),
      clock,
    );
    workers.push(worker);
  }
  return { asked, workers, pass: (ms: number) => now += ms };
}

describe("keys that workers request from each other", () => {
  it("are requested once a second if no worker knows them, however often they are presented", async () => {
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

  it("are found a second after a miss, if another worker has learned them meanwhile", async () => {
    const { workers: [first = assert.fail(), second = assert.fail()], pass } = startWorkers(2);
    assert.equal(await first.find(KEY.digest), undefined);
    second.onAsked(() => ({ key: KEY, ageMs: 5 }));
    pass(1000);
    assert.equal((await first.find(KEY.digest))?.key.id, "one");
  });

  it("are requested in one question, however many guesses arrive with them, and a known key is found", async () => {
    const { asked, workers: [first = assert.fail(), second = assert.fail()] } = startWorkers(3);
    second.onAsked((asking) => asking === KEY.digest ? { key: KEY, ageMs: 5 } : undefined);
    const guesses = Array.from(
      { length: 2000 },
      (_, index) => first.find(digest(`guess ${index}`)),
    );
    assert.equal((await first.find(KEY.digest))?.key.id, "one");
    assert.deepEqual(await Promise.all(guesses), Array(2000).fill(undefined));
    assert.deepEqual(asked.map(({ length }) => length), [2001, 2001], "each other worker once");
  });

  it("are found although a worker does not answer", async () => {
    const { workers: [first = assert.fail(), second = assert.fail(), silent = assert.fail()] } =
      startWorkers(3);
    silent.handle = () => {};
    second.onAsked((asking) => asking === KEY.digest ? { key: KEY, ageMs: 5 } : undefined);
    let isGuessAnswered = false;
    const guess = first.find(digest("guess")).finally(() => isGuessAnswered = true);
    assert.equal((await first.find(KEY.digest))?.key.id, "one");
    assert.equal(isGuessAnswered, false);
    assert.equal(await guess, undefined);
  });

  it("are awaited by ten thousand calls at most, and an unasked question is not a miss", async () => {
    const sent: KeyMessage[] = [];
    const worker = new KeysClient((message) => void sent.push(message));
    const answer = (question: number) =>
      worker.handle({ type: "foundKeys", question, found: [], isLast: true });
    const open = Array.from(
      { length: 10_000 },
      (_, index) => worker.find(digest(`guess ${index}`)),
    );
    assert.equal(await worker.find(KEY.digest), undefined);
    await until(() => sent.length === 1, "the first question");
    answer(1);
    await Promise.all(open);
    const asking = worker.find(KEY.digest);
    await until(() => sent.length === 2, "the second question");
    answer(2);
    assert.equal(await asking, undefined);
  });
});
