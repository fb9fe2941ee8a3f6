/**
 * Metrics of amounts and costs by billing class, if any costs are known.
 *
 * @module
 */
import { toNumber } from "../../config/cost.ts";
import { type BillingClass, type ClassAmounts, partsOf } from "../../exchange/billing.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { CallCosts } from "../call_costs.ts";
import type { Counter, Labelled, MetricRegistry } from "./metric_registry.ts";
import { ModelNames } from "./metrics.ts";

/** Labels of amounts. There are as many classes as `exchange/billing.ts` lists. */
const LABELS = ["provider", "model", "class"];

/** Counts amounts and costs by class, for one process. */
export class CostMetrics {
  readonly #amounts: Labelled<Counter>;
  readonly #costs: Labelled<Counter>;
  readonly #unpriced: Labelled<Counter>;
  readonly #models: ModelNames = new ModelNames();

  constructor(registry: MetricRegistry) {
    this.#amounts = registry.counter({
      name: "sallyport_billed_total",
      help:
        "Tokens, calls, characters and milliseconds by billing class, estimated ones included, " +
        "if any costs are known",
      labels: LABELS,
    });
    this.#costs = registry.counter({
      name: "sallyport_cost_total",
      help:
        "Cost by billing class, estimated tokens included; stated is a cost that the provider " +
        "states",
      labels: [...LABELS, "currency"],
    });
    this.#unpriced = registry.counter({
      name: "sallyport_unpriced_total",
      help: "Tokens, calls, characters and milliseconds without a price, by billing class, " +
        "if any costs are known",
      labels: LABELS,
    });
  }

  /** Creates the observer that counts by the prices of a configuration. */
  under(costs: CallCosts): ExchangeObserver {
    return { settled: (record) => this.#count(record, costs) };
  }

  #count(record: ExchangeRecord, costs: CallCosts): void {
    const { usage, provider } = record;
    const cost = costs.of(record);
    if (cost === undefined || usage === undefined || provider === undefined) return;
    const label = this.#models.labelOf(record);
    const add = (counter: Labelled<Counter>, amounts: ClassAmounts) => {
      for (const name in amounts) {
        const amount = amounts[name as BillingClass] ?? 0;
        if (amount > 0) counter(provider, label, name).add(amount);
      }
    };
    for (const { classes } of partsOf(usage)) add(this.#amounts, classes);
    if (cost.unpriced !== undefined) add(this.#unpriced, cost.unpriced);
    for (const [name, amount] of Object.entries(cost.classes)) {
      this.#costs(provider, label, name, costs.currency).add(toNumber(amount));
    }
  }
}
