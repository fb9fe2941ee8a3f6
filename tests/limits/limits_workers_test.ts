/**
 * Limits that a supervisor counts for its workers: the suite of all limiters, messages of many
 * exchanges, and workers that end.
 */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { describe } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { type LimitSubject, NO_RESERVATION, type Reservation } from "../../src/limits/limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { LimiterClient } from "../../src/serve/workers/worker/limiter_client.ts";
import type { LimitBatch } from "../../src/serve/workers/limit_messages.ts";
import { WorkerLeases } from "../../src/serve/workers/supervisor/worker_leases.ts";
import { describeLimiter, expecting, keyWith, refusalOf, tokens, usedOf } from "./limits_suite.ts";
import { it } from "../support/cases.ts";

const HOUR = 3_600_000;

/**
 * A supervisor that counts for workers. Messages need a turn of the event loop in each direction.
 */
function createSupervisor(limiter = new MemoryLimiter(systemClock)) {
  const join = () => {
    const leases = new WorkerLeases(limiter);
    const batches: LimitBatch[] = [];
    let isAlive = true;
    const worker = new LimiterClient((batch) => {
      const message: LimitBatch = JSON.parse(JSON.stringify(batch));
      batches.push(message);
      setImmediate(() => {
        if (!isAlive) return;
        const states = leases.handle(message);
        if (message.questions.length > 0) setImmediate(() => isAlive && worker.receive(states));
      });
    });
    const kill = () => {
      isAlive = false;
      leases.releaseAll();
    };
    return { worker, batches, kill };
  };
  return { join };
}

describeLimiter("of workers", () => {
  let passed = 0;
  const begin = Date.UTC(2026, 1, 27, 23, 0);
  const clock = { ...systemClock, now: () => begin + passed, monotonic: () => passed };
  const { worker } = createSupervisor(new MemoryLimiter(clock)).join();
  return { limiter: worker, now: clock.now, pass: (ms) => void (passed += ms), close() {} };
});

