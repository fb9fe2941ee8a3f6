/** Runs that another process counts: the suite of all registries, and processes that end. */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { describe } from "@std/testing/bdd";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { MemoryRuns } from "../../src/runs/memory_runs.ts";
import { RemoteRuns } from "../../src/runs/remote_runs.ts";
import type { RunMessage, RunReply } from "../../src/runs/run_server.ts";
import { RunServer } from "../../src/runs/run_server.ts";
import { it } from "../support/cases.ts";
import { until } from "../support/until.ts";
import { costing, describeRuns } from "./runs_suite.ts";

const copy = <T>(value: T): T => JSON.parse(JSON.stringify(value));
const BOUNDS = { idleMs: 3_600_000, maxPerKey: 10 };
const callOf = (id: string, calls?: number) => ({
  keyId: "me",
  run: { id, limits: { calls } },
  reservation: costing(5),
  bounds: BOUNDS,
});

/** A server, and gateways that send it messages as JSON. */
function createServer(runs: MemoryRuns, clock: Clock = systemClock) {
  const state = {
    server: new RunServer(runs, clock),
    isDown: false,
    isReplyLost: false,
    sent: [] as string[],
  };
  const send = async (message: RunMessage): Promise<RunReply> => {
    state.sent.push(message.type);
    await new Promise<void>((resolve) => setImmediate(resolve));
    if (state.isDown) throw new Error("no answer");
    const reply = copy(await state.server.handle(copy(message)));
    if (state.isReplyLost) throw new Error("its answer was lost");
    return reply;
  };
  return { state, join: (clock = systemClock) => new RemoteRuns(send, clock) };
}

describeRuns("of another process", () => {
  let passed = 0;
  const { join } = createServer(new MemoryRuns({ now: () => systemClock.now() + passed }));
  return { runs: join(), others: join(), pass: (ms) => void (passed += ms), close() {} };
});

describe("runs of another process", () => {
  it("calls of runs are refused while it does not answer", async () => {
    const { state, join } = createServer(new MemoryRuns(systemClock));
    const runs = join();
    state.isDown = true;
    for (const ask of [() => runs.admit(callOf("a"), () => {}), () => runs.list("me", 10)]) {
      await assert.rejects(
        async () => await ask(),
        (error) => GatewayError.is(error) && error.code === "runs_unavailable",
      );
    }
  });

  it("a lease that nothing watches expires, and its reservation stays charged", async () => {
    let passed = 0;
    const clock = { ...systemClock, now: () => systemClock.now() + passed };
    const counted = new MemoryRuns(clock);
    const { join } = createServer(counted, clock);
    const runs = join();
    const lease = await runs.admit(callOf("a"), () => {});
    passed += 90_000;
    const other = await runs.admit(callOf("b"), () => {});
    const [, one] = await runs.list("me", 10);
    assert.deepEqual([one?.id, one?.open, one?.reserved], ["a", 0, 5]);
    lease.release(2, false);
    await until(async () => (await runs.list("me", 10))[1]?.spent === 2, "its end still counts");
    assert.equal((await runs.list("me", 10))[1]?.reserved, 0);
    other.release(0, false);
  });

  it("a new server continues the leases of the one before, and stops them", async () => {
    const counted = new MemoryRuns(systemClock);
    const { state, join } = createServer(counted);
    const runs = join();
    let isStopped = false;
    await runs.admit(callOf("a"), () => void (isStopped = true));
    state.server = new RunServer(counted, systemClock);
    await runs.stop("me", "a");
    await until(() => isStopped, "the call ends");
  });

  it("the end of a call is sent again until it is received, and counts once", async () => {
    const { state, join } = createServer(new MemoryRuns(systemClock));
    const timers: (() => void)[] = [];
    const clock: Clock = { ...systemClock, timer: (_, fire) => (timers.push(fire), () => {}) };
    const runs = join(clock);
    const lease = await runs.admit(callOf("a"), () => {});
    timers.splice(0);
    const status = async () => {
      const [run] = await runs.list("me", 10);
      return [run?.spent, run?.reserved, run?.called];
    };
    state.isDown = true;
    lease.release(2, false);
    await until(() => timers.length === 1, "it will be sent again");
    state.isDown = false;
    assert.deepEqual(await status(), [0, 5, 1]);
    state.isReplyLost = true;
    timers.pop()?.();
    await until(() => timers.length === 1, "its reply was lost");
    state.isReplyLost = false;
    assert.deepEqual(await status(), [2, 0, 1]);
    timers.pop()?.();
    await until(() => state.sent.filter((type) => type === "release").length === 3, "a third time");
    assert.deepEqual(await status(), [2, 0, 1]);
  });

  it("an admission that arrives after its end counts nothing", async () => {
    const counted = new MemoryRuns(systemClock);
    const server = new RunServer(counted, systemClock);
    const ended = { keyId: "me", counted: [], spend: 0, isUndone: true };
    await server.handle({ type: "release", lease: "one", ...ended });
    await server.handle({ type: "admit", lease: "one", call: callOf("a") });
    assert.deepEqual(await counted.list("me", 10), []);
  });

  it("a watch that arrives after the end of its call opens nothing", async () => {
    const counted = new MemoryRuns(systemClock);
    const server = new RunServer(counted, systemClock);
    const { counted: runs = [] } = await server.handle({
      type: "admit",
      lease: "one",
      call: callOf("a"),
    });
    const named = { lease: "one", keyId: "me" };
    await server.handle({ type: "release", ...named, counted: runs, spend: 1, isUndone: false });
    const watch = { type: "watch", ...named, ids: ["a"], waitMs: 60_000 } as const;
    assert.deepEqual(await server.handle(watch), {});
    assert.equal((await counted.list("me", 1))[0]?.open, 0);
  });

  it("a short call needs two messages", async () => {
    const { state, join } = createServer(new MemoryRuns(systemClock));
    (await join().admit(callOf("a"), () => {})).release(1, false);
    assert.deepEqual(state.sent, ["admit", "release"]);
  });
});
