/**
 * A chart of the last minutes, drawn by uPlot. Its legend shows the values at the pointer, or the
 * latest values.
 *
 * @module
 */
import type { JSX, RefObject } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "./format.ts";
import type { Point } from "./store.ts";

/** One line of a chart. */
export interface Line {
  readonly label: string;
  /** A colour of the style sheet, `1` to `3`. */
  readonly color: 1 | 2 | 3;
  readonly isFilled?: boolean;
  read(point: Point): number | null;
}

const HEIGHT = 148;
/** Steps of the time axis that a clock reader expects. Seconds. */
const STEPS_S: readonly number[] = [1, 2, 5, 10, 15, 30, 60, 120, 300];

function toData(points: readonly Point[], lines: readonly Line[]): uPlot.AlignedData {
  return [points.map(({ at }) => at), ...lines.map(({ read }) => points.map(read))];
}

/** Lists the elements of a legend that have the colours. */
export function swatchesIn(legend: Element | null): Element[] {
  return Array.from(legend?.querySelectorAll("i") ?? []);
}

/** Returns the colour of each element of a legend, by its index. */
export function colorsOf(swatches: () => (Element | null)[]): (index: number) => string {
  return (index) => {
    const swatch = swatches()[index];
    return swatch ? getComputedStyle(swatch).backgroundColor : "";
  };
}

/**
 * Returns the common settings of the axes of all charts. The containing element sets the colours.
 */
export function axisOf(home: HTMLElement): uPlot.Axis {
  return {
    stroke: () => getComputedStyle(home).color,
    grid: { stroke: () => getComputedStyle(home).borderTopColor, width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
    gap: 4,
  };
}

/**
 * Creates a chart. It uses the colours of the legend's elements, which the style sheet sets for
 * light and dark.
 */
/** Returns a line as uPlot draws it. */
export function toSeries(
  { label, isFilled }: { readonly label: string; readonly isFilled?: boolean },
  colorOf: () => string,
): uPlot.Series {
  return {
    label,
    stroke: colorOf,
    ...(isFilled === true &&
      { fill: () => colorOf().replace(/^rgb\((.*)\)$/, "rgba($1, 0.14)") }),
    width: 1.5,
    points: { show: false },
    spanGaps: false,
  };
}

function create(
  home: HTMLElement,
  { lines, format, swatches, onPoint }: {
    lines: readonly Line[];
    format: (value: number) => string;
    swatches: () => (Element | null)[];
    onPoint: (index: number | undefined) => void;
  },
): uPlot {
  const colorOf = colorsOf(swatches);
  const axis = axisOf(home);
  return new uPlot(
    {
      width: Math.max(home.clientWidth, 100),
      height: HEIGHT,
      padding: [8, 30, 0, 0],
      legend: { show: false },
      cursor: {
        drag: { x: false, y: false },
        sync: { key: "traffic" },
        points: { size: 6, width: 1.5 },
        y: false,
      },
      scales: {
        x: { time: false },
        y: { range: (_self, _min, max) => [0, max > 0 ? max * 1.12 : 1] },
      },
      axes: [
        {
          ...axis,
          space: 84,
          size: 20,
          incrs: [...STEPS_S],
          values: (_self, splits) => splits.map((at) => clock(at * 1000)),
        },
        { ...axis, space: 32, size: 52, values: (_self, splits) => splits.map(format) },
      ],
      series: [
        {},
        ...lines.map((each, index) => toSeries(each, () => colorOf(index))),
      ],
      hooks: { setCursor: [(self) => onPoint(self.cursor.idx ?? undefined)] },
    },
    [[], ...lines.map(() => [])],
    home,
  );
}

/**
 * Draws a chart in an element while it is shown, in its width and in the colours of the theme.
 *
 * @param make Draws it
 * @param inputs Values for which it is drawn again when they change
 * @returns References to the element and to the chart
 */
export function usePlot(
  make: (element: HTMLElement) => uPlot,
  inputs: readonly unknown[],
  { height, theme }: { readonly height: number; readonly theme: string },
): { home: RefObject<HTMLDivElement | null>; plot: RefObject<uPlot | null> } {
  const home = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = home.current;
    if (element === null) return;
    const made = plot.current = make(element);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, inputs);
  useEffect(() => plot.current?.redraw(false), [theme]);
  return { home, plot };
}

/** The chart, with its title and its legend. */
export function Chart({ title, lines, points, format, theme }: {
  title: string;
  lines: readonly Line[];
  points: readonly Point[];
  format: (value: number) => string;
  theme: string;
}): JSX.Element {
  const legend = useRef<HTMLSpanElement>(null);
  const [under, setUnder] = useState<number | undefined>(undefined);
  const swatches = () => swatchesIn(legend.current);
  const { home, plot } = usePlot(
    (element) => create(element, { lines, format, swatches, onPoint: setUnder }),
    [],
    { height: HEIGHT, theme },
  );
  useEffect(() => plot.current?.setData(toData(points, lines)), [points]);
  const shown = points[under ?? points.length - 1];
  const value = (line: Line) => {
    const read = shown && line.read(shown);
    return read === undefined || read === null ? "–" : format(read);
  };
  return <ChartCard {...{ title, lines, value, legend, home }} />;
}

/** A card with the title, the legend and the drawing of a chart. */
export function ChartCard<Shown extends Pick<Line, "label" | "color">>(
  { title, time, lines, value, legend, home }: {
    title: string;
    /** The time of the values in the legend. */
    time?: JSX.Element | false;
    lines: readonly Shown[];
    value: (line: Shown) => string;
    legend: RefObject<HTMLSpanElement | null>;
    home: RefObject<HTMLDivElement | null>;
  },
): JSX.Element {
  const heading = useId();
  return (
    <section class="card chart" aria-labelledby={heading}>
      <header>
        <h2 id={heading}>{title}</h2>
        <span class="legend" ref={legend}>
          {time}
          {lines.map((line) => (
            <span key={line.label}>
              <i class={`line-${line.color}`} />
              {line.label} <b>{value(line)}</b>
            </span>
          ))}
        </span>
      </header>
      <div class="plot" ref={home} aria-hidden="true" />
    </section>
  );
}
