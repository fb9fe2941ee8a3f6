/**
 * Counts with their labels resolved once: what is counted in every exchange costs some ten nanoseconds a count, where
 * prom-client's own look their labels up each time (1 µs a histogram, measured on Node 26 and Deno). prom-client adds
 * them up and writes them out, see `metrics_text.ts`.
 *
 * @module
 */

/** How prom-client puts the values of several processes together. */
export type Aggregator = "sum" | "max" | "min" | "average";

/** One value of a metric. */
export interface SeriesValue {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  /** Where it differs from the metric's own: the parts of a histogram. */
  readonly metricName?: string;
}

/** A metric as prom-client's JSON has it. */
export interface MetricJson {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly aggregator: Aggregator;
  readonly values: readonly SeriesValue[];
}

/** A count that only grows. */
export class Tally {
  value = 0;

  /** @param count How many more; less than nothing is a provider's odd number, and counts for nothing */
  add(count: number): void {
    if (count > 0) this.value += count;
  }
}

/** How often which size came. */
export class Buckets {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;

  /** @param bounds Upper bounds, growing */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  /** @param size In the unit of the metric */
  observe(size: number): void {
    const bounds = this.#bounds;
    let index = 0;
    while (index < bounds.length && size > (bounds[index] ?? Infinity)) index++;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#sum += size;
  }

  /**
   * As prom-client has it.
   *
   * @param name Of the metric
   * @param labels Of this series
   */
  *values(name: string, labels: Readonly<Record<string, string>>): Generator<SeriesValue> {
    let below = 0;
    for (const [index, count] of this.#counts.entries()) {
      below += count;
      yield {
        labels: { ...labels, le: this.#bounds[index] ?? "+Inf" },
        value: below,
        metricName: `${name}_bucket`,
      };
    }
    yield { labels, value: this.#sum, metricName: `${name}_sum` };
    yield { labels, value: below, metricName: `${name}_count` };
  }
}

/** Name and meaning of a metric, and its labels. */
export interface Metric<Label extends string = never> {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly Label[];
}

/** Makes, or finds, the series with these values of the labels, in the order of their names. */
export type SeriesOf<Child> = (...values: string[]) => Child;

/** All metrics of one process, in the order in which they were made. */
export class Instruments {
  readonly #metrics: (() => MetricJson)[] = [];

  /** @param metric A count that only grows; its name ends in `_total` */
  counter(metric: Metric<string>): SeriesOf<Tally> {
    return this.#family(metric, "counter", () => new Tally(), ({ value }, labels) => [{ labels, value }]);
  }

  /**
   * @param metric A distribution
   * @param bounds Upper bounds of its buckets, growing
   */
  histogram(metric: Metric<string>, bounds: readonly number[]): SeriesOf<Buckets> {
    return this.#family(
      metric,
      "histogram",
      () => new Buckets(bounds),
      (buckets, labels) => buckets.values(metric.name, labels),
    );
  }

  /**
   * @param metric Something that is read when it is asked for
   * @param type Whether it only grows
   * @param read Its values, each with those of the labels; a number where there are no labels; nothing where it can't
   *   be read
   * @param aggregator How several processes' values become one
   */
  read(
    { name, help, labels: names = [] }: Metric<string>,
    type: "counter" | "gauge",
    read: () => number | undefined | Iterable<readonly [values: readonly string[], value: number]>,
    aggregator: Aggregator = "sum",
  ): void {
    this.#metrics.push(() => {
      const found = read();
      const all = typeof found === "number" ? [[[], found] as const] : found ?? [];
      const values = Array.from(all, ([given, value]) => ({ labels: toLabels(names, given), value }));
      return { name, help, type, aggregator, values };
    });
  }

  /** What was counted. */
  toJson(): MetricJson[] {
    return this.#metrics.map((metric) => metric());
  }

  #family<Child>(
    { name, help, labels: names = [] }: Metric<string>,
    type: MetricJson["type"],
    make: () => Child,
    show: (child: Child, labels: Readonly<Record<string, string>>) => Iterable<SeriesValue>,
  ): SeriesOf<Child> {
    const series = new Map<string, { child: Child; labels: Readonly<Record<string, string>> }>();
    this.#metrics.push(() => {
      const values = Array.from(series.values(), ({ child, labels }) => [...show(child, labels)]).flat();
      return { name, help, type, aggregator: "sum", values };
    });
    return (...values) => {
      const id = JSON.stringify(values);
      let found = series.get(id);
      if (found === undefined) series.set(id, found = { child: make(), labels: toLabels(names, values) });
      return found.child;
    };
  }
}

function toLabels(names: readonly string[], values: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name, index) => [name, values[index] ?? ""]));
}
