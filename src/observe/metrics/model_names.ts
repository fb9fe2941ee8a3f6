/**
 * Which names of models may be labels: a caller can name anything, and a label that has no bound costs memory for ever.
 *
 * @module
 */
import type { ExchangeRecord } from "../../exchange/record.ts";

/** What is named apart at most; every further one is `other`. */
export const MAX_MODELS = 100;
/** Names as providers give them, such as `meta-llama/Llama-3.3-70B-Instruct:free`. */
const NAME = /^[\w.:/@+-]{1,100}$/;

/** The names that providers have answered: a provider's 200 makes the name that was asked for a label. */
export class ModelNames {
  readonly #known = new Set<string>();

  /**
   * @param record An exchange
   * @returns Its model, `other` for one that no provider has answered so far, `none` where none was named
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
