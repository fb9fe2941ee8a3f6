/**
 * A chart of the history, drawn by uPlot. Its legend shows the values at the pointer, or the sums of
 * the whole time. Times are in UTC.
 *
 * @module
 */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { HistoryPoint, HistoryReport, HistorySums } from "../../usage/history/report.ts";
import { axisOf, ChartCard, colorsOf, swatchesIn, toSeries, usePlot } from "./chart.tsx";

/** One line of a chart. */
export interface HistoryLine {
  readonly label: string;
  /** A colour of the style sheet. */
  readonly color: 1 | 2 | 3;
  readonly isFilled?: boolean;
  read(sums: HistorySums): number | null;
}

const HEIGHT = 160;
/** A step from which the axis shows days. Seconds. */
const DAYS_FROM = 3600;
/** Distances of the marks of the axis: whole minutes, hours and days. Seconds. */
const DISTANCES = [
  ...[60, 300, 600, 900, 1800],
  ...[3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 604_800],
];

/** Formats the start of a step: the time of day, or the day. */
export function stepLabel(at: number, step: number): string {
  const isDay = step >= DAYS_FROM;
  return new Date(at).toLocaleString("en", {
    timeZone: "UTC",
    ...(isDay
      ? { month: "short", day: "numeric" }
      : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
  });
}

/** Returns the steps that are over: the others would look like a fall. */
function toWhole({ points }: HistoryReport): readonly HistoryPoint[] {
  return points.slice(0, -1);
}

function toData(report: HistoryReport, lines: readonly HistoryLine[]): uPlot.AlignedData {
  const points = toWhole(report);
  return [
    points.map(({ at }) => Date.parse(at) / 1000),
    ...lines.map(({ read }) => points.map(read)),
  ];
}

interface Drawn {
  readonly lines: readonly HistoryLine[];
  readonly report: HistoryReport;
  readonly format: (value: number) => string;
}

function create(
  home: HTMLElement,
  { lines, report, format }: Drawn,
  swatches: () => (Element | null)[],
  onPoint: (index: number | undefined) => void,
): uPlot {
  const colorOf = colorsOf(swatches);
  const axis = axisOf(home);
  const { step } = report;
  const toTime = (splits: number[]) => splits.map((at) => stepLabel(at * 1000, step));
  return new uPlot(
    {
      width: Math.max(home.clientWidth, 100),
      height: HEIGHT,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, sync: { key: "history" }, y: false },
      scales: {
        x: { time: false },
        y: { range: (_self, _min, max) => [0, max > 0 ? max * 1.12 : 1] },
      },
      axes: [
        { ...axis, space: 72, size: 20, incrs: DISTANCES, values: (_self, all) => toTime(all) },
        { ...axis, space: 32, size: 56, values: (_self, splits) => splits.map(format) },
      ],
      series: [
        {},
        ...lines.map((each, index) => toSeries(each, () => colorOf(index))),
      ],
      hooks: { setCursor: [(self) => onPoint(self.cursor.idx ?? undefined)] },
    },
    toData(report, lines),
    home,
  );
}

/** The chart, with its title and its legend. */
export function HistoryChart(
  { title, theme, ...drawn }: Drawn & { title: string; theme: string },
): JSX.Element {
  const { lines, report, format } = drawn;
  const legend = useRef<HTMLSpanElement>(null);
  const [under, setUnder] = useState<number | undefined>(undefined);
  const swatches = () => swatchesIn(legend.current);
  const { home, plot } = usePlot(
    (element) => create(element, drawn, swatches, setUnder),
    [report.step],
    { height: HEIGHT, theme },
  );
  useEffect(() => plot.current?.setData(toData(report, lines)), [report]);
  const point = under === undefined ? undefined : toWhole(report)[under];
  const value = ({ read }: HistoryLine) => {
    const found = read(point ?? report.totals);
    return found === null ? "–" : format(found);
  };
  const at = point && Date.parse(point.at);
  const time = at !== undefined && (
    <span>
      {stepLabel(at, 0)}
      {report.step >= DAYS_FROM && `, ${stepLabel(at, report.step)}`}
    </span>
  );
  return <ChartCard {...{ title, time, lines, value, legend, home }} />;
}
