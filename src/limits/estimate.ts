/**
 * Estimates of tokens: the expected use before a call, and the actual use after it if the provider
 * stated none. There is no tokenizer. Bytes are converted to tokens with a ratio that is learned
 * from the statements of providers.
 *
 * @module
 */
import { RecentMap } from "../exchange/recent_map.ts";
import type { TokenUsage } from "../exchange/billing.ts";

/**
 * Tokens per byte of input before anything was learned. English has about four bytes per token,
 * JSON included.
 */
const INPUT_RATIO = 0.25;
/**
 * Bounds of the learned ratio. No tokenizer makes more than one token from a byte. The lower bound
 * protects against callers that send bodies full of text that no model reads, to teach the gateway
 * that text is free.
 */
const MIN_INPUT_RATIO = 0.125;
const MAX_INPUT_RATIO = 1;
/**
 * Bounds of the learned factor for counted output. Some output, such as reasoning, is never
 * relayed.
 */
const MIN_OUTPUT_FACTOR = 0.5;
const MAX_OUTPUT_FACTOR = 8;
/** Weight of a new call in a learned value. */
const WEIGHT = 0.1;
/** Assumed input of a call whose input is not in its body, before anything was learned. Tokens. */
const UNKNOWN_INPUT = 1000;
/** Assumed output of a call before anything was learned. Tokens. */
const DEFAULT_OUTPUT = 1000;
/** The most output that is expected if the caller sets no maximum. Tokens. */
const MAX_EXPECTED_OUTPUT = 32_768;
/** Number of recent calls of a key and a model whose output is remembered. */
const RECENT = 32;
/**
 * Number of recent calls from which the expected output does not have to cover the largest output:
 * 19 of 20 are enough.
 */
const MANY = 20;
/** The most remembered pairs of key and model: about 3 MB in all. */
const MAX_PAIRS = 10_000;

/** Facts of a call from which its tokens are estimated. */
export interface EstimatedCall {
  /** Name of the provider. */
  readonly provider: string;
  /** Model as the caller named it; empty if none is named. */
  readonly model: string;
  /** Id of the gateway key. */
  readonly keyId: string;
  /** Bytes of text in the body. */
  readonly inputBytes: number;
  /** The most input that its text can be, over all prompts. Tokens. */
  readonly maxInput: number;
  /** True if all of its input is in the body. Otherwise it can have any number of tokens. */
  readonly isInputWhole: boolean;
  /**
   * The most output for which the caller asked, over all answers; `undefined` if it set no maximum.
   * Tokens.
   */
  readonly maxOutput: number | undefined;
  /**
   * The most output of the provider, over all answers; `undefined` if the operator set no maximum.
   * Tokens.
   */
  readonly providerMaxOutput: number | undefined;
  /** True if the provider generates the answer even if the caller does not wait for it. */
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
  /** Outputs of recent calls, and inputs of calls whose input was not in the body. */
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
   * The number that covers most of them: the largest, or the second largest of {@link MANY} or
   * more; `undefined` if there are none.
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
 * Estimates tokens, and learns from the tokens that providers state. A key learns only from its own
 * calls: the texts of one caller say nothing about the texts of another, and must not make them
 * more expensive.
 */
export class TokenEstimator {
  readonly #pairs = new RecentMap<Learned>(MAX_PAIRS / 2);

  /**
   * Estimates the use of a call before it is made: its input from its bytes; its output from the
   * maximum that the caller set, else from recent calls of the same key and model.
   */
  estimateExpected(call: EstimatedCall): EstimatedTokens {
    const learned = this.#pairs.get(pairOf(call));
    const output = call.maxOutput ??
      Math.min(recentOutput(learned), call.providerMaxOutput ?? Infinity);
    return { input: inputOf(call, learned), output };
  }

  /**
   * Estimates the use of a call at its end: no more than the maximum that the caller set, unless
   * more was counted.
   *
   * @param counted Tokens of output as its dialect counted them
   */
  estimateUsed(call: EstimatedCall, counted: number): EstimatedTokens {
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
   * @param counted Tokens of output as its dialect counted them; `undefined` if it counted none
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
  const { inputBytes, maxInput, isInputWhole } = call;
  const input = Math.min(Math.ceil(inputBytes * (learned?.inputRatio ?? INPUT_RATIO)), maxInput);
  return isInputWhole ? input : Math.max(input, learned?.inputs.most ?? UNKNOWN_INPUT);
}

function recentOutput(learned: Learned | undefined): number {
  return Math.min(learned?.outputs.most ?? DEFAULT_OUTPUT, MAX_EXPECTED_OUTPUT);
}

const pairOf = ({ provider, model, keyId }: EstimatedCall): string =>
  `${provider}\n${model}\n${keyId}`;
