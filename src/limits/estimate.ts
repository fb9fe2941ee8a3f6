/**
 * Estimates of tokens: before a call of what it will use, and after it of what it has used where
 * the provider stated nothing. There is no tokenizer: bytes become tokens by a ratio that is
 * learned from what providers state.
 *
 * @module
 */
import { RecentMap } from "../exchange/recent_map.ts";
import type { TokenUsage } from "../exchange/record.ts";

/**
 * Tokens of a byte of input before anything was learned: English has about four bytes to a token,
 * JSON included.
 */
const INPUT_RATIO = 0.25;
/**
 * Bounds of the learned ratio. No tokenizer makes more than one token of a byte; and no
 * caller may teach the gateway, with bodies full of what a model never reads, that text is free.
 */
const MIN_INPUT_RATIO = 0.125;
const MAX_INPUT_RATIO = 1;
/**
 * Bounds of the learned factor for counted output: some of it, such as reasoning, is never relayed.
 */
const MIN_OUTPUT_FACTOR = 0.5;
const MAX_OUTPUT_FACTOR = 8;
/** Weight of one more call in what is learned. */
const WEIGHT = 0.1;
/** Input of a call that does not stand in its body, before anything was learned. Tokens. */
const UNKNOWN_INPUT = 1000;
/** Output of a call of which nothing is known. Tokens. */
const DEFAULT_OUTPUT = 1000;
/** The most output that is expected where the caller sets no maximum. Tokens. */
const MAX_EXPECTED_OUTPUT = 32_768;
/** Number of recent calls of a key and a model whose output is remembered. */
const RECENT = 32;
/**
 * Number of recent calls from which on the expected output need not cover the largest: 19 of 20 are
 * enough.
 */
const MANY = 20;
/** The most pairs of key and model of which something is remembered: about 3 MB in all. */
const MAX_PAIRS = 10_000;

/** Facts of a call from which its tokens are estimated. */
export interface EstimatedCall {
  /** Name of the provider. */
  readonly provider: string;
  /** Model as the caller named it; empty where none is named. */
  readonly model: string;
  /** Id of the gateway key. */
  readonly keyId: string;
  /** Bytes of text in the body. */
  readonly inputBytes: number;
  /** The most input that its text can be, over all prompts. Tokens. */
  readonly inputBound: number;
  /** True if all of its input stands in the body; else it may have any number of tokens. */
  readonly isInputWhole: boolean;
  /**
   * The most output for which the caller asked, over all choices; `undefined` where it set no
   * maximum. Tokens.
   */
  readonly maxOutput: number | undefined;
  /**
   * The most output that the provider gives, over all choices; `undefined` where the operator set
   * none. Tokens.
   */
  readonly outputBound: number | undefined;
  /** True if the provider makes the answer whether or not anybody waits for it. */
  readonly isBackground: boolean;
}

/** Tokens of a call. */
export interface EstimatedTokens {
  readonly input: number;
  readonly output: number;
}

/** Ratios and recent outputs, learned from the calls of one key to one model. */
interface Learned {
  inputRatio: number;
  outputFactor: number;
  /** Outputs of recent calls, and inputs of those whose input did not stand in the body. */
  readonly outputs: Recent;
  readonly inputs: Recent;
}

/** Numbers of recent calls: a ring. */
class Recent {
  readonly #numbers: number[] = [];
  #next = 0;

  add(number: number): void {
    this.#numbers[this.#next] = number;
    this.#next = (this.#next + 1) % RECENT;
  }

  /**
   * The number that covers most of them: the largest, or the second of {@link MANY}; `undefined` if
   * there are none.
   */
  get most(): number | undefined {
    let largest: number | undefined;
    let second = 0;
    for (const number of this.#numbers) {
      if (largest === undefined || number > largest) [second, largest] = [largest ?? 0, number];
      else if (number > second) second = number;
    }
    return this.#numbers.length < MANY ? largest : second;
  }
}

const clamp = (value: number, least: number, most: number): number =>
  Math.min(Math.max(value, least), most);
const blend = (known: number, seen: number): number => known + WEIGHT * (seen - known);

/**
 * Estimates tokens, and learns from those that providers state. A key learns from its own calls
 * alone: the texts of one caller say nothing about those of another, and must not make them dearer.
 */
export class TokenEstimator {
  readonly #pairs = new RecentMap<Learned>(MAX_PAIRS / 2);

  /**
   * Estimates what a call will use: its input by its bytes; its output by the maximum that the
   * caller set, else by recent calls of the same key and model.
   */
  expect(call: EstimatedCall): EstimatedTokens {
    const learned = this.#pairs.get(pairOf(call));
    const output = call.maxOutput ?? Math.min(recentOutput(learned), call.outputBound ?? Infinity);
    return { input: inputOf(call, learned), output };
  }

  /**
   * Estimates what a call has used: no more than the maximum that the caller set, unless more was
   * counted.
   *
   * @param counted Tokens of output as its dialect counted them
   */
  consumed(call: EstimatedCall, counted: number): EstimatedTokens {
    const learned = this.#pairs.get(pairOf(call));
    const { outputFactor = 1 } = learned ?? {};
    const most = Math.max(call.maxOutput ?? Infinity, counted);
    return {
      input: inputOf(call, learned),
      output: Math.min(Math.ceil(counted * outputFactor), most),
    };
  }

  /**
   * Learns from a call whose tokens were stated.
   *
   * @param counted Tokens of output as its dialect counted them; `undefined` if it did not
   */
  learn(
    call: EstimatedCall,
    { input = 0, output = 0 }: TokenUsage,
    counted: number | undefined,
  ): void {
    const learned = this.#pairs.getOrAdd(pairOf(call), newPair);
    if (!call.isInputWhole) learned.inputs.add(input);
    else if (input > 0 && call.inputBytes > 0) {
      const ratio = clamp(input / call.inputBytes, MIN_INPUT_RATIO, MAX_INPUT_RATIO);
      learned.inputRatio = blend(learned.inputRatio, ratio);
    }
    const isCounted = counted !== undefined && counted > 0;
    if (output > 0 && isCounted) {
      const factor = clamp(output / counted, MIN_OUTPUT_FACTOR, MAX_OUTPUT_FACTOR);
      learned.outputFactor = blend(learned.outputFactor, factor);
    }
    learned.outputs.add(output);
  }
}

const newPair = (): Learned => ({
  inputRatio: INPUT_RATIO,
  outputFactor: 1,
  outputs: new Recent(),
  inputs: new Recent(),
});

function inputOf(call: EstimatedCall, learned: Learned | undefined): number {
  const { inputBytes, inputBound, isInputWhole } = call;
  const input = Math.min(Math.ceil(inputBytes * (learned?.inputRatio ?? INPUT_RATIO)), inputBound);
  return isInputWhole ? input : Math.max(input, learned?.inputs.most ?? UNKNOWN_INPUT);
}

function recentOutput(learned: Learned | undefined): number {
  return Math.min(learned?.outputs.most ?? DEFAULT_OUTPUT, MAX_EXPECTED_OUTPUT);
}

const pairOf = ({ provider, model, keyId }: EstimatedCall): string =>
  `${provider}\n${model}\n${keyId}`;