describe("limits of workers", () => {
  it("simultaneous questions share a message, and simultaneous ends share a message", async () => {
    const { worker, batches } = createSupervisor().join();
    const subject = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, concurrency: 100 });
    const leases = await Promise.all(
      Array.from({ length: 50 }, () => worker.acquire([subject], expecting(tokens(2)))),
    );
    assert.deepEqual(batches.map(({ questions }) => questions.length), [50]);
    assert.deepEqual(
      batches[0]?.subjects.map(({ number }) => number),
      [0],
      "its limits are told once",
    );
    for (const lease of leases) lease.release(tokens(1));
    assert.deepEqual(await usedOf(worker, subject), { tokens: 50, concurrency: 0 });
    assert.equal(batches.length, 2);
    assert.deepEqual(batches[1]?.subjects, []);
  });

  it("while one message waits for its answer, all others become one", async () => {
    const { worker, batches } = createSupervisor().join();
    const subject = keyWith({ requests: { limit: 1000, windowMs: HOUR } });
    const first = worker.acquire([subject], NO_RESERVATION);
    await new Promise<void>((resolve) => setImmediate(resolve));
    const others: Promise<unknown>[] = [];
    for (let count = 0; count < 5; count++) others.push(worker.acquire([subject], NO_RESERVATION));
    await Promise.all([first, ...others]);
    assert.deepEqual(batches.map(({ questions }) => questions.length), [1, 5]);
  });

  it("the amounts of a refused exchange are returned at once, before its caller receives the refusal", async () => {
    const { worker, batches } = createSupervisor().join();
    const subject = keyWith({ concurrency: 1 });
    const lease = await worker.acquire([subject], NO_RESERVATION);
    lease.release(tokens(0), true);
    assert.equal(batches.at(-1)?.releases.length, 1);
    assert.deepEqual(await usedOf(worker, subject), { concurrency: 0 });
  });

  it("no message is sent at the end of an exchange that counts only as a request", async () => {
    const { worker, batches } = createSupervisor().join();
    const subject = keyWith({ requests: { limit: 10, windowMs: HOUR } });
    for (let count = 0; count < 3; count++) {
      (await worker.acquire([subject], NO_RESERVATION)).release(tokens(5));
    }
    assert.deepEqual(await usedOf(worker, subject), { requests: 3 });
    assert.deepEqual(batches.flatMap(({ releases }) => releases), []);
  });

  it.large("changed limits are sent again, and so are more subjects than there are numbers", async () => {
    const { worker, batches } = createSupervisor().join();
    const subject = keyWith({ requests: { limit: 1, windowMs: HOUR } });
    await worker.acquire([subject], NO_RESERVATION);
    await refusalOf(() => worker.acquire([subject], NO_RESERVATION));
    const wider: LimitSubject = { ...subject, limits: { requests: { limit: 2, windowMs: HOUR } } };
    await worker.acquire([wider], NO_RESERVATION);
    await refusalOf(() => worker.acquire([wider], NO_RESERVATION));
    const many = Array.from(
      { length: 25_000 },
      () => keyWith({ requests: { limit: 1, windowMs: HOUR } }),
    );
    await Promise.all(many.map((each) => worker.acquire([each], NO_RESERVATION)));
    const numbers = batches.flatMap(({ subjects }) => subjects.map(({ number }) => number));
    assert.ok(Math.max(...numbers) < 10_000, "they are bounded");
    for (const each of [subject, wider, many[0], many.at(-1)]) {
      const { used, limit } = (await worker.status(each ?? assert.fail()))[0] ?? assert.fail();
      assert.equal(used, limit === 1 && each !== subject ? 1 : 2);
    }
  });

  it("all at once at the edge of a limit: their reservations together never exceed it", async () => {
    for (
      const [mode, reservation, passing] of [
        ["enforce", { expected: tokens(30), most: tokens(90) }, 33],
        ["strict", { expected: tokens(30), most: tokens(90) }, 11],
      ] as [("enforce" | "strict"), Reservation, number][]
    ) {
      const { join } = createSupervisor();
      const workers = Array.from({ length: 4 }, () => join().worker);
      const subject = keyWith({ tokens: { limit: 1000, windowMs: HOUR }, mode });
      const taken = await Promise.allSettled(
        Array.from(
          { length: 100 },
          (_, index) => workers[index % 4]?.acquire([subject], reservation),
        ),
      );
      assert.equal(taken.filter(({ status }) => status === "fulfilled").length, passing, mode);
    }
  });

  it("the reservations of a killed worker stay charged, and its concurrency is free", async () => {
    const { join } = createSupervisor();
    const [victim, other] = [join(), join()];
    const subject = keyWith({
      tokens: { limit: 1000, windowMs: HOUR },
      concurrency: 2,
      mode: "strict",
    });
    const reservation = { expected: tokens(10), most: tokens(100) };
    await victim.worker.acquire([subject], reservation);
    const held = await other.worker.acquire([subject], reservation);
    await refusalOf(() => other.worker.acquire([subject], reservation));
    victim.kill();
    assert.deepEqual(await usedOf(other.worker, subject), { tokens: 200, concurrency: 1 });
    held.release(tokens(7));
    assert.deepEqual(await usedOf(other.worker, subject), { tokens: 107, concurrency: 0 });
  });

  it("exchanges that wait for a supervisor that has exited are refused, and so are later ones", async () => {
    const { worker } = createSupervisor().join();
    const subject = keyWith({ concurrency: 2 });
    const [sent] = [refusalOf(() => worker.acquire([subject], NO_RESERVATION))];
    await new Promise<void>((resolve) => setImmediate(resolve));
    const unsent = refusalOf(() => worker.acquire([subject], NO_RESERVATION));
    worker.close();
    for (
      const refusal of [
        sent,
        unsent,
        refusalOf(() => worker.acquire([subject], NO_RESERVATION)),
      ]
    ) {
      assert.equal((await refusal).code, "gateway_draining");
    }
  });
});
