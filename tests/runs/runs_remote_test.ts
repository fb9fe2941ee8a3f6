/** Runs that another process counts: the suite of all registries, and processes that end. */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { describe } from "@std/testing/bdd";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import { MemoryRuns } from "../../src/runs/memory_runs.ts";
import { RemoteRuns } from "../../src/runs/remote_runs.ts";
import type { RunAnswer, RunMessage } from "../../src/runs/run_server.ts";
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
  const state = { server: new RunServer(runs, clock), isDown: false, sent: [] as string[] };
  const send = async (message: RunMessage): Promise<RunAnswer> => {
    state.sent.push(message.type);
    await new Promise<void>((resolve) => setImmediate(resolve));
    if (state.isDown) throw new Error("no answer");
    return copy(await state.server.handle(copy(message)));
  };
  return { state, join: () => new RemoteRuns(send, systemClock) };
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

  it("a short call needs two messages", async () => {
    const { state, join } = createServer(new MemoryRuns(systemClock));
    (await join().admit(callOf("a"), () => {})).release(1, false);
    assert.deepEqual(state.sent, ["admit", "release"]);
  });
});
