/** Tests of every registry of runs. */
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import type { ErrorCode } from "../../src/errors/codes.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import {
  MIN_UNUSED_MS,
  type RunBody,
  type RunBounds,
  type RunLease,
  type RunLimits,
  type RunRegistry,
  type RunReservation,
  type RunStatus,
  type StatedRun,
} from "../../src/runs/run_registry.ts";
import { it } from "../support/cases.ts";
import { until } from "../support/until.ts";

/** A registry, and a way to let time pass. */
export interface RunsUnderTest {
  readonly runs: RunRegistry;
  /** The same runs from the view of another gateway. */
  readonly others: RunRegistry;
  /** Moves on by the given milliseconds, without waiting. */
  pass(ms: number): Promise<void> | void;
  close(): Promise<void> | void;
}

const BOUNDS: RunBounds = { idleMs: 3_600_000, maxPerKey: 100 };
/** Time after which runs are idle in the tests that let them be forgotten. Milliseconds. */
export const IDLE_MS = 60_000;
const SHORT: RunBounds = { ...BOUNDS, idleMs: IDLE_MS };
let made = 0;

/** Money of a call whose cost is known. */
export const costing = (spend: number): RunReservation => ({
  spend,
  isFree: false,
  isStrict: false,
});
const FREE: RunReservation = { spend: 0, isFree: true, isStrict: true };

/** Options of a call. */
interface CallOptions {
  readonly limits?: StatedRun["limits"];
  readonly parent?: string;
  readonly reservation?: RunReservation;
  readonly bounds?: RunBounds;
  readonly defaults?: RunLimits;
  readonly body?: RunBody;
  readonly onStopped?: () => void;
}

/** A body that can be sent twice in a row, unless `more` says otherwise. */
const sent = (digest: string, more: Partial<RunBody> = {}): CallOptions => ({
  body: { digest, most: 2, isRetry: false, ...more },
});
const retry = (digest: string): CallOptions => sent(digest, { isRetry: true });

async function codeOf(refused: Promise<unknown>): Promise<ErrorCode> {
  try {
    await refused;
  } catch (error) {
    return GatewayError.is(error) ? error.code : assert.fail(String(error));
  }
  return assert.fail("it was not refused");
}

