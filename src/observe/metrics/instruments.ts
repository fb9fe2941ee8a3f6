/**
 * Counters and histograms whose labels are resolved once, so that a count costs some ten nanoseconds. prom-client's own
 * look their labels up each time (1 µs a histogram, measured on Node 26 and Deno). prom-client still adds the values of
 * several processes up and writes them as text, see `metrics_text.ts`.
 *
 * @module
 */

/** Method by which prom-client combines the values of several processes. */
export type Aggregator = "sum" | "max" | "min" | "average";

/** One value of a metric. */
export interface SeriesValue {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  /** Name of the value, where it differs from the metric's: for the parts of a histogram. */
  readonly metricName?: string;
}

/** A metric in prom-client's JSON format. */
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

  /** @param count The number to add; a negative one, which a provider may have stated by mistake, is ignored */
  add(count: number): void {
    if (count > 0) this.value += count;
  }
}

/** Counts of sizes in buckets: one series of a histogram. */
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
   * Lists the values in prom-client's format.
   *
   * @param name Name of the metric
   * @param labels Labels of this series
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

/** Returns the series with these values of the labels, in the order of their names; creates it if it is new. */
export type SeriesOf<Child> = (...values: string[]) => Child;

/** All metrics of one process, in the order in which they were created. */
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
   * @param metric A metric that is read on demand
   * @param type `counter` if it only grows
   * @param read Reads its values, each with the values of its labels; a number if there are no labels; `undefined` if
   *   it can't be read
   * @param aggregator How the values of several processes become one
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

  /** Returns all metrics with their current values. */
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
