/**
 * Metric of amounts without a price, if any prices are configured.
 *
 * @module
 */
import type { PriceBook } from "../../config/price_book.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import type { Counter, Labelled, MetricRegistry } from "./metric_registry.ts";
import { ModelNames } from "./metrics.ts";

/** Counts amounts without a price, for one process. */
export class UnpricedMetrics {
  readonly #unpriced: Labelled<Counter>;
  readonly #models: ModelNames = new ModelNames();

  constructor(registry: MetricRegistry) {
    this.#unpriced = registry.counter({
      name: "sallyport_unpriced_total",
      help: "Tokens, calls, characters and milliseconds without a price, by billing class, " +
        "if any prices are configured",
      labels: ["provider", "model", "class"],
    });
  }

  /** Creates the observer that counts by the prices of a configuration. */
  under(prices: PriceBook): ExchangeObserver {
    return {
      settled: (record) => {
        const { usage, provider, model } = record;
        if (usage === undefined || provider === undefined || model === undefined) return;
        const at = record.startedAt + record.durationMs;
        const unpriced = prices.unpricedOf(usage, { provider, model }, at);
        if (unpriced === undefined) return;
        const label = this.#models.labelOf(record);
        for (const [name, amount] of Object.entries(unpriced)) {
          if (amount > 0) this.#unpriced(provider, label, name).add(amount);
        }
      },
    };
  }
}
