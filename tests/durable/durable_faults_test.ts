/**
 * Durable exchanges during faults: the results of their readers, and of the next call with the same
 * name.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "@std/testing/bdd";
import { DurableExchanges } from "../../src/durable/durable_exchanges.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { Caller, finish, KEYS, World } from "../support/durable_world.ts";
import { FakeClock, quiet } from "../support/recording_model.ts";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { toRecordingId } from "../../src/durable/recording_store.ts";

const LONG = 300;

/** Makes a call whose answer has begun. */
async function begin(world: World, length = LONG): Promise<Caller> {
  void world.call(0, "the-name", length);
  await quiet();
  world.calls.at(-1)?.answer(true);
  await quiet();
  return world.callers.at(-1) ?? assert.fail("no caller");
}

/** Attaches another reader. */
async function attach(world: World, gateway: number, { id }: Caller): Promise<Caller> {
  void world.resume(gateway, new Caller(id, gateway, Buffer.alloc(0)));
  await quiet();
  return world.callers.at(-1) ?? assert.fail("no caller");
}

const send = async (world: World, count: number) => {
  world.calls.at(-1)?.send(count);
  await quiet();
};

describe("a durable exchange at a fault", () => {
  it("continues for its other readers when the slowest reader of an abandoned exchange leaves", async () => {
    const world = new World();
    const slow = await begin(world);
    const fast = await attach(world, 0, slow);
    slow.isStalled = true;
    world.store.setFault(0, "full");
    await send(world, 20_000);
    await world.clock.pass(25); // the recording is given up
    await send(world, 1000);
    assert.equal(fast.length, 21_000);
    slow.leave("left");
    await send(world, 1000);
    assert.equal(fast.length, 22_000);
    await finish(world);
  });

  it("sends readers that are ahead of the store the complete event for a lost recording", async () => {
    const world = new World();
    const first = await begin(world);
    await send(world, 1000);
    await world.clock.pass(25);
    await send(world, 77); // the store does not receive these bytes
    assert.equal(first.length, 1077);
    world.kill(0);
    void world.resume(1, first);
    await world.clock.pass(20_000);
    const second = world.callers.at(-1);
    assert.equal(second?.end_, "ended");
    const text = second.bytes.toString();
    assert.equal(text.slice(0, 1077), first.bytes.toString());
    assert.match(text.slice(1077), /^\n\ndata: \{"error":.*"code":"exchange_lost"\}\}\n\n$/);
    world.look();
    await assert.rejects(
      world.gateway(1).attach(first.id, { keys: KEYS, offset: 5000, writeStallMs: 1000 }),
      (error) => GatewayError.is(error) && error.code === "exchange_lost",
    );
  });

  it("cannot be attached to once it was given up, and frees its name when no reader needs the store", async () => {
    const world = new World();
    const slow = await begin(world);
    slow.isStalled = true;
    await send(world, 10);
    await send(world, 20_000);
    await world.clock.pass(25);
    await send(world, 30_000); // more than can be recorded
    await assert.rejects(
      world.gateway(0).attach(slow.id, { keys: KEYS, offset: 0, writeStallMs: 1000 }),
      (error) => GatewayError.is(error) && error.code === "exchange_expired",
    );
    void world.call(0, "the-name", LONG);
    await world.clock.pass(1000);
    assert.equal(world.calls.length, 1, "the retry waits: the slow reader still needs the store");
    slow.goOn();
    await quiet();
    assert.equal(slow.length, 50_010, "it got the rest from the store, and what the store has not");
    await world.clock.pass(300);
    assert.equal(world.calls.length, 2, "the name is free");
    await finish(world);
  });

  it("does not wait longer for an answer than its caller", async () => {
    const world = new World();
    void world.call(0, "the-name", LONG);
    await quiet();
    const leave = new AbortController();
    const asked = {
      ...{
        keys: KEYS,
        digest: "same",
        writeStallMs: 1000,
        name: { text: "the-name", kind: "key", isRetry: true } as const,
      },
      settings: { keepMs: 1000, lingerMs: 1000, maxBytes: 1000, retries: false },
      facts: { provider: "a", keyId: "me", operation: "chat.completions", startedAt: 0 },
    };
    const retry = world.gateway(0).begin(asked, leave.signal);
    await quiet();
    const reason = new GatewayError("gateway_draining");
    leave.abort(reason);
    await assert.rejects(retry, (error) => error === reason);
    await finish(world);
  });

  it("is discarded if it cannot be closed for a gateway that died", async () => {
    const world = new World();
    const first = await begin(world);
    await send(world, 1000);
    await world.clock.pass(25);
    world.kill(0);
    void world.resume(1, first);
    await world.clock.pass(7000);
    world.store.failAppends = true;
    await world.clock.pass(20_000);
    assert.equal(world.callers.at(-1)?.end_, "failed");
    assert.equal(world.store.running, 0, "no gateway keeps it");
  });

  it("is read by its local readers through a short fault of the store", async () => {
    const world = new World();
    const slow = await begin(world);
    slow.isStalled = true;
    await send(world, 10);
    await send(world, 20_000);
    await world.clock.pass(25);
    world.store.setFault(0, "fails");
    slow.goOn();
    await world.clock.pass(1000);
    world.store.setFault(0, "none");
    await world.clock.pass(500);
    assert.equal(slow.length, 20_010);
    await finish(world);
    assert.equal(slow.end_, "ended");
  });

  it("continues while a reader at another gateway waits for it, even with a short linger time", async () => {
    const world = new World();
    const first = await begin(world, 40);
    await send(world, 100);
    await world.clock.pass(25);
    void world.resume(1, first);
    await world.clock.pass(60_000); // a provider that thinks for a long time
    await send(world, 100);
    await world.clock.pass(25);
    assert.equal(world.callers.at(-1)?.length, 200);
    await finish(world);
    assert.equal(world.callers.at(-1)?.end_, "ended");
  });

  it("can be stopped by any request that finds it before its call has begun", async () => {
    const world = new World();
    void world.call(0, "the-name", LONG);
    void world.call(0, "the-name", LONG);
    await quiet();
    assert.equal(world.calls.length, 1);
    const [id = ""] = world.callOf.keys();
    await world.gateway(0).stop(id, KEYS);
    await quiet();
    assert.ok(world.calls[0]?.isOver);
    await quiet();
    assert.equal(world.calls.length, 2, "the retry makes the call again");
    await finish(world);
  });

  it("can be stopped at its gateway even if it is no longer recorded or described", async () => {
    const world = new World();
    const { id } = await begin(world);
    await send(world, 50_000); // more than can be recorded
    await assert.rejects(
      world.gateway(0).describe(id, KEYS),
      (error) => GatewayError.is(error) && error.code === "exchange_expired",
    );
    await world.gateway(0).stop(id, KEYS);
    assert.ok(world.calls[0]?.isOver);
    await finish(world);
  });

  it("is returned to a retry by body for ten minutes from its start", async () => {
    const clock = new FakeClock();
    const store = new MemoryRecordings({ clock, maxBytes: 100_000 });
    const durable = new DurableExchanges({ store, clock, toScanner: () => undefined });
    const settings = { keepMs: 60_000, lingerMs: 60_000, maxBytes: 40_000, retries: true };
    const ask = (isRetry: boolean) =>
      durable.begin({
        ...{
          keys: KEYS,
          name: { text: "the-name-of-the-body", kind: "body", isRetry },
          digest: "digest",
          settings,
        },
        facts: { provider: "a", keyId: "k", operation: "chat.completions", startedAt: clock.now() },
        writeStallMs: 1000,
      });
    const first = await ask(false);
    assert.ok("recording" in first);
    first.recording.begin({ status: 200, headers: {} });
    await clock.pass(590_000);
    const retry = await ask(true);
    assert.ok("attachment" in retry, "an attempt more of the same call");
    await clock.pass(20_000);
    assert.ok("recording" in await ask(true), "a separate call");
  });

  it("leaves nothing in memory, and at most the allowed number of ids", async () => {
    const clock = new FakeClock();
    const store = new MemoryRecordings({ clock, maxBytes: 150_000 });
    const facts = {
      owner: "",
      digest: "",
      provider: "",
      keyId: "",
      operation: "",
      startedAt: 0,
      keepMs: 1000,
    };
    const holder = { onStop() {}, onLost() {}, onRead() {} };
    const ids: string[] = [];
    for (let count = 0; count < 1000; count++) {
      const claimed = await store.claim(
        { id: toRecordingId(undefined), name: undefined, facts },
        holder,
      );
      assert.ok("held" in claimed);
      ids.push(claimed.held.id);
      await claimed.held.discard();
    }
    const known = await Promise.all(ids.map((id) => store.find(id)));
    const left = known.filter((found) => found !== undefined).length;
    assert.ok(left > 100 && left < 200, `${left} ids are known`);
    assert.ok(known.at(-1) !== undefined, "the last ones");
    assert.equal(clock.waiting, left, "no timer is left of the others");
    await clock.pass(600_000);
    assert.equal(clock.waiting, 0);
    assert.equal(await store.find(ids.at(-1) ?? ""), undefined);
  });
});
