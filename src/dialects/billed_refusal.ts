/**
 * Refusals whose input a provider bills. Azure does so for a 400 of its content filter and for a 408
 * (https://learn.microsoft.com/azure/ai-foundry/openai/faq). They state no tokens.
 *
 * @module
 */
import { AnswerBeginning } from "./answer_beginning.ts";
import type { AnswerMeter, Dialect } from "./dialect.ts";
import { OPAQUE } from "./opaque.ts";

const FILTERED = /"code"\s*:\s*"content_filter"/;
const ANYTHING = /^/;

/** Watches a refusal. One with a cost has an output of 0. The others have none. */
class RefusalMeter extends AnswerBeginning implements AnswerMeter {
  readonly usage = undefined;
  readonly #pattern: RegExp;

  constructor(pattern: RegExp) {
    super();
    this.#pattern = pattern;
  }

  get outputTokens(): number | undefined {
    return this.#pattern.test(this.text) ? 0 : undefined;
  }
}

/** Makes the dialect of refusals that have a cost if a pattern matches. */
function createRefusals(pattern: RegExp): Dialect {
  return {
    ...OPAQUE,
    createMeter: () => new RefusalMeter(pattern),
    readUsage: () => undefined,
    countOutput(answer) {
      const meter = new RefusalMeter(pattern);
      meter.push(answer);
      return meter.outputTokens;
    },
  };
}

const FILTER_REFUSALS = createRefusals(FILTERED);
const TIMEOUTS = createRefusals(ANYTHING);

/**
 * Returns the dialect of refusals with this status, if such a refusal can have a cost.
 *
 * @param isAzure True if the provider is Azure, which alone bills a 408
 */
export function refusalsOf(status: number, isAzure: boolean): Dialect | undefined {
  if (status === 400) return FILTER_REFUSALS;
  return status === 408 && isAzure ? TIMEOUTS : undefined;
}
