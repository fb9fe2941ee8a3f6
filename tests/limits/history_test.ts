/**
 * The checker of a fleet's history: it finds each kind of broken promise. Also a small run of the
 * fleet.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import {
  checkHistory,
  type HistoricCall,
  type HistoricLimit,
} from "../../scripts/fleet/history.ts";
import { LIMIT, MOST_USED, runScene } from "../../scripts/fleet/scene.ts";
import { startRedis, withRedis } from "../support/redis.ts";

const limit = (more: Partial<HistoricLimit> = {}): HistoricLimit => ({
  key: "k",
  tokens: 100,
  isStrict: false,
  excused: 0,
  ...more,
});
const call = (
  begunAt: number,
  endedAt: number,
  actual: number,
  more: Partial<HistoricCall> = {},
): HistoricCall => ({
  gateway: "a",
  key: "k",
  begunAt,
  endedAt,
  answer: "200",
  isRefused: false,
  actual,
  reserved: { least: 40, most: 50 },
  ...more,
});
const refused = (begunAt: number, endedAt: number, actual = 0) =>
  call(begunAt, endedAt, actual, { answer: "429", isRefused: true });

describe("the checker of histories", () => {
  it("finds nothing if every promise is kept", () => {
    const calls = [
      call(0, 5, 50),
      call(1, 6, 50),
      refused(7, 8),
      call(0, 9, 1000, { key: "other" }),
    ];
    assert.deepEqual(checkHistory(calls, limit()), {
      passed: 100,
      beyond: 0,
      bound: 20,
      violations: [],
    });
    assert.deepEqual(checkHistory(calls, limit({ isStrict: true })).violations, []);
  });

  it("finds usage beyond the reservations of the calls that were open at once", () => {
    const together = [call(0, 10, 70), call(1, 11, 60)];
    assert.deepEqual(checkHistory(together, limit()), {
      passed: 130,
      beyond: 30,
      bound: 50,
      violations: [],
    });
    const inTurn = [call(0, 1, 41), call(2, 3, 41), call(4, 5, 41)];
    assert.match(
      String(checkHistory(inTurn, limit()).violations),
      /123 tokens passed a limit of 100; the bound is 1 more/,
    );
    assert.deepEqual(checkHistory(inTurn, limit({ excused: 30 })).violations, []);
  });

  it("finds any usage beyond a strict limit", () => {
    const calls = [call(0, 10, 50), call(1, 11, 51)];
    assert.deepEqual(checkHistory(calls, limit()).violations, []);
    assert.match(
      String(checkHistory(calls, limit({ isStrict: true })).violations),
      /the bound is 0 more/,
    );
  });

  it("finds good keys that were reported as unknown", () => {
    const calls = [
      call(0, 1, 0, { answer: "401 invalid_gateway_key" }),
      call(1, 2, 0, { answer: "503 x" }),
    ];
    assert.match(
      String(checkHistory(calls, limit()).violations),
      /^1 calls with a good key were called unknown$/,
    );
  });

  it("finds refused calls that reached the provider, and refusals although the limit had room", () => {
    assert.match(
      String(checkHistory([refused(0, 1, 5)], limit()).violations),
      /1 refused calls reached the provider/,
    );
    assert.match(
      String(checkHistory([call(0, 1, 40), refused(2, 3)], limit()).violations),
      /1 calls were refused/,
    );
    assert.deepEqual(checkHistory([call(0, 1, 40), refused(2, 3)], limit(), true).violations, []);
    const atOnce = [refused(0, 3), call(1, 4, 40), call(2, 5, 40)];
    assert.deepEqual(checkHistory(atOnce, limit()).violations, [], "it may have come after them");
  });
});

withRedis.describe("a fleet of three runtimes on one Redis", () => {
  it("keeps the promises about limits, by the merged history of its gateways", async () => {
    const redis = await startRedis();
    try {
      const { calls, charged, localDecisions } = await runScene(
        redis.url,
        { begin() {}, end() {} },
        17,
      );
      assert.ok(calls.length > 100);
      for (const [index, key] of Object.keys(charged).entries()) {
        const excused = localDecisions * MOST_USED;
        const { violations, passed } = checkHistory(
          calls,
          { key, tokens: LIMIT, isStrict: index === 1, excused },
          excused > 0,
        );
        assert.deepEqual(violations, []);
        assert.ok(passed > 0);
      }
    } finally {
      await redis.stop();
    }
  });
});
