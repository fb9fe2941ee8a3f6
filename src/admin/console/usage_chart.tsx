/**
 * A chart of usage over time, drawn by uPlot: a stacked bar for each hour, day or month.
 *
 * @module
 */
import type { JSX } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { estimated } from "./format.ts";
import { axisOf, colorsOf, swatchesIn, usePlot } from "./chart.tsx";
import type { TimeDimension } from "../../usage/query.ts";
import { MAX_SERIES, type Series } from "./usage_data.ts";

const HEIGHT = 220;

const FORMATS: Readonly<Record<TimeDimension, Intl.DateTimeFormatOptions>> = {
  hour: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  day: { month: "short", day: "numeric" },
  month: { month: "short", year: "numeric" },
};

/** Returns the display name of an hour, day or month. */
export function bucketLabel(name: string, step: TimeDimension): string {
  return new Date(name).toLocaleString("en", { ...FORMATS[step], timeZone: "UTC" });
}

/** Returns the value of a series in a bucket. Each series has a value for each bucket. */
function valueAt(values: readonly number[], bucket: number): number {
  const value = values[bucket];
  if (value === undefined) throw new Error(`Cannot draw the chart: no value in bucket ${bucket}`);
  return value;
}

/** Adds up the series as a stack: uPlot draws the highest first, and each lower one over it. */
function toStack(series: readonly Series[], length: number): number[][] {
  const stack: number[][] = [];
  let below: readonly number[] = Array.from({ length }, () => 0);
  for (const { values } of series) {
    const upTo = below.map((value, index) => value + valueAt(values, index));
    stack.unshift(upTo);
    below = upTo;
  }
  return stack;
}

interface Drawn {
  readonly buckets: readonly string[];
  readonly step: TimeDimension;
  readonly series: readonly Series[];
  readonly format: (value: number) => string;
}

function create(
  home: HTMLElement,
  { buckets, step, series, format }: Drawn,
  swatches: () => (Element | null)[],
  onPoint: (index: number | undefined) => void,
): uPlot {
  const colorOf = colorsOf(swatches);
  const axis = axisOf(home);
  const { bars } = uPlot.paths;
  const paths = bars?.({ size: [0.84, 56], gap: 1 });
  return new uPlot(
    {
      width: Math.max(home.clientWidth, 100),
      height: HEIGHT,
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: {
        x: { time: false, range: () => [-0.5, buckets.length - 0.5] },
        y: { range: (_self, _min, max) => [0, max > 0 ? max * 1.08 : 1] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          space: step === "hour" ? 96 : 64,
          size: 22,
          incrs: [1, 2, 3, 4, 6, 7, 12, 14, 24, 28, 48, 72, 168, 336, 720],
          values: (_self, splits) =>
            splits.map((at) => {
              const name = buckets[at];
              return name === undefined ? "" : bucketLabel(name, step);
            }),
        },
        { ...axis, space: 36, size: 56, values: (_self, splits) => splits.map(format) },
      ],
      series: [
        {},
        ...series.map((_, index): uPlot.Series => ({
          fill: () => colorOf(series.length - 1 - index),
          width: 0,
          points: { show: false },
          ...(paths !== undefined && { paths }),
        })),
      ],
      hooks: { setCursor: [(self) => onPoint(self.cursor.idx ?? undefined)] },
    },
    [buckets.map((_, index) => index), ...toStack(series, buckets.length)],
    home,
  );
}

const sumOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);

/** The chart, with its title and its legend: the values at the pointer, or the sums. */
export function UsageChart(
  { title, theme, ...drawn }: Drawn & { title: string; theme: string },
): JSX.Element {
  const { buckets, step, series, format } = drawn;
  const legend = useRef<HTMLUListElement>(null);
  const heading = useId();
  const [under, setUnder] = useState<number | undefined>(undefined);
  const swatches = () => swatchesIn(legend.current);
  const { home } = usePlot(
    (element) => create(element, drawn, swatches, setUnder),
    [buckets, series, format],
    { height: HEIGHT, theme },
  );
  // The pointer can be in a bucket of an earlier, longer chart.
  const at = under === undefined ? undefined : buckets[under];
  return (
    <section class="card usage-chart" aria-labelledby={heading}>
      <header>
        <h2 id={heading}>{title}</h2>
        <span class="hint">
          {at === undefined ? "sums of the whole time, in UTC" : `${bucketLabel(at, step)}, UTC`}
        </span>
      </header>
      <div class="plot" ref={home} aria-hidden="true" />
      <ul class="legend" ref={legend} aria-label="Series">
        {series.map(({ id, label, isOther, isEstimated, values }, index) => (
          <li key={id}>
            <i class={isOther || index >= MAX_SERIES ? "series-other" : `series-${index + 1}`} />
            <span class="label">{label}</span>{" "}
            <b>
              {under === undefined || at === undefined
                ? estimated(format(sumOf(values)), isEstimated)
                : format(valueAt(values, under))}
            </b>
          </li>
        ))}
      </ul>
    </section>
  );
}
