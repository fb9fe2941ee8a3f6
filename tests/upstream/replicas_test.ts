/** The replicas' state machine, times passed in. */
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { type Replica, Replicas } from "../../src/upstream/replicas.ts";

const URLS = ["https://one.example", "https://two.example", "https://three.example"];

function pick(replicas: Replicas, now: number): Replica {
  return replicas.pick(now) ?? assert.fail("all are ejected");
}

function eject(replicas: Replicas, url: string, now: number): void {
  for (let failures = 0; failures < 5;) {
    const replica = pick(replicas, now);
    if (replica.url === url) {
      replicas.failed(replica, now);
      failures++;
    } else replicas.succeeded(replica);
  }
}

describe("replicas", () => {
  it("take calls in turn", () => {
    const replicas = new Replicas(URLS);
    assert.deepEqual(Array.from({ length: 4 }, () => pick(replicas, 0).url), [...URLS, URLS[0]]);
  });

  it("are ejected after five failures in a row, and a success in between starts anew", () => {
    const replicas = new Replicas(URLS.slice(0, 1));
    for (let call = 0; call < 12; call++) {
      const replica = pick(replicas, 0);
      if (call % 4 === 3) replicas.succeeded(replica);
      else replicas.failed(replica, 0);
    }
    eject(replicas, URLS[0] ?? "", 0);
    assert.equal(replicas.pick(4999), undefined);
  });

  it("that can't be connected to are ejected at once where another one is in service", () => {
    const replicas = new Replicas(URLS.slice(0, 2));
    const first = pick(replicas, 0);
    replicas.failed(first, 0, false);
    const second = replicas.pickAgain(0, first) ?? assert.fail();
    for (let call = 0; call < 4; call++) {
      replicas.failed(second, 0, false);
      assert.equal(pick(replicas, 0), second, "the last one stays for five failures");
    }
    replicas.failed(second, 0, false);
    assert.equal(replicas.pick(0), undefined);
  });

  it("are probed one call at a time after a pause that grows with each ejection", () => {
    const replicas = new Replicas(URLS.slice(0, 1));
    eject(replicas, URLS[0] ?? "", 0);
    let now = 0;
    for (let ejections = 1; ejections <= 70; ejections++) {
      const pauseMs = Math.min(5000 * ejections, 300_000);
      assert.equal(replicas.pick(now + pauseMs - 1), undefined);
      now += pauseMs;
      const probe = pick(replicas, now);
      assert.equal(replicas.pick(now), undefined, "one probe at a time");
      replicas.failed(probe, now);
    }
    now += 300_000;
    replicas.succeeded(pick(replicas, now));
    for (let call = 0; call < 10; call++) pick(replicas, now);
    eject(replicas, URLS[0] ?? "", now);
    assert.ok(replicas.pick(now + 5000), "the pauses begin anew after a success");
  });

  it("in service are not touched by the failures of another, and a call from before an ejection changes nothing", () => {
    const replicas = new Replicas(URLS);
    const early = pick(replicas, 0);
    eject(replicas, early.url, 0);
    replicas.succeeded(early);
    const others = Array.from({ length: 6 }, () => pick(replicas, 1).url);
    assert.ok(!others.includes(early.url));
    assert.equal(new Set(others).size, 2);
  });

  it("tell how they do", () => {
    const replicas = new Replicas(["a", "b"]);
    const report = () => replicas.report(1000).map((each) => [each.isEjected, each.ejections, each.ejectedMs]);
    assert.deepEqual(report(), [[false, 0, 0], [false, 0, 0]]);
    const first = replicas.pick(0) ?? assert.fail();
    replicas.failed(first, 0, false);
    assert.deepEqual(report(), [[true, 1, 4000], [false, 0, 0]]);
    replicas.succeeded(replicas.pick(10_000) ?? assert.fail());
    assert.deepEqual(report(), [[false, 1, 0], [false, 0, 0]]);
  });

  it("that are probed are freed when the call says nothing about them", () => {
    const replicas = new Replicas(URLS.slice(0, 1));
    eject(replicas, URLS[0] ?? "", 0);
    replicas.forgotten(pick(replicas, 5000));
    assert.ok(replicas.pick(5000));
  });

  it("give a retry to another one, for a fifth of the calls at most", () => {
    fc.assert(fc.property(fc.array(fc.boolean(), { maxLength: 300 }), (fails) => {
      const replicas = new Replicas(URLS);
      let retries = 0;
      for (const isFailing of fails) {
        const first = pick(replicas, 0);
        const second = isFailing ? replicas.pickAgain(0, first) : undefined;
        if (second !== undefined) retries++;
        assert.notEqual(second, first);
      }
      assert.ok(retries <= 3 + 0.2 * fails.length, `${retries} retries of ${fails.length} calls`);
    }));
    const lone = new Replicas(URLS.slice(0, 1));
    assert.equal(lone.pickAgain(0, pick(lone, 0)), undefined);
  });
});
