/**
 * The verdicts of `npm run durable`: correct behaviour passes, and each broken guarantee is found.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import type { Connection, ExchangeHistory, Seen } from "../../scripts/durable/callers.ts";
import type { Happening } from "../../scripts/durable/scene.ts";
import type { MadeCall } from "../../scripts/durable/truth.ts";
import { checkExchange } from "../../scripts/durable/verdict.ts";
import { judgeReading } from "../support/durable_reading.ts";
import { chunk, stream } from "../support/provider.ts";

const WHOLE = stream("one", "two");
const LOST =
  '\n\ndata: {"error":{"message":"lost","type":"server_error","param":null,"code":"exchange_lost"}}\n\n';
const HALF = chunk("one");

const connectionOf = (more: Partial<Connection> = {}): Connection => ({
  ...{ gateway: "near", attempt: "name/0", from: 0, to: 100, answer: "200", isLeft: false },
  ...more,
});
const seenOf = (more: Partial<Seen> = {}): Seen => ({
  ...{
    role: "first caller",
    isSlow: false,
    from: 0,
    address: "/one",
    text: WHOLE,
    hasEnd: true,
    refusal: undefined,
  },
  ...{ isTimeUp: false, isReplayed: false, isRestarted: false, connections: [connectionOf()] },
  ...more,
});
const callOf = (more: Partial<MadeCall> = {}): MadeCall => ({
  ...{ name: "name", attempt: "name/0", whole: WHOLE, begunAt: 1, endedAt: 90, isCut: false },
  ...more,
});
const killed: Happening = { what: "killed", gateway: "near", from: 50, to: 51 };
const frozen: Happening = { what: "frozen", from: 50, to: 60 };

/** Returns the findings for an exchange. */
function check(
  seen: readonly Seen[],
  calls = [callOf()],
  happened: Happening[] = [],
  more = {},
): string {
  const exchange: ExchangeHistory = {
    name: "name",
    isShort: false,
    stop: undefined,
    seen: [...seen],
    ...more,
  };
  return checkExchange(exchange, calls, happened).violations.join("; ");
}

describe("the verdict on a reading", () => {
  it("accepts every part of the answer, and no other text", () => {
    for (let from = 0; from <= WHOLE.length; from += 7) {
      for (let to = from; to <= WHOLE.length; to += 5) {
        const text = WHOLE.slice(from, to);
        const ended = judgeReading({ from, text, hasEnd: true }, WHOLE);
        assert.equal(ended.is, to === WHOLE.length ? "whole" : "wrong");
        assert.equal(judgeReading({ from, text, hasEnd: false }, WHOLE).is, "cut");
        const told = judgeReading({ from, text: text + LOST, hasEnd: true }, WHOLE);
        assert.deepEqual(told, { is: "told", code: "exchange_lost" });
        if (to > from) {
          assert.equal(judgeReading({ from, text: text + text, hasEnd: false }, WHOLE).is, "wrong");
        }
      }
    }
    assert.equal(
      judgeReading({ from: 0, text: HALF + LOST.slice(0, 30), hasEnd: true }, WHOLE).is,
      "wrong",
    );
    assert.equal(
      judgeReading({ from: 0, text: HALF + LOST.slice(0, 30), hasEnd: false }, WHOLE).is,
      "cut",
    );
    assert.equal(
      judgeReading({ from: 0, text: `x${HALF}${LOST}`, hasEnd: true }, WHOLE).is,
      "wrong",
    );
  });
});

describe("the verdict on an exchange", () => {
  it("finds nothing if all readers have the whole answer, or a reason for a different end", () => {
    const reader = seenOf({ role: "reader", from: 3, text: WHOLE.slice(3) });
    assert.equal(check([seenOf(), reader]), "");
    const lost = seenOf({ text: HALF + LOST });
    assert.equal(
      check([lost, { ...lost, role: "reader" }], [callOf({ isCut: true, endedAt: 51 })], [killed]),
      "",
    );
  });

  it("finds each broken guarantee", () => {
    const lost = seenOf({ text: HALF + LOST });
    assert.match(check([lost]), /no reason for it/);
    assert.match(check([lost], [callOf()], [frozen]), /the first caller's stream is affected/);
    assert.match(check([seenOf({ text: HALF })]), /looks complete/);
    assert.match(check([seenOf({ text: HALF + HALF, hasEnd: false })]), /other bytes/);
    assert.match(
      check([seenOf({ text: HALF, hasEnd: false, isTimeUp: true })], [callOf()], [frozen]),
      /no end/,
    );
    assert.match(
      check([seenOf({ refusal: "invalid_offset" })], [callOf()], [frozen]),
      /no reason for it/,
    );
    assert.match(
      check([seenOf(), { ...lost, isReplayed: true }], [callOf()], [killed]),
      /a broken answer was replayed/,
    );
  });

  it("counts calls, and requires a cause for each except the first", () => {
    const again = callOf({ attempt: "name/1", begunAt: 95, endedAt: 99 });
    const retry = seenOf({
      ...{ role: "retry", address: "/two" },
      connections: [connectionOf({ gateway: "far", attempt: "name/1", from: 94 })],
    });
    assert.match(check([seenOf(), retry], [callOf(), again]), /made again without a cause/);
    const cut = callOf({ isCut: true, endedAt: 51 });
    const lost = seenOf({ text: HALF + LOST });
    assert.match(check([lost, retry], [cut, again], [killed]), /made again without a word/);
    assert.equal(check([lost, { ...retry, isRestarted: true }], [cut, again], [killed]), "");
    assert.match(check([seenOf({ isRestarted: true })]), /a first call says/);
    const late = { ...again, begunAt: 5000 };
    assert.match(check([lost, retry], [callOf({ endedAt: 9000 }), late], [killed]), /ran at once/);
    const refused = connectionOf({ answer: "503 recordings_unavailable" });
    assert.match(
      check([seenOf({ connections: [refused] })], [callOf()], [frozen]),
      /made and refused/,
    );
    const stop = { stop: { at: 20_000, status: 204 } };
    assert.match(
      check([seenOf()], [callOf({ endedAt: 40_000 })], [], stop),
      /went on after it was stopped/,
    );
  });
});
