/** Runs in a Durable Object, outside its runtime: the suite of all registries, and stored runs. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { StoredRuns } from "../../src/cloudflare/stored_runs.ts";
import type { ObjectStorage } from "../../src/cloudflare/bindings.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { RemoteRuns } from "../../src/runs/remote_runs.ts";
import { until } from "../support/until.ts";
import { costing, describeRuns } from "../runs/runs_suite.ts";

const HOUR = 3_600_000;

/** An object for each gateway key. */
class Objects {
  readonly stored = new Map<string, unknown>();
  readonly alarms: number[] = [];
  readonly #clock: Clock;
  #runs: StoredRuns;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#runs = this.#open();
  }

  get runs(): StoredRuns {
    return this.#runs;
  }

  /** Removes it from memory. */
  restart(): void {
    this.#runs = this.#open();
  }

  join(): RemoteRuns {
    const send = async (message: Parameters<StoredRuns["handle"]>[0]) =>
      structuredClone(await this.#runs.handle(structuredClone(message)));
    return new RemoteRuns(send, systemClock);
  }

  #open(): StoredRuns {
    const { stored } = this;
    const kv = {
      get: <T>(name: string) => stored.get(name) as T | undefined,
      put: (name: string, value: unknown) => void stored.set(name, structuredClone(value)),
      delete: (name: string) => stored.delete(name),
      list: <T>({ prefix = "" }: { readonly prefix?: string } = {}) =>
        Array.from(stored).filter(([name]) => name.startsWith(prefix)) as [string, T][],
    };
    const storage: ObjectStorage = {
      kv,
      setAlarm: () => Promise.resolve(),
      deleteAll: () => Promise.resolve(),
    };
    return new StoredRuns(storage, this.#clock, (at) => this.alarms.push(at));
  }
}

describeRuns("in a Durable Object", () => {
  let passed = 0;
  const now = () => systemClock.now() + passed;
  const objects = new Objects({ ...systemClock, now });
  return {
    runs: objects.join(),
    others: objects.join(),
    pass: (ms) => void (passed += ms),
    close() {},
  };
});

describe("runs in a Durable Object", () => {
  const callOf = (id: string, spend = 60) => ({
    keyId: "me",
    run: { id, limits: { budget: 100 } },
    reservation: costing(spend),
    bounds: { idleMs: HOUR, maxPerKey: 10 },
  });

  it("repeats outlive the object", async () => {
    const objects = new Objects(systemClock);
    const runs = objects.join();
    const body = { digest: "one", most: 2, isRetry: false };
    const admit = async () => {
      const lease = await runs.admit({ ...callOf("a", 1), body }, () => {});
      lease.release(0, false);
      return lease.repeats;
    };
    assert.equal(await admit(), 1);
    objects.restart();
    assert.equal(await admit(), 2);
    objects.restart();
    await assert.rejects(admit, /the run sent it 3 times in a row/);
    objects.restart();
    assert.equal((await runs.list("me", 10))[0]?.repeats, 3);
  });

  it("a run below a stopped run is stored as long as another run below it calls", async () => {
    let passed = 0;
    const now = () => systemClock.now() + passed;
    const objects = new Objects({ ...systemClock, now });
    const runs = objects.join();
    const below = (id: string) => ({ ...callOf(id), run: { id, parent: "root", limits: {} } });
    for (const id of ["one", "other"]) (await runs.admit(below(id), () => {})).release(1, false);
    const call = async (id: string) => (await runs.admit(callOf(id), () => {})).release(0, false);
    await runs.stop("me", "root");
    passed += HOUR / 2;
    await assert.rejects(() => call("other"), /was stopped/);
    passed += HOUR / 2 + 1000;
    assert.ok(objects.runs.deleteIdle(now()) > now());
    objects.restart();
    await assert.rejects(() => call("one"), /was stopped/);
    passed += 3 * HOUR;
    assert.equal(objects.runs.deleteIdle(now()), 0);
    assert.equal(objects.stored.size, 0);
  });

  it("a run is forgotten before the runs above it, also if all were used at the same time", async () => {
    let passed = 0;
    const at = Date.now();
    const objects = new Objects({ ...systemClock, now: () => at + passed });
    const runs = objects.join();
    const bounds = { idleMs: HOUR, maxPerKey: 3 };
    const call = async (id: string, parent?: string) =>
      (await runs.admit({ ...callOf(id), run: { id, parent, limits: {} }, bounds }, () => {}))
        .release(0, false);
    await call("b", "a");
    await call("c", "b");
    objects.restart();
    passed += 2 * 60_000;
    await call("d");
    const listed = async () => (await runs.list("me", 10)).map(({ id }) => id);
    assert.deepEqual(await listed(), ["d", "a", "b"]);
    passed += 1;
    await call("e");
    assert.deepEqual(await listed(), ["e", "d", "a"]);
  });

  it("outlive the object, with their open calls, and are deleted when they are idle", async () => {
    const objects = new Objects(systemClock);
    const runs = objects.join();
    let isStopped = false;
    const lease = await runs.admit(callOf("a"), () => void (isStopped = true));
    objects.restart();
    await assert.rejects(async () => await runs.admit(callOf("a"), () => {}), /no money left/);
    await runs.stop("me", "a");
    await until(() => isStopped, "the open call ends");
    lease.release(40, false);
    await until(async () => (await runs.list("me", 10))[0]?.spent === 40, "it is settled");
    objects.restart();
    const [run] = await runs.list("me", 10);
    assert.deepEqual([run?.spent, run?.reserved, run?.isStopped], [40, 0, true]);
    const now = Date.now();
    assert.ok(objects.runs.deleteIdle(now) > now);
    assert.equal(objects.stored.size, 1);
    assert.equal(objects.runs.deleteIdle(now + 2 * HOUR), 0);
    assert.equal(objects.stored.size, 0);
  });
});
