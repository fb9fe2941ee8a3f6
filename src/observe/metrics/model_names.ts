/**
 * Names of models that may be labels: a caller can name anything, and every value of a label takes memory for good.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";

/** Limit of models with a label of their own; any further one is `other`. */
export const MAX_MODELS = 100;
/** Names as providers give them, such as `meta-llama/Llama-3.3-70B-Instruct:free`. */
const NAME = /^[\w.:/@+-]{1,100}$/;

/** Names of models that providers have answered: a provider's 200 makes the requested name a label. */
export class ModelNames {
  readonly #known = new Set<string>();

  /**
   * @param record An exchange
   * @returns Its model; `other` if no provider has answered it so far; `none` if the request named none
   */
  labelOf({ model, status, replica }: Pick<ExchangeRecord, "model" | "status" | "replica">): string {
    if (model === undefined) return "none";
    if (this.#known.has(model)) return model;
    const isAnswered = status === 200 && replica !== undefined;
    if (!isAnswered || this.#known.size >= MAX_MODELS || !NAME.test(model)) return "other";
    this.#known.add(model);
    return model;
  }
}
