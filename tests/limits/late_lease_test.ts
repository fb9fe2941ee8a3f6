/**
 * The slot of an exchange that Redis admits after its deadline. A test decides when the late reply
 * arrives: at a real Redis, this moment cannot be chosen.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { NO_AMOUNTS, NO_RESERVATION } from "../../src/limits/limiter.ts";
import type { AcquireCommand, SubjectVerdict } from "../../src/limits/redis/acquire.ts";
import { OpenSlots } from "../../src/limits/redis/open_slots.ts";
import { type LeaseParts, SubjectLeases } from "../../src/limits/redis/subject_leases.ts";
import type { RedisClient } from "../../src/storage/redis_client.ts";

const SUBJECT = { name: "key:x", limits: { concurrency: 1 } };
const ADMITTED: SubjectVerdict = { isAdmitted: true, statuses: [], ends: [], begun: [] };

/** Acquires a lease whose reply is late. */
async function acquireLate() {
  const freed: string[] = [];
  let reply = (): void => {};
  const acquireCommand: AcquireCommand = (_asked, options) => {
    reply = () => options?.onOutcome?.({ state: "replied", reply: ADMITTED });
    return Promise.reject(new Error("late"));
  };
  const client = { health: { isUp: false }, command: () => () => Promise.resolve() };
  const open = new OpenSlots(client as unknown as RedisClient);
  const parts: { readonly [Name in keyof LeaseParts]: unknown } = {
    id: "one",
    client,
    acquireCommand,
    settlements: {
      hasQueued: () => false,
      add: (_layout: unknown, id: string | undefined) => void (id && freed.push(id)),
    },
    known: { find: () => undefined },
    membership: {},
    local: { statuses: () => [], count: () => ({ release() {}, waive() {} }) },
    open,
    pool: { usesBlocks: () => false },
    exhausted: {},
  };
  const leases = new SubjectLeases(parts as LeaseParts);
  const lease = await leases.acquireFromRedis(SUBJECT, NO_RESERVATION);
  return { lease, freed, reply: () => reply(), isOpen: () => open.count(lease.layout) === 1 };
}

describe("an exchange that Redis admits too late", () => {
  it("keeps its slot, also if the reply arrives before the local decision", async () => {
    const { lease, freed, reply, isOpen } = await acquireLate();
    reply();
    lease.decideLocally(NO_RESERVATION);
    assert.deepEqual([freed, isOpen()], [[], true]);
    lease.release(NO_AMOUNTS, false);
    assert.deepEqual([freed, isOpen()], [["one-1"], false]);
  });

  it("keeps its slot if the reply arrives after the local decision", async () => {
    const { lease, freed, reply, isOpen } = await acquireLate();
    lease.decideLocally(NO_RESERVATION);
    reply();
    assert.deepEqual([freed, isOpen()], [[], true]);
  });

  for (const order of ["before", "after"] as const) {
    it(`returns its slot if the exchange is refused ${order} the reply`, async () => {
      const { lease, freed, reply, isOpen } = await acquireLate();
      if (order === "before") lease.undo();
      reply();
      if (order === "after") lease.undo();
      assert.deepEqual([freed, isOpen()], [["one-1"], false]);
    });
  }

  it("returns its slot if the exchange has ended before the reply", async () => {
    const { lease, freed, reply, isOpen } = await acquireLate();
    lease.decideLocally(NO_RESERVATION);
    lease.release(NO_AMOUNTS, false);
    reply();
    assert.deepEqual([freed, isOpen()], [["one-1", "one-1"], false]);
  });
});
