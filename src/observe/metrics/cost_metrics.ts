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

/** The counters of one provider and model, by class. */
interface ModelSeries {
  readonly amounts: (name: string) => Counter;
  readonly unpriced: (name: string) => Counter;
  readonly costs: (name: string) => Counter;
}

/** Looks counters up by class. Each one's labels are resolved once: that takes a microsecond. */
function byClass(create: (name: string) => Counter): (name: string) => Counter {
  const found = new Map<string, Counter>();
  return (name) => {
    let counter = found.get(name);
    if (counter === undefined) found.set(name, counter = create(name));
    return counter;
  };
}

/** Counts amounts and costs by class, for one process. */
export class CostMetrics {
  readonly #amounts: Labelled<Counter>;
  readonly #costs: Labelled<Counter>;
  readonly #unpriced: Labelled<Counter>;
  readonly #models: ModelNames = new ModelNames();
  readonly #series = new Map<string, ModelSeries>();

  constructor(registry: MetricRegistry) {
    this.#amounts = registry.counter({
      name: "sallyport_billed_total",
      help: "Amounts by billing class: tokens, calls, characters or milliseconds, with estimated " +
        "ones. Counted if the configuration has prices or statesCost",
      labels: LABELS,
    });
    this.#costs = registry.counter({
      name: "sallyport_cost_total",
      help: "Cost by billing class, with estimated tokens. The class stated is a cost that the " +
        "provider states",
      labels: [...LABELS, "currency"],
    });
    this.#unpriced = registry.counter({
      name: "sallyport_unpriced_total",
      help:
        "Amounts without a price by billing class: tokens, calls, characters or milliseconds. " +
        "Counted if the configuration has prices or statesCost",
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
    const series = this.#seriesOf(provider, this.#models.labelOf(record), costs.currency);
    for (const { classes } of partsOf(usage)) add(series.amounts, classes);
    if (cost.unpriced !== undefined) add(series.unpriced, cost.unpriced);
    for (const name in cost.classes) {
      const amount = cost.classes[name as keyof typeof cost.classes];
      if (amount !== undefined) series.costs(name).add(toNumber(amount));
    }
  }

  #seriesOf(provider: string, model: string, currency: string): ModelSeries {
    const name = `${provider} ${model} ${currency}`;
    let series = this.#series.get(name);
    if (series === undefined) {
      series = {
        amounts: byClass((each) => this.#amounts(provider, model, each)),
        unpriced: byClass((each) => this.#unpriced(provider, model, each)),
        costs: byClass((each) => this.#costs(provider, model, each, currency)),
      };
      this.#series.set(name, series);
    }
    return series;
  }
}

function add(counterOf: (name: string) => Counter, amounts: ClassAmounts): void {
  for (const name in amounts) {
    const amount = amounts[name as BillingClass];
    if (amount) counterOf(name).add(amount);
  }
}
