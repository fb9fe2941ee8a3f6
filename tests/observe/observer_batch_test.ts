/** Observers that are called in batches: for every exchange, once, also when one of them fails. */
// runtimes: once
import assert from "node:assert/strict";
import { beforeEach, describe, it } from "@std/testing/bdd";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import { ObserverBatch } from "../../src/observe/observer_batch.ts";
import { exchange, StillClock } from "../support/usage.ts";

/** The same as `MAX_RECORDS` in the module. */
const FULL = 512;

describe("observers in batches", () => {
  let clock: StillClock;
  let told: string[];
  const observer = { settled: ({ id }: ExchangeRecord) => void told.push(id) };
  const settle = (batch: ObserverBatch, ...ids: string[]) =>
    ids.forEach((id) => batch.settled(exchange({ id })));
  beforeEach(() => {
    clock = new StillClock();
    told = [];
  });

  it("are called later, in the order in which exchanges have settled", () => {
    const batch = new ObserverBatch([observer], clock);
    settle(batch, "1", "2");
    assert.deepEqual([told, clock.timers.length], [[], 1]);
    clock.fire();
    assert.deepEqual(told, ["1", "2"]);
    settle(batch, "3");
    assert.deepEqual([told.length, clock.timers.length], [2, 1]);
    batch.flush();
    batch.flush();
    assert.deepEqual(told, ["1", "2", "3"]);
  });

  it("are called at once when many have settled", () => {
    const batch = new ObserverBatch([observer], clock);
    const ids = Array.from({ length: FULL }, (_, index) => String(index));
    settle(batch, ...ids.slice(1));
    assert.equal(told.length, 0);
    settle(batch, "last");
    assert.deepEqual(told, [...ids.slice(1), "last"]);
  });

  it("are all called, also when one throws or rejects", async () => {
    const failing = [
      { settled: () => assert.fail("it fails") },
      { settled: () => Promise.reject(new Error("it rejects")) as unknown as undefined },
    ];
    const batch = new ObserverBatch([...failing, observer], clock);
    settle(batch, "1", "2");
    batch.flush();
    assert.deepEqual(told, ["1", "2"]);
    await Promise.resolve(); // no rejection is unhandled
  });

  it("ask for withheld headers if one of them does", () => {
    assert.equal(new ObserverBatch([observer], clock).wantsWithheld, false);
    assert.equal(
      new ObserverBatch([observer, { ...observer, wantsWithheld: true }], clock).wantsWithheld,
      true,
    );
  });
});
