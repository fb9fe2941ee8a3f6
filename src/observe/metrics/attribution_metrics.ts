/**
 * Optional metrics by the values of attribution. Callers choose the values, so their number is
 * bounded, and only dimensions that the configuration lists are counted.
 *
 * @module
 */
import type { Dimension } from "../../config/dimensions.ts";
import { toNumber } from "../../config/cost.ts";
import { concernOf } from "../../errors/outcomes.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import type { CallCosts } from "../call_costs.ts";
import type { Counter, Labelled, MetricRegistry } from "./metric_registry.ts";

/** Values of a dimension that have their own label. */
const MAX_VALUES = 100;
/** Label shared by all further values. */
const OTHER = "(other)";

/** Metrics by attribution, for one process. */
export class AttributionMetrics {
  readonly #exchanges: Labelled<Counter>;
  readonly #tokens: Labelled<Counter>;
  readonly #cost: Labelled<Counter>;
  readonly #values = new Map<Dimension, Set<string>>();

  constructor(registry: MetricRegistry) {
    const labels = ["dimension", "value"];
    this.#exchanges = registry.counter({
      name: "sallyport_attributed_exchanges_total",
      help: "Exchanges that have ended, by a value of attribution",
      labels: [...labels, "concern"],
    });
    this.#tokens = registry.counter({
      name: "sallyport_attributed_tokens_total",
      help: "Tokens by a value of attribution, with estimated ones",
      labels,
    });
    this.#cost = registry.counter({
      name: "sallyport_attributed_cost_total",
      help: "Cost by a value of attribution, with estimated tokens, for models that have a price",
      labels: [...labels, "currency"],
    });
  }

  /** Creates the observer that counts exchanges under a configuration. */
  under(dimensions: readonly Dimension[], costs: CallCosts): ExchangeObserver {
    return {
      settled: (record) => {
        const { attribution, usage } = record;
        if (attribution === undefined) return;
        const amount = costs.of(record)?.amount;
        for (const dimension of dimensions) {
          const value = attribution[dimension];
          if (value === undefined) continue;
          const label = this.#labelOf(dimension, value);
          this.#exchanges(dimension, label, concernOf(record)).add();
          if (usage !== undefined) this.#tokens(dimension, label).add(usage.total);
          if (amount === undefined) continue;
          this.#cost(dimension, label, costs.currency).add(toNumber(amount));
        }
      },
    };
  }

  #labelOf(dimension: Dimension, value: string): string {
    let known = this.#values.get(dimension);
    if (known === undefined) this.#values.set(dimension, known = new Set());
    if (known.has(value)) return value;
    if (known.size >= MAX_VALUES) return OTHER;
    known.add(value);
    return value;
  }
}
