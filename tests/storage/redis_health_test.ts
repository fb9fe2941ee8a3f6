/** The health of a Redis server: which results end it, and how many good answers restore it. */
// runtimes: once
import assert from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import { beforeEach, describe, it } from "@std/testing/bdd";
import { ServerHealth } from "../../src/storage/redis_health.ts";

describe("the health of a server of Redis", () => {
  let now: number;
  let timer: { readonly ms: number; readonly fire: () => void } | undefined;
  let isWell: boolean;
  let reopened: number;
  let health: ServerHealth;
  beforeEach(() => {
    [now, timer, isWell, reopened] = [0, undefined, true, 0];
    health = new ServerHealth({
      clock: {
        now: () => now,
        monotonic: () => now,
        timer(ms, fire) {
          timer = { ms, fire };
          return () => void (timer = undefined);
        },
      },
      isUp: true,
      probe: () => isWell ? Promise.resolve() : Promise.reject(new Error("away")),
      reopen: () => void reopened++,
      changed: () => {},
    });
  });
  /** Runs the next probe. */
  const probe = async () => {
    const { ms, fire } = timer ?? assert.fail("no probe is to come");
    now += ms;
    fire();
    await setImmediate();
  };
  const recover = async (): Promise<number> => {
    for (let probes = 0;; probes++) {
      if (health.isUp) return probes;
      await probe();
    }
  };
  const missOne = () => health.missed(health.replies - 1, health.outages);

  it("tolerates late answers if they are few", () => {
    for (let round = 0; round < 100; round++) {
      for (let answer = 0; answer < 10; answer++) health.answered();
      missOne();
    }
    assert.equal(health.isUp, true);
    for (let late = 0; late < 4; late++) missOne();
    assert.equal(health.isUp, false);
  });

  it("ends with the first call since which no answer arrived", () => {
    health.missed(health.replies, health.outages);
    assert.equal(health.isUp, false);
    const { outages } = health;
    health.missed(health.replies, outages - 1); // sent before
    assert.equal(health.outages, outages);
  });

  it("needs more good answers after repeated outages, and fewer after a minute", async () => {
    const probes: number[] = [];
    const times: number[] = [];
    for (let outage = 0; outage < 6; outage++) {
      const began = now;
      health.leaveAlone();
      probes.push(await recover());
      times.push(now - began);
    }
    assert.deepEqual(probes, [3, 6, 12, 24, 48, 48]);
    const last = times.at(-1) ?? 0;
    assert.ok(last > 5000 && last < 15_000, `${last} ms until it is up again`);
    now += 60_001; // the sum of its parts is slightly less
    health.leaveAlone();
    assert.equal(await recover(), 3);
  });

  it("restarts the count with each failed probe", async () => {
    health.leaveAlone();
    await probe();
    await probe();
    isWell = false;
    await probe();
    isWell = true;
    assert.equal(await recover(), 3);
  });

  it("reopens connections when Redis is silent, not when it is slow", async () => {
    isWell = false;
    health.leaveAlone();
    const until = async (end: number, slow: boolean) => {
      while (now < end) {
        if (slow) health.answeredLate(80);
        await probe();
      }
    };
    await until(12_000, true);
    assert.equal(reopened, 0);
    assert.equal(health.describe(), "slow: it answers after 80 ms");
    await until(24_000, false);
    assert.equal(reopened, 2);
    assert.match(health.describe() ?? "", /^silent for [0-9]+ ms$/);
  });
});
