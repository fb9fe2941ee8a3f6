/** The clock of a served gateway: timers of the runtime are shared, and nobody notices. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { createDeadlineClock } from "../../src/serve/deadlines.ts";
import { until } from "../support/until.ts";

describe("shared timers", () => {
  it("end in their order, never early, and those called off never", async () => {
    const clock = createDeadlineClock();
    const ended: string[] = [];
    const early: string[] = [];
    const begin = (name: string, ms: number) => {
      const due = clock.monotonic() + ms;
      return clock.timer(ms, () => {
        ended.push(name);
        if (clock.monotonic() < due) early.push(name);
      });
    };
    begin("slow", 60);
    const cancels = [begin("first, called off", 20), begin("middle, called off", 20)];
    begin("quick", 20);
    cancels.push(begin("last, called off", 20), begin("alone, called off", 10));
    begin("at once", 0);
    for (const cancel of [...cancels, ...cancels]) cancel(); // again does no harm
    await until(() => ended.includes("slow"), "the slow one");
    assert.deepEqual(ended, ["at once", "quick", "slow"]);
    assert.deepEqual(early, []);
  });

  it("go on when one of them begins another or calls one off", async () => {
    const clock = createDeadlineClock();
    let rounds = 0;
    let wrong = 0;
    const next = (): void => {
      const cancels: (() => void)[] = [];
      clock.timer(5, () => {
        for (const cancel of cancels) cancel();
        if (++rounds < 5) next();
      });
      cancels.push(clock.timer(5, () => wrong++), clock.timer(5, () => wrong++));
    };
    next();
    await until(() => rounds === 5, "five rounds");
    assert.equal(wrong, 0);
  });

  it("of very many durations leave nothing behind", async () => {
    const clock = createDeadlineClock();
    let ended = 0;
    for (let round = 0; round < 3; round++) {
      const cancels = Array.from({ length: 500 }, (_, index) => clock.timer(100_000 + index, () => ended += 1000));
      for (const cancel of cancels) cancel();
    }
    clock.timer(100_000, () => {})();
    for (let index = 0; index < 100; index++) clock.timer(1 + index / 10, () => ended++);
    await until(() => ended >= 100, "a hundred");
    assert.equal(ended, 100);
  });

  it("may be longer than the runtime's own can be", async () => {
    const clock = createDeadlineClock();
    let isOver = false;
    const cancel = clock.timer(2 ** 31, () => isOver = true);
    let isPassed = false;
    clock.timer(20, () => isPassed = true);
    await until(() => isPassed, "the short one");
    cancel();
    assert.equal(isOver, false);
  });
});
