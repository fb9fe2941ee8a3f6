/** Estimates of tokens: learning from stated usage, bounds, and usage that must not be learned. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import fc from "fast-check";
import { type EstimatedCall, TokenEstimator } from "../../src/limits/estimate.ts";

const call = (more: Partial<EstimatedCall> = {}): EstimatedCall => ({
  provider: "a",
  model: "m",
  keyId: "k",
  inputBytes: 4000,
  maxInput: Infinity,
  isInputWhole: true,
  maxOutput: undefined,
  providerMaxOutput: undefined,
  isBackground: false,
  ...more,
});
const teach = (
  estimator: TokenEstimator,
  times: number,
  usage: { input?: number; output?: number },
  more = {},
) => {
  const { input = 0, output = 0 } = usage;
  for (let time = 0; time < times; time++) {
    estimator.learn(call(more), { total: input + output, ...usage }, output);
  }
};

describe("estimates", () => {
  it("begin with four bytes per token, and a thousand tokens of output", () => {
    assert.deepEqual(new TokenEstimator().estimateExpected(call()), { input: 1000, output: 1000 });
    assert.deepEqual(new TokenEstimator().estimateUsed(call(), 7), { input: 1000, output: 7 });
  });

  it("expect the maximum that the caller set, regardless of earlier calls", () => {
    const estimator = new TokenEstimator();
    teach(estimator, 9, { input: 1000, output: 20 });
    assert.equal(estimator.estimateExpected(call({ maxOutput: 5 })).output, 5);
    assert.equal(estimator.estimateExpected(call({ maxOutput: 1e9 })).output, 1e9);
  });

  it("learn bytes per token for each provider, model and key separately", () => {
    const estimator = new TokenEstimator();
    teach(estimator, 60, { input: 2000, output: 10 });
    const { input } = estimator.estimateExpected(call());
    assert.ok(input > 1990 && input <= 2000, String(input));
    for (const other of [{ model: "n" }, { provider: "b" }, { keyId: "other" }]) {
      assert.equal(estimator.estimateExpected(call(other)).input, 1000);
    }
  });

  it("learn no ratio from calls whose input is elsewhere, and expect for these the usage of recent ones", () => {
    const estimator = new TokenEstimator();
    teach(estimator, 20, { input: 100_000, output: 10 }, { isInputWhole: false });
    assert.equal(estimator.estimateExpected(call()).input, 1000);
    assert.equal(estimator.estimateExpected(call({ isInputWhole: false })).input, 100_000);
    assert.equal(
      estimator.estimateUsed(call({ isInputWhole: false, keyId: "other" }), 1).input,
      1000,
    );
  });

  it("move slowly: one odd statement changes little", () => {
    const estimator = new TokenEstimator();
    teach(estimator, 1, { input: 4000 });
    assert.ok(estimator.estimateExpected(call()).input <= 1300);
  });

  it("learn output that is never relayed, such as reasoning", () => {
    const estimator = new TokenEstimator();
    for (let time = 0; time < 60; time++) {
      estimator.learn(call(), { total: 1300, input: 1000, output: 300 }, 100);
    }
    const { output } = estimator.estimateUsed(call(), 50);
    assert.ok(output >= 148 && output <= 150, String(output));
    assert.equal(
      estimator.estimateUsed(call({ maxOutput: 60 }), 50).output,
      60,
      "no more than the caller's maximum",
    );
    assert.equal(
      estimator.estimateUsed(call({ maxOutput: 40 }), 50).output,
      50,
      "and no less than was counted",
    );
  });

  it("expect an amount that covers 95 of 100 recent calls of the same key and model", () => {
    const estimator = new TokenEstimator();
    for (let output = 1; output <= 20; output++) teach(estimator, 1, { input: 1000, output });
    assert.equal(estimator.estimateExpected(call()).output, 19);
    for (const other of [{ keyId: "x" }, { model: "x" }, { provider: "x" }]) {
      assert.equal(estimator.estimateExpected(call(other)).output, 1000);
    }
    teach(estimator, 32, { input: 1000, output: 500 });
    assert.equal(estimator.estimateExpected(call()).output, 500, "older calls are forgotten");
    teach(estimator, 1, { input: 1000, output: 100_000 });
    assert.equal(estimator.estimateExpected(call()).output, 500, "one of 32 decides nothing");
    teach(estimator, 32, { input: 1000, output: 100_000 });
    assert.equal(estimator.estimateExpected(call()).output, 32_768, "there is a bound");
  });

  it("expect no output from models that never have any", () => {
    const estimator = new TokenEstimator();
    teach(estimator, 3, { input: 1000 }, { model: "e" });
    assert.equal(estimator.estimateExpected(call({ model: "e" })).output, 0);
  });

  // A caller can fill bodies with fields that no model reads, to make the gateway believe that text
  // is free.
  it("stay within bounds for any bodies of a key", () => {
    const [free, dear] = [new TokenEstimator(), new TokenEstimator()];
    teach(free, 10_000, { input: 1, output: 1 }, { inputBytes: 1_000_000 });
    assert.ok(free.estimateExpected(call({ inputBytes: 8000 })).input >= 1000);
    teach(dear, 10_000, { input: 1_000_000, output: 1 }, { inputBytes: 1 });
    assert.ok(dear.estimateExpected(call()).input <= 4000);
    for (let time = 0; time < 1000; time++) {
      free.learn(call(), { total: 1, output: 1 }, 1_000_000);
      dear.learn(call(), { total: 1e9, output: 1e9 }, 1);
    }
    assert.ok(free.estimateUsed(call(), 100).output >= 50);
    assert.ok(dear.estimateUsed(call(), 100).output <= 800);
  });

  it("are whole numbers that are not negative, for any statement", () => {
    const count = fc.oneof(fc.nat(), fc.constantFrom(0, 1, Number.MAX_SAFE_INTEGER));
    const seen = fc.record({
      usage: fc.record({ total: count, input: count, output: count }, { requiredKeys: ["total"] }),
      bytes: fc.nat(10_000_000),
      counted: fc.option(fc.nat(), { nil: undefined }),
    });
    fc.assert(
      fc.property(fc.array(seen), fc.nat(10_000_000), fc.nat(), (calls, inputBytes, counted) => {
        const estimator = new TokenEstimator();
        for (const { usage, bytes, counted } of calls) {
          estimator.learn(call({ inputBytes: bytes }), usage, counted);
        }
        const asked = call({ inputBytes });
        for (
          const { input, output } of [
            estimator.estimateExpected(asked),
            estimator.estimateUsed(asked, counted),
          ]
        ) {
          for (const tokens of [input, output]) {
            assert.ok(Number.isSafeInteger(tokens) && tokens >= 0);
          }
          assert.ok(input >= Math.floor(inputBytes / 8) && input <= inputBytes);
        }
      }),
    );
  });

  it("forget the models and keys that were used longest ago, and stay small", () => {
    const estimator = new TokenEstimator();
    teach(estimator, 60, { input: 4000, output: 7 });
    teach(estimator, 60, { input: 4000, output: 7 }, { model: "old" });
    for (let index = 0; index < 9999; index++) {
      teach(estimator, 1, { input: 1000, output: 1 }, { model: `m${index}`, keyId: "many" });
      if (index % 100 === 0) teach(estimator, 1, { input: 4000, output: 7 });
    }
    assert.ok(estimator.estimateExpected(call()).input > 3900, "what is in use stays");
    assert.equal(
      estimator.estimateExpected(call({ model: "old" })).input,
      1000,
      "the oldest is gone",
    );
    for (let index = 0; index < 10_000; index++) {
      teach(estimator, 1, { output: 1 }, { keyId: `k${index}` });
    }
    assert.equal(estimator.estimateExpected(call()).output, 1000, "so are its recent calls");
  });
});
