/**
 * Durable exchanges of two gateways over a store that fails, in any order of calls, retries,
 * readers that join, leave and pause, stops, and gateways that die: no reader sees bytes twice or
 * in a different order, and an answer that looks complete is complete.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import process from "node:process";
import { describe } from "@std/testing/bdd";
import fc from "fast-check";
import { it } from "../support/cases.ts";
import { finish, KEYS, World } from "../support/durable_world.ts";
import { type Fault, quiet } from "../support/recording_model.ts";

const gateway = fc.constantFrom(0, 1);
const pick = fc.nat(30);
const commands = fc.oneof(
  fc.record({
    do: fc.constant("call" as const),
    gateway,
    name: fc.constantFrom("one-name", "another"),
    length: fc.constantFrom(1, 3, 40, 300),
  }),
  fc.record({
    do: fc.constant("answer" as const),
    pick,
    isGood: fc.constantFrom(true, true, true, false),
  }),
  fc.record({
    do: fc.constant("send" as const),
    pick,
    count: fc.constantFrom(1, 7, 100, 999, 5000, 20_000, 100_000),
  }),
  fc.record({ do: fc.constant("send" as const), pick, count: fc.constantFrom(50, 300, 3000) }),
  fc.record({ do: fc.constant("break" as const), pick }),
  fc.record({ do: fc.constant("resume" as const), gateway, pick }),
  fc.record({ do: fc.constant("resume" as const), gateway, pick }),
  fc.record({ do: fc.constant("leave" as const), pick }),
  fc.record({ do: fc.constant("hang up" as const), pick }),
  fc.record({ do: fc.constant("stall" as const), pick }),
  fc.record({ do: fc.constant("go on" as const), pick }),
  fc.record({ do: fc.constant("stop" as const), gateway, pick }),
  fc.record({
    do: fc.constant("fault" as const),
    gateway,
    fault: fc.constantFrom<Fault>("none", "none", "fails", "answers get lost", "full"),
  }),
  fc.record({ do: fc.constant("lapse" as const), gateway }),
  fc.record({ do: fc.constant("kill" as const) }),
  fc.record({ do: fc.constant("expire" as const) }),
  fc.record({
    do: fc.constant("pass" as const),
    ms: fc.constantFrom(5, 25, 100, 1000, 9000, 31_000),
  }),
);
type Command = typeof commands extends fc.Arbitrary<infer One> ? One : never;

const at = <One>(all: readonly One[], index: number): One | undefined =>
  all[index % Math.max(1, all.length)];

async function run(world: World, command: Command): Promise<void> {
  const alive = "gateway" in command && world.isDead[command.gateway] ? 1 - command.gateway : 0;
  const number = "gateway" in command && !world.isDead[command.gateway] ? command.gateway : alive;
  if (command.do === "call") void world.call(number, command.name, command.length);
  if (command.do === "answer") at(world.calls, command.pick)?.answer(command.isGood);
  if (command.do === "send") at(world.calls, command.pick)?.send(command.count);
  if (command.do === "break") at(world.calls, command.pick)?.breakOff();
  if (command.do === "leave") at(world.callers, command.pick)?.leave("left");
  if (command.do === "hang up") at(Array.from(world.waiting), command.pick)?.abort();
  if (command.do === "go on") at(world.callers, command.pick)?.goOn();
  if (command.do === "fault") world.store.setFault(command.gateway, command.fault);
  if (command.do === "lapse") world.store.lapse(command.gateway);
  if (command.do === "kill" && !world.isDead.includes(true)) world.kill(0);
  if (command.do === "expire") world.store.expire();
  if (command.do === "pass") await world.clock.pass(command.ms);
  const caller = "pick" in command ? at(world.callers, command.pick) : undefined;
  if (command.do === "stall" && caller !== undefined) caller.isStalled = true;
  if (command.do === "resume" && caller !== undefined) void world.resume(number, caller);
  if (command.do === "stop" && caller !== undefined) {
    void world.gateway(number).stop(caller.id, KEYS).catch(() => {});
  }
}

describe("the model of durable exchanges", () => {
  it.large("no reader sees bytes twice, in a different order, or a false end", async () => {
    let ended = 0;
    const property = fc.asyncProperty(
      fc.array(commands, { minLength: 5, maxLength: 60 }),
      async (all) => {
        const world = new World();
        for (const command of all) {
          await run(world, command);
          await quiet();
          world.look();
        }
        await finish(world);
        ended += world.callers.filter(({ end_ }) => end_ === "ended").length;
        assert.deepEqual(
          world.callers.filter(({ isOpen }) => isOpen).length,
          0,
          "a reader has no end",
        );
        assert.equal(world.waiting.size, 0, "a caller waits for ever");
        assert.equal(world.gateways[1]?.running, 0, "a recording has no end");
        if (!world.isDead[0]) {
          assert.equal(world.gateways[0]?.running, 0, "a recording has no end");
          assert.ok(world.exchanges.every(({ isSettled }) => isSettled), "an exchange has no end");
          assert.equal(world.clock.waiting, 0, "a timer is left");
        }
        world.store.expire();
        if (!world.isDead[0]) assert.equal(world.store.bytes, 0, "bytes are left");
      },
    );
    await fc.assert(property, { numRuns: Number(process.env.RUNS ?? 80), endOnFailure: false });
    assert.ok(ended > 0, "what is looked at is the real thing");
  });
});
