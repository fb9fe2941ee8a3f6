/**
 * Optional metrics by gateway key. Keys are labelled by their ids, which never change. Names and
 * teams can change, and a changed label would start a new series, so a separate metric has them.
 *
 * @module
 */
import { toNumber } from "../../config/cost.ts";
import { type Concern, concernOf } from "../../errors/outcomes.ts";
import type { ExchangeObserver } from "../../exchange/observer.ts";
import type { ExchangeRecord } from "../../exchange/record.ts";
import type { CallCosts } from "../call_costs.ts";
import type { Counter, Labelled, MetricRegistry } from "./metric_registry.ts";

/** Label shared by all keys beyond the limit. */
const OTHER = "(other)";

/** Settings of one configuration that exchanges are counted with. */
export interface KeyMetricsOptions {
  /** Maximum number of keys that have their own label. */
  readonly maxKeys: number;
  readonly costs: CallCosts;
}

/** Counters of one key. A counter without a count is not shown. */
interface KeySeries {
  readonly exchanges: Readonly<Record<Concern, Counter>>;
  readonly input: Counter;
  readonly output: Counter;
  readonly estimated: Counter;
}

/** Metrics by key, for one process. */
export class KeyMetrics {
  readonly #series = new Map<string, KeySeries>();
  /** The name and the team of each key with its own series, as at its last exchange. */
  readonly #names = new Map<string, readonly [name: string, team: string]>();
  readonly #createSeries: (key: string) => KeySeries;
  readonly #refused: Labelled<Counter>;
  readonly #cost: Labelled<Counter>;

  constructor(registry: MetricRegistry) {
    const counter = (name: string, help: string, ...labels: string[]) =>
      registry.counter({ name: `sallyport_key_${name}_total`, help, labels: ["key", ...labels] });
    const exchanges = counter("exchanges", "Exchanges of a gateway key that have ended", "concern");
    this.#refused = counter(
      "limits_refused",
      "Exchanges of a gateway key that a limit refused",
      "limit",
    );
    const tokens = counter("tokens", "Tokens of a gateway key that providers stated", "type");
    const estimated = counter(
      "estimated_tokens",
      "Tokens of a gateway key that the gateway estimated",
    );
    const costHelp =
      "Cost of the calls of a gateway key, with estimated tokens, for models that have a price";
    this.#cost = counter("cost", costHelp, "currency");
    registry.read({
      name: "sallyport_key_info",
      help: "Always 1. The labels have the name and the team of each gateway key with metrics",
      type: "gauge",
      aggregation: "max",
      labels: ["key", "name", "team"],
      read: () => Array.from(this.#names, ([key, names]) => [[key, ...names], 1]),
    });
    this.#createSeries = (key) => ({
      exchanges: {
        nobody: exchanges(key, "nobody"),
        caller: exchanges(key, "caller"),
        operator: exchanges(key, "operator"),
      },
      input: tokens(key, "input"),
      output: tokens(key, "output"),
      estimated: estimated(key),
    });
  }

  /**
   * Creates the observer that counts exchanges under a configuration. Counts of earlier
   * configurations remain.
   */
  under({ maxKeys, costs }: KeyMetricsOptions): ExchangeObserver {
    return {
      settled: (record) => {
        const { keyId, keyName = "", team = "", limit } = record;
        if (keyId === undefined) return;
        const key = this.#series.has(keyId) || this.#series.size < maxKeys ? keyId : OTHER;
        count(this.#seriesOf(key), record);
        if (key !== OTHER) this.#names.set(key, [keyName, team]);
        if (limit !== undefined) this.#refused(key, limit).add();
        const amount = costs.of(record)?.amount;
        if (amount !== undefined) this.#cost(key, costs.currency).add(toNumber(amount));
      },
    };
  }

  #seriesOf(key: string): KeySeries {
    let series = this.#series.get(key);
    if (series === undefined) this.#series.set(key, series = this.#createSeries(key));
    return series;
  }
}

function count(series: KeySeries, record: ExchangeRecord): void {
  const { usage, isEstimated } = record;
  series.exchanges[concernOf(record)].add();
  if (usage === undefined) return;
  if (isEstimated === true) return series.estimated.add(usage.total);
  const { total, input = 0, output = total - input } = usage;
  series.input.add(input);
  series.output.add(output);
}
