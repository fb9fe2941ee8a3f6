/** The replicas' state machine. Tests pass the times. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { Replicas } from "../../src/upstream/replicas.ts";

const URLS = ["https://one.example", "https://two.example", "https://three.example"];

/** Ejects a replica by five broken connections in a row. The others succeed. */
function eject(replicas: Replicas, url: string, now: number): void {
  for (let failures = 0; failures < 5;) {
    const replica = replicas.pick(now);
    if (replica.url === url) {
      replicas.failed(replica, now);
      failures++;
    } else replicas.succeeded(replica);
  }
}

/** The ejected replicas. */
function ejectedOf(replicas: Replicas, now = 0): number[] {
  return replicas.report(now).filter(({ isEjected }) => isEjected).map(({ replica }) => replica);
}

/** The replicas of the next calls. These calls report no result. */
function nextOf(replicas: Replicas, now: number, count: number): string[] {
  return Array.from({ length: count }, () => {
    const replica = replicas.pick(now);
    replicas.undecided(replica);
    return replica.url;
  });
}

describe("replicas", () => {
  it("receive calls in turn", () => {
    assert.deepEqual(nextOf(new Replicas(URLS), 0, 4), [...URLS, URLS[0]]);
  });

  it("are ejected after five broken connections in a row, and a success resets the count", () => {
    const replicas = new Replicas(URLS.slice(0, 2));
    for (let call = 0; call < 24; call++) {
      const replica = replicas.pick(0);
      if (replica.index === 1 || call % 8 === 6) replicas.succeeded(replica);
      else replicas.failed(replica, 0);
    }
    assert.deepEqual(ejectedOf(replicas), []);
    eject(replicas, URLS[0] ?? "", 0);
    assert.deepEqual(ejectedOf(replicas), [0]);
    assert.deepEqual(nextOf(replicas, 4999, 3), [URLS[1], URLS[1], URLS[1]]);
  });

  it("that cannot be connected to are ejected at once, as long as another one is in service", () => {
    const replicas = new Replicas(URLS);
    const first = replicas.pick(0);
    replicas.failed(first, 0, false);
    const second = replicas.pickAgain(0, first) ?? assert.fail();
    replicas.failed(second, 0, false);
    const third = replicas.pick(0);
    for (let call = 0; call < 20; call++) replicas.failed(third, 0, false);
    assert.deepEqual(ejectedOf(replicas), [first.index, second.index], "the last one stays");
  });

  it("stay in service when there is only one, whatever fails [partial failure]", () => {
    const replicas = new Replicas(URLS.slice(0, 1));
    for (let call = 0; call < 100; call++) {
      replicas.failed(replicas.pick(call), call, call % 2 === 0);
    }
    assert.deepEqual(ejectedOf(replicas), []);
    assert.equal(replicas.pick(100).url, URLS[0]);
  });

  it("are ejected up to half of them by connections that a caller can break [partial failure]", () => {
    for (const [count, most] of [[2, 1], [3, 1], [4, 2], [5, 2]] as const) {
      const replicas = new Replicas(
        Array.from({ length: count }, (_, index) => `https://${index}.example`),
      );
      for (let call = 0; call < 200; call++) replicas.failed(replicas.pick(0), 0);
      assert.equal(ejectedOf(replicas).length, most, `of ${count}`);
    }
  });

  it("stay out of service during their pause, though a caller breaks the connections of all others [partial failure]", () => {
    const replicas = new Replicas(URLS.slice(0, 2));
    replicas.failed(replicas.pick(0), 0, false);
    for (let call = 0; call < 20; call++) replicas.failed(replicas.pick(0), 0);
    assert.deepEqual(nextOf(replicas, 1, 2), [URLS[1], URLS[1]]);
  });

  it("are all used when none in service can be connected to, until one succeeds", () => {
    const replicas = new Replicas(URLS);
    for (const _ of URLS) replicas.failed(replicas.pick(0), 0, false);
    assert.deepEqual(ejectedOf(replicas), [0, 1]);
    assert.deepEqual(
      [...new Set(nextOf(replicas, 1, 3))].sort(),
      [...URLS].sort(),
      "pauses are disregarded",
    );
    const last = replicas.report(1)[2] ?? assert.fail();
    assert.deepEqual([last.isEjected, last.failures], [false, 1]);
    const failed = new Replicas(URLS).pick(0);
    const again = replicas.pickAgain(1, { ...failed, index: 2, url: URLS[2] ?? "" }) ??
      assert.fail("another is tried");
    replicas.failed(again, 1, false);
    assert.equal(replicas.report(1)[again.index]?.ejections, 1, "its pause does not grow by that");
    const other = replicas.pick(1);
    replicas.succeeded(other);
    assert.deepEqual(
      nextOf(replicas, 1, 2).filter((url) => url !== other.url && url !== URLS[2]),
      [],
    );
  });

  it("are probed after a pause that grows with each ejection", () => {
    const replicas = new Replicas(URLS.slice(0, 2));
    const [first = ""] = URLS;
    eject(replicas, first, 0);
    let now = 0;
    for (let ejections = 1; ejections <= 70; ejections++) {
      const pauseMs = Math.min(5000 * ejections, 300_000);
      assert.ok(!nextOf(replicas, now + pauseMs - 1, 2).includes(first));
      now += pauseMs;
      const probes = [replicas.pick(now), replicas.pick(now)];
      assert.deepEqual(probes.map(({ url }) => url), [first, first]);
      for (const probe of probes) replicas.failed(probe, now);
      assert.equal(
        replicas.report(now)[0]?.ejections,
        ejections + 1,
        "two that fail together count once",
      );
    }
    now += 300_000;
    replicas.succeeded(replicas.pick(now));
    assert.deepEqual(ejectedOf(replicas), []);
    eject(replicas, first, now);
    assert.equal(
      replicas.report(now)[0]?.ejectedMs,
      5000,
      "the pauses begin again after a success",
    );
  });

  it("are probed by a few calls at a time, and a slow probe does not block other replicas [partial failure]", () => {
    const replicas = new Replicas(URLS.slice(0, 2));
    const [first = "", second = ""] = URLS;
    eject(replicas, first, 0);
    const slow = [1, 2, 3].map(() => replicas.pick(5000));
    assert.deepEqual(slow.map(({ url }) => url), [first, first, first]);
    assert.deepEqual([replicas.pick(5000).url, replicas.pick(9999).url], [second, second]);
    const later = replicas.pick(10_000);
    assert.equal(later.url, first);
    replicas.undecided(later);
    assert.equal(replicas.pick(10_000).url, first, "its place is free again");
    replicas.succeeded(slow[0] ?? assert.fail());
    assert.deepEqual(ejectedOf(replicas), [], "the slow one counts when it is answered");
  });

  it("are not affected by the failures of another, nor by a call from before an ejection", () => {
    const replicas = new Replicas(URLS);
    const early = replicas.pick(0);
    eject(replicas, early.url, 0);
    replicas.succeeded(early);
    assert.deepEqual(ejectedOf(replicas), [early.index]);
    const probe = replicas.pick(5000);
    replicas.failed(early, 5000);
    assert.equal(replicas.report(5000)[early.index]?.ejections, 1);
    replicas.failed(probe, 5000);
    replicas.succeeded(probe);
    assert.equal(replicas.report(5000)[early.index]?.ejections, 2);
    assert.deepEqual(ejectedOf(replicas), [early.index]);
    const others = nextOf(replicas, 5001, 6);
    assert.ok(!others.includes(early.url));
    assert.equal(new Set(others).size, 2);
  });

  it("report their state", () => {
    const replicas = new Replicas(URLS.slice(0, 2));
    const report = () =>
      replicas.report(1000).map((each) => [each.isEjected, each.ejections, each.ejectedMs]);
    assert.deepEqual(report(), [[false, 0, 0], [false, 0, 0]]);
    replicas.failed(replicas.pick(0), 0, false);
    assert.deepEqual(report(), [[true, 1, 4000], [false, 0, 0]]);
    replicas.succeeded(replicas.pick(10_000));
    assert.deepEqual(report(), [[false, 1, 0], [false, 0, 0]]);
  });

  it("pass a retry to another one, for a fifth of the calls at most", () => {
    fc.assert(fc.property(fc.array(fc.boolean(), { maxLength: 300 }), (fails) => {
      const replicas = new Replicas(URLS);
      let retries = 0;
      for (const isFailing of fails) {
        const first = replicas.pick(0);
        const second = isFailing ? replicas.pickAgain(0, first) : undefined;
        if (second !== undefined) retries++;
        assert.notEqual(second, first);
      }
      assert.ok(retries <= 3 + 0.2 * fails.length, `${retries} retries of ${fails.length} calls`);
    }));
    assert.throws(() => new Replicas([]).pick(0), /there is none/);
    const lone = new Replicas(URLS.slice(0, 1));
    assert.equal(lone.pickAgain(0, lone.pick(0)), undefined);
  });
});