/** Runs the suite. */
export function describeRuns(
  engine: string,
  open: () => Promise<RunsUnderTest> | RunsUnderTest,
): void {
  describe(`runs ${engine}`, () => {
    let under: RunsUnderTest;
    let keyId: string;
    beforeEach(async () => {
      under = await open();
      keyId = `agent-${++made}`;
    });
    const leases: RunLease[] = [];
    afterEach(async () => {
      for (const lease of leases.splice(0)) lease.release(0, false);
      await under.close();
    });

    async function admitAt(
      runs: RunRegistry,
      id: string,
      options: CallOptions,
    ): Promise<RunLease> {
      const { limits = {}, parent, reservation = costing(10), bounds = BOUNDS, body } = options;
      const { onStopped = () => {}, defaults } = options;
      const run = { id, parent, limits };
      const lease = await runs.admit(
        { keyId, run, reservation, bounds, defaults, body },
        onStopped,
      );
      leases.push(lease);
      return lease;
    }
    const admit = (id: string, options: CallOptions = {}) => admitAt(under.runs, id, options);
    const refusal = (id: string, options: CallOptions = {}) => codeOf(admit(id, options));
    const statusOf = async (id: string, runs = under.runs): Promise<RunStatus> =>
      (await runs.list(keyId, 1000)).find((run) => run.id === id) ?? assert.fail(`no run ${id}`);

    it("a run is refused once its budget is reserved or spent, and not before", async () => {
      const limits = { budget: 30 };
      const [first, second] = [await admit("a", { limits }), await admit("a"), await admit("a")];
      assert.equal(await refusal("a"), "run_budget_exceeded");
      first?.release(4, false);
      await until(async () => (await statusOf("a")).spent === 4, "it is charged");
      assert.equal(await refusal("a"), "run_budget_exceeded");
      second?.release(6, false);
      await until(async () => (await statusOf("a")).spent === 10, "it is charged");
      await admit("a");
      const { spent, reserved, called, budget } = await statusOf("a");
      assert.deepEqual({ spent, reserved, called, budget }, {
        spent: 10,
        reserved: 20,
        called: 4,
        budget: 30,
      });
    });

    it("a call that costs more than a whole budget needs all of it", async () => {
      const limits = { budget: 5 };
      const lease = await admit("a", { limits });
      assert.equal((await statusOf("a")).reserved, 5);
      lease.release(12, false);
      await until(async () => (await statusOf("a")).spent === 12, "it is charged");
      assert.equal(await refusal("a", { reservation: costing(1) }), "run_budget_exceeded");
      const strict = { ...costing(10), isStrict: true };
      assert.equal(await refusal("b", { limits, reservation: strict }), "run_budget_exceeded");
    });

    it("a run makes as many calls as it is limited to, and a call that was not made counts not", async () => {
      const limits = { calls: 2 };
      const lease = await admit("a", { limits });
      lease.release(0, true);
      await until(async () => (await statusOf("a")).called === 0, "it is undone");
      await admit("a");
      await admit("a");
      assert.equal(await refusal("a"), "run_budget_exceeded");
    });

    it("a free call passes a used-up run, and counts as no call", async () => {
      await admit("a", { limits: { calls: 1, budget: 10 } });
      const lease = await admit("a", { reservation: FREE });
      lease.release(0, true);
      lease.release(0, true);
      await until(async () => (await statusOf("a")).open === 1, "it has ended");
      assert.equal((await statusOf("a")).called, 1);
    });

    it("a call without a price is refused only under a budget", async () => {
      const reservation = { ...costing(0), unpriced: "operation_not_metered" as const };
      (await admit("a", { reservation })).release(0, false);
      assert.equal(
        await refusal("a", { reservation, limits: { budget: 10 } }),
        "operation_not_metered",
      );
    });

    it("later headers only narrow a run", async () => {
      await admit("a", { limits: { budget: 100, calls: 5 } });
      await admit("a", { limits: { budget: 1000, calls: 3 } });
      const { budget, calls } = await statusOf("a");
      assert.deepEqual([budget, calls], [100, 3]);
    });

    it("calls count in all runs above theirs, which refuse them too", async () => {
      await admit("root", { limits: { budget: 25, calls: 10 } });
      const lease = await admit("child", { parent: "root" });
      await admit("other", { parent: "root", reservation: costing(5) });
      assert.equal(await refusal("child"), "run_budget_exceeded");
      lease.release(2, false);
      await until(async () => (await statusOf("root")).spent === 2, "the root is charged");
      const { reserved, called } = await statusOf("root");
      assert.deepEqual([reserved, called], [15, 3]);
      await admit("child", { reservation: costing(8) });
      assert.equal((await statusOf("child")).parent, "root");
    });

    it("a parent that is not known yet is opened without limits, and narrowed later", async () => {
      await admit("child", { parent: "root" });
      await admit("child");
      assert.equal((await statusOf("root")).called, 2);
      assert.equal(await refusal("root", { limits: { calls: 2 } }), "run_budget_exceeded");
      assert.equal(await refusal("child"), "run_budget_exceeded");
    });

    it("a parent that a call opens has the limits of the configuration, as its own calls have", async () => {
      const defaults = { budget: 60, calls: 3 };
      await admit("one", { parent: "root", defaults });
      const { budget, calls } = await statusOf("root");
      assert.deepEqual([budget, calls], [60, 3]);
      const { budget: own, calls: ownCalls } = await statusOf("one");
      assert.deepEqual(
        [own, ownCalls],
        [undefined, undefined],
        "the caller states those of its run",
      );
      await admit("other", { parent: "root", defaults: { budget: 5 } });
      assert.equal((await statusOf("root")).budget, 60, "they are only for a new run");
      await admit("one", { defaults });
      assert.equal(await refusal("other", { defaults }), "run_budget_exceeded");
    });

    it("the use of a run before it got a parent counts there too", async () => {
      (await admit("leaf", { parent: "child" })).release(7, false);
      await until(async () => (await statusOf("child")).spent === 7, "it is charged");
      await admit("child", { parent: "root", limits: {} });
      const { spent, called, reserved } = await statusOf("root");
      assert.deepEqual([spent, called, reserved], [7, 2, 10]);
      assert.equal(await refusal("leaf", { limits: { calls: 1 } }), "run_budget_exceeded");
    });

    it("a run has one parent, is not above itself, and has at most 8 runs above it", async () => {
      await admit("r1", { parent: "r0" });
      assert.equal(await refusal("r1", { parent: "other" }), "invalid_run");
      assert.equal(await refusal("r0", { parent: "r1" }), "invalid_run");
      assert.equal(await refusal("self", { parent: "self" }), "invalid_run");
      for (let depth = 2; depth <= 8; depth++) {
        await admit(`r${depth}`, { parent: `r${depth - 1}` });
      }
      assert.equal(await refusal("r9", { parent: "r8" }), "invalid_run");
    });

    it("a call that is refused because too many runs are above it changes nothing", async () => {
      for (let depth = 1; depth <= 8; depth++) {
        await admit(`r${depth}`, { parent: `r${depth - 1}` });
      }
      await admit("r0", { parent: "top" });
      const before = await statusOf("r8");
      assert.equal(await refusal("r8", { ...sent("one"), limits: { calls: 1 } }), "invalid_run");
      assert.deepEqual(await statusOf("r8"), before);
      assert.deepEqual([before.isStopped, (await statusOf("top")).open], [false, 9]);
      await under.runs.stop(keyId, "top");
      assert.equal((await statusOf("r8")).isStopped, true);
    });

    it("runs of another key have nothing to do with it", async () => {
      await admit("a", { limits: { calls: 1 } });
      keyId = `agent-${++made}`;
      await admit("a");
      await admit("a");
    });

    it("a stopped run and the runs below it end their calls, here and elsewhere", async () => {
      const stopped: string[] = [];
      await admit("root", { onStopped: () => stopped.push("root") });
      await admit("child", { parent: "root", onStopped: () => stopped.push("child") });
      await admitAt(under.others, "far", {
        parent: "child",
        onStopped: () => stopped.push("far"),
      });
      await admit("other", { onStopped: () => stopped.push("other") });
      const ended = await admit("child", { onStopped: () => stopped.push("ended") });
      ended.release(1, false);
      await until(async () => (await statusOf("child")).spent === 1, "one has ended");
      assert.equal(await under.runs.stop(keyId, "nothing"), false);
      assert.equal(await under.runs.stop(keyId, "root"), true);
      await until(() => stopped.length === 3, "the open calls end");
      assert.deepEqual(stopped.toSorted(), ["child", "far", "root"]);
      for (const id of ["root", "child", "far"]) {
        assert.equal(await refusal(id), "run_stopped");
        assert.equal(await codeOf(admitAt(under.others, id, {})), "run_stopped");
        assert.equal(await refusal(id, { reservation: FREE }), "run_stopped");
        assert.equal((await statusOf(id)).isStopped, true);
      }
      assert.equal(await refusal("new", { parent: "child" }), "run_stopped");
      await admit("other");
    });

    it("a run that gets a parent ends its open calls with it, here and elsewhere", async () => {
      const stopped: string[] = [];
      const note = (name: string) => ({ onStopped: () => stopped.push(name) });
      await admit("leaf", { parent: "child", ...note("leaf") });
      await admitAt(under.others, "child", note("far"));
      const ended = await admit("child", note("ended"));
      await admit("child", { parent: "root" });
      ended.release(1, false);
      await until(async () => (await statusOf("child")).spent === 1, "one has ended");
      assert.equal(await under.runs.stop(keyId, "root"), true);
      await until(() => stopped.length === 2, "the open calls end");
      assert.deepEqual(stopped.toSorted(), ["far", "leaf"]);
      await admit("late", note("late"));
      assert.equal(await refusal("late", { parent: "root" }), "run_stopped");
      await until(() => stopped.length === 3, "a stopped parent ends them too");
      assert.equal(stopped[2], "late");
    });

    it("both gateways see the same run", async () => {
      await admit("a", { limits: { calls: 2 } });
      await admitAt(under.others, "a", {});
      assert.equal(await refusal("a"), "run_budget_exceeded");
      assert.equal((await statusOf("a", under.others)).called, 2);
    });

    it("an idle run is forgotten, and a used run is not", async () => {
      const bounds = { ...BOUNDS, idleMs: 60_000 };
      const call = async (id: string, limits = {}) =>
        (await admit(id, { limits, bounds })).release(1, false);
      await call("a", { calls: 3 });
      await call("b", { calls: 3 });
      await under.pass(40_000);
      await call("a");
      await under.pass(40_000);
      await call("a");
      const ids = (await under.runs.list(keyId, 10)).map(({ id }) => id);
      assert.deepEqual(ids, ["a"]);
      assert.equal(await refusal("a", { bounds }), "run_budget_exceeded");
      for (let calls = 0; calls < 4; calls++) await call("b");
    });

    it("a changed idle time applies to the runs that are remembered already", async () => {
      const call = async (id: string, idleMs: number) =>
        (await admit(id, { bounds: { ...BOUNDS, idleMs } })).release(1, false);
      const listed = async () => (await under.runs.list(keyId, 10)).map(({ id }) => id);
      for (const id of ["a", "b"]) await call(id, 100 * IDLE_MS);
      await under.pass(IDLE_MS / 2);
      await call("b", IDLE_MS);
      await under.pass(IDLE_MS / 2 + 1000);
      await call("c", IDLE_MS);
      assert.deepEqual((await listed()).toSorted(), ["b", "c"]);
      await under.pass(IDLE_MS + 1000);
      await call("d", IDLE_MS);
      assert.deepEqual(await listed(), ["d"]);
    });

    it("a key has a bounded number of runs: the longest unused make room", async () => {
      const bounds = { ...BOUNDS, maxPerKey: 3 };
      const call = async (id: string) => (await admit(id, { bounds })).release(1, false);
      const isOpen = async (id: string) =>
        (await under.runs.list(keyId, 10)).some((run) => run.id === id);
      await call("a");
      await admit("open", { bounds });
      await call("b");
      assert.equal(await refusal("c", { bounds }), "too_many_runs");
      assert.equal(await refusal("c", { bounds, parent: "a" }), "too_many_runs");
      await under.pass(MIN_UNUSED_MS);
      await call("b");
      await call("c");
      assert.deepEqual([await isOpen("a"), await isOpen("b"), await isOpen("open")], [
        false,
        true,
        true,
      ]);
      assert.equal(await refusal("d", { bounds }), "too_many_runs");
    });

    it("known runs go on after their bound was lowered, and new ones are refused", async () => {
      for (const id of ["a", "b", "c"]) (await admit(id)).release(1, false);
      const bounds = { ...BOUNDS, maxPerKey: 2 };
      for (const id of ["a", "b", "c"]) (await admit(id, { bounds })).release(1, false);
      assert.equal(await refusal("d", { bounds }), "too_many_runs");
    });

    it("a stop counts as a use, and is forgotten after the idle time without any call", async () => {
      const call = async (id: string, options: CallOptions = {}) =>
        (await admit(id, { ...options, bounds: SHORT })).release(1, false);
      await call("child", { parent: "root" });
      await under.pass(IDLE_MS - 5000);
      assert.equal(await under.runs.stop(keyId, "root"), true);
      await under.pass(7500);
      for (const id of ["child", "root"]) {
        assert.equal(await refusal(id, { bounds: SHORT }), "run_stopped");
      }
      await under.pass(3 * IDLE_MS);
      for (const id of ["child", "root"]) await call(id);
    });

    it("a run below a stopped run stays stopped while another run below it calls", async () => {
      const first = { bounds: SHORT, parent: "root" };
      await admit("leaf", { bounds: SHORT, parent: "one" }).then((lease) =>
        lease.release(1, false)
      );
      for (const id of ["one", "other"]) (await admit(id, first)).release(1, false);
      await under.runs.stop(keyId, "root");
      for (let times = 0; times < 4; times++) {
        await under.pass(IDLE_MS - 20_000);
        assert.equal(await refusal("other", { bounds: SHORT }), "run_stopped");
      }
      for (const id of ["leaf", "one"]) {
        assert.equal(await refusal(id, { bounds: SHORT }), "run_stopped");
        assert.equal((await statusOf(id)).isStopped, true);
      }
    });

    it("an idle run is not listed, and cannot be stopped", async () => {
      const call = async (id: string) => (await admit(id, { bounds: SHORT })).release(1, false);
      await call("a");
      await under.pass(IDLE_MS + 1000);
      assert.equal(await under.runs.stop(keyId, "a"), false);
      await call("a");
      await under.pass(IDLE_MS + 1000);
      assert.deepEqual(await under.runs.list(keyId, 10), []);
    });

    it("a stopped run makes no room, and a run below it makes room last", async () => {
      const bounds = { ...BOUNDS, maxPerKey: 3 };
      const call = async (id: string, parent?: string) =>
        (await admit(id, { bounds, ...parent !== undefined && { parent } })).release(1, false);
      await call("child", "root");
      await call("other");
      await under.runs.stop(keyId, "root");
      await under.pass(MIN_UNUSED_MS);
      await call("new");
      assert.equal(await refusal("child", { bounds }), "run_stopped");
      await under.pass(MIN_UNUSED_MS);
      await call("new");
      await call("newer");
      assert.equal(await refusal("newest", { bounds }), "too_many_runs");
      assert.equal(await refusal("root", { bounds }), "run_stopped");
    });

    it("a correction changes the run and the runs above it, and opens none", async () => {
      (await admit("child", { parent: "root" })).release(10, false);
      await until(async () => (await statusOf("root")).spent === 10, "it is charged");
      await under.runs.correct({ keyId, id: "child", change: -4 });
      await until(async () => (await statusOf("root")).spent === 6, "it is corrected");
      assert.equal((await statusOf("child")).spent, 6);
      await under.runs.correct({ keyId, id: "unknown", change: 5 });
      assert.equal((await under.runs.list(keyId, 10)).length, 2);
    });

    it("counts how many times in a row a run sends a body, at every gateway", async () => {
      const most = undefined;
      const repeats: (number | undefined)[] = [];
      for (const digest of ["one", "one", "other", "one"]) {
        repeats.push((await admit("a", sent(digest, { most }))).repeats);
      }
      repeats.push((await admitAt(under.others, "a", sent("one", { most }))).repeats);
      repeats.push((await admit("a", sent("one", { most }))).repeats);
      assert.deepEqual(repeats, [1, 2, 1, 1, 2, 3]);
      assert.equal((await statusOf("a")).repeats, 3);
      assert.equal((await statusOf("a", under.others)).repeats, 3);
    });

    it("a body that is sent too often in a row is refused, until another one comes", async () => {
      await admit("a", sent("one"));
      const lease = await admit("a", sent("one"));
      assert.equal(lease.repeats, 2);
      await assert.rejects(
        () => admit("a", sent("one")),
        (error) =>
          GatewayError.is(error) && error.code === "run_repeats" && error.repeats === 3 &&
          /: the run sent it 3 times in a row, and 2 are allowed$/.test(error.message),
      );
      lease.release(4, false);
      await until(async () => (await statusOf("a")).spent === 4, "the end keeps the count");
      await under.runs.correct({ keyId, id: "a", change: 1 });
      await until(async () => (await statusOf("a")).spent === 5, "a correction too");
      assert.equal(await refusal("a", sent("one")), "run_repeats");
      const { repeats, called } = await statusOf("a");
      assert.deepEqual([repeats, called], [4, 2], "a refused call counts, but only as a repeat");
      assert.equal((await admit("a", sent("other"))).repeats, 1);
      assert.equal((await admit("a", sent("one"))).repeats, 1);
    });

    it("repeats count in the run itself, and not in the runs above it or next to it", async () => {
      for (const id of ["one", "other", "another"]) {
        assert.equal((await admit(id, { ...sent("body"), parent: "root" })).repeats, 1);
      }
      assert.equal((await statusOf("root")).repeats, undefined);
      assert.equal((await statusOf("one")).parent, "root");
      assert.equal((await admit("root", sent("body"))).repeats, 1);
    });

    it("a retry of a client library is not counted, and is refused like its call", async () => {
      await admit("a", sent("one"));
      for (let calls = 0; calls < 3; calls++) {
        assert.equal((await admit("a", retry("one"))).repeats, 1);
      }
      await admit("a", retry("earlier"));
      assert.equal((await admit("a", sent("one"))).repeats, 2);
      assert.equal(await refusal("a", sent("one")), "run_repeats");
      assert.equal(await refusal("a", retry("one")), "run_repeats");
      assert.equal((await statusOf("a")).repeats, 3);
    });

    it("a call whose body is not counted ends no repeats, and is not refused for them", async () => {
      await admit("a", sent("one"));
      await admit("a", sent("one"));
      assert.equal((await admit("a")).repeats, undefined);
      await admit("a", { ...sent("one"), reservation: FREE });
      assert.equal(await refusal("a", sent("one")), "run_repeats");
    });

    it("a call that another limit refuses counts as a repeat, and that limit comes first", async () => {
      const limits = { calls: 1 };
      await admit("a", { ...sent("one"), limits });
      for (let calls = 0; calls < 3; calls++) {
        assert.equal(await refusal("a", sent("one")), "run_budget_exceeded");
      }
      assert.equal((await statusOf("a")).repeats, 4);
      await under.runs.stop(keyId, "a");
      assert.equal(await refusal("a", sent("one")), "run_stopped");
    });

    it("repeats are forgotten with their run", async () => {
      const bounds = { ...BOUNDS, idleMs: 60_000 };
      const call = async () => {
        const lease = await admit("a", { ...sent("one"), bounds });
        lease.release(0, false);
        return lease.repeats;
      };
      await call();
      assert.equal(await call(), 2);
      await under.pass(61_000);
      assert.equal(await call(), 1);
    });

    it("lists the runs of one key, or of all, the last used first", async () => {
      await admit("one");
      await under.pass(10);
      await admit("two");
      const listed = await under.runs.list(keyId, 10);
      assert.deepEqual(listed.map(({ id }) => id), ["two", "one"]);
      assert.deepEqual((await under.runs.list(keyId, 1)).map(({ id }) => id), ["two"]);
      const all = await under.runs.list(undefined, 10_000);
      assert.ok(all.some((run) => run.keyId === keyId && run.id === "one"));
    });
  });
}
