/** Many timers on one runtime timer: when each fires, and how often the runtime is asked. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import * as fc from "fast-check";
import { systemClock, Timers } from "../../src/exchange/clock.ts";

/** A runtime whose time is set by hand. Its timers can fire slightly early, as Node's do. */
function handMade(earlyMs = 0) {
  const state = {
    now: 0,
    asked: 0,
    wake: undefined as { at: number; fire: () => void } | undefined,
  };
  const timers = new Timers({
    monotonic: () => state.now,
    set(ms, fire) {
      assert.equal(state.wake, undefined, "one timer of the runtime at a time");
      state.asked++;
      const mine = state.wake = { at: state.now + ms, fire };
      return () => {
        if (state.wake === mine) state.wake = undefined;
      };
    },
  });
  const goTo = (time: number) => {
    while (state.wake !== undefined && state.wake.at - earlyMs <= time) {
      const { at, fire } = state.wake;
      state.wake = undefined;
      state.now = Math.max(state.now, at - earlyMs);
      fire();
    }
    state.now = time;
  };
  return { state, timers, goTo };
}

describe("timers", () => {
  it("fire in time, each once, unless they were cancelled, just like separate runtime timers", () => {
    const step = fc.record({ wait: fc.nat(50), ms: fc.nat(40), cancels: fc.option(fc.nat(30)) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), fc.constantFrom(0, 0.4), (steps, earlyMs) => {
        const { state, timers, goTo } = handMade(earlyMs);
        const all: { due: number; firedAt?: number; cancelledAt?: number; cancel: () => void }[] =
          [];
        for (const { wait, ms, cancels } of steps) {
          goTo(state.now + wait);
          const timer: (typeof all)[number] = {
            due: state.now + Math.max(1, ms),
            cancel: () => {},
          };
          timer.cancel = timers.set(ms, () => {
            assert.equal(timer.firedAt, undefined);
            timer.firedAt = state.now;
          });
          all.push(timer);
          const victim = cancels === null ? undefined : all[cancels];
          if (victim === undefined) continue;
          victim.cancel();
          victim.cancelledAt ??= state.now;
        }
        goTo(state.now + 1000);
        for (const { due, firedAt, cancelledAt } of all) {
          if (firedAt === undefined) {
            assert.ok(cancelledAt !== undefined && cancelledAt <= due + 2, "forgotten");
          } else {assert.ok(
              firedAt >= due && firedAt <= due + 2,
              `due at ${due}, went off at ${firedAt}`,
            );}
          if (firedAt !== undefined && cancelledAt !== undefined) {
            assert.ok(cancelledAt >= firedAt);
          }
        }
        assert.equal(state.wake, undefined, "nothing waits, and nothing keeps the process alive");
      }),
    );
  });

  it("ask the runtime once for a thousand that overlap and are cancelled", () => {
    const { state, timers } = handMade();
    const cancelWatch = timers.set(20, () => {});
    for (let count = 0; count < 1000; count++) timers.set(30_000, () => {})();
    cancelWatch();
    assert.equal(state.asked, 1);
    assert.equal(state.wake, undefined);
  });

  it("fire although another one throws, and timers that they set fire too", () => {
    const { state, timers, goTo } = handMade();
    const fired: string[] = [];
    timers.set(5, () => {
      fired.push("first");
      throw new Error("a bug of somebody else");
    });
    timers.set(5, () => fired.push("second"));
    timers.set(5, () => void timers.set(0, () => fired.push("third")));
    assert.throws(() => goTo(5), /somebody else/);
    goTo(10);
    assert.deepEqual(fired, ["first", "second", "third"]);
    assert.equal(state.wake, undefined);
  });

  it("accept longer times than the runtime's own can", () => {
    const { state, timers, goTo } = handMade();
    let firedAt = 0;
    timers.set(2 ** 32, () => firedAt = state.now);
    goTo(2 ** 33);
    assert.equal(firedAt, 2 ** 32);
  });

  it("of the system are never early", async () => {
    const begun = systemClock.monotonic();
    const elapsed = await Promise.all(
      [1, 7, 7, 15].map((ms) =>
        new Promise<number>((resolve) =>
          systemClock.timer(ms, () => resolve(systemClock.monotonic() - begun - ms))
        )
      ),
    );
    assert.ok(elapsed.every((late) => late >= 0), String(elapsed));
  });
});
