/** A chart of the results, for the README. */
import { init, use } from "echarts/core";
import { BarChart, LineChart } from "echarts/charts";
import { GridComponent, LegendComponent, TitleComponent } from "echarts/components";
import { LabelLayout } from "echarts/features";
import { SVGRenderer } from "echarts/renderers";
import { REFERENCE } from "./load.ts";
import type { MeasurementName } from "./names.ts";
import type { Result, Row } from "./session.ts";

use([
  BarChart,
  LabelLayout,
  LineChart,
  GridComponent,
  LegendComponent,
  TitleComponent,
  SVGRenderer,
]);

const WIDTH = 900;
const ROW_HEIGHT = 34;
const CURVE_HEIGHT = 260;
const TOP = 70;
const GAP = 90;
const LEFT = 130;
const PLAIN_COLOR = "#3b6fb6";
const STREAMED_COLOR = "#e08a3c";
/** Each runtime has one colour. The gateway's line is solid, the bare one's dashed. */
const CURVE_COLORS: readonly (readonly [RegExp, string])[] = [
  [/bun/, "#c0504d"],
  [/deno/, "#3b6fb6"],
  [/node/, "#4f9d69"],
  [/./, "#6b7280"],
];

/** Floors are not shown: they are not usable as proxies. */
const isShown = ({ subject, objections }: Row) =>
  subject !== REFERENCE && !subject.startsWith("floor ") && objections.length === 0;

function barsOf(
  results: readonly Result[],
  name: MeasurementName,
  subjects: readonly string[],
): (number | null)[] {
  const rows = results.find((result) => result.name === name)?.rows.filter(isShown) ?? [];
  return subjects.map((subject) => {
    const median = rows.find((row) => row.subject === subject)?.spread.median;
    return median === undefined ? null : Math.round(median);
  });
}

/** Throughput of all measured subjects, plain and streamed. */
function toBars(results: readonly Result[], subjects: readonly string[], height: number): object {
  const label = {
    show: true,
    position: "right",
    formatter: ({ value }: { value: number }) => value.toLocaleString("en"),
  };
  const series = (name: string, measurement: MeasurementName, color: string) => ({
    type: "bar",
    name,
    color,
    label,
    data: barsOf(results, measurement, subjects),
  });
  return {
    grid: [{ left: LEFT, right: 70, top: TOP, height }],
    xAxis: [{
      type: "value",
      name: "requests/s, one core, 32 connections",
      nameLocation: "middle",
      nameGap: 28,
    }],
    yAxis: [{ type: "category", data: subjects, inverse: true }],
    series: [series("plain", "plain", PLAIN_COLOR), series("streamed", "streamed", STREAMED_COLOR)],
  };
}

/** Throughput by number of connections. */
function toCurves(
  curve: readonly Result[],
  top: number,
): { grid: object; xAxis: object; yAxis: object; series: object[] } {
  const names = [
    ...new Set(curve.flatMap(({ rows }) => rows.filter(isShown).map(({ subject }) => subject))),
  ];
  const valueAt = (result: Result, name: string) => {
    const median = result.rows.filter(isShown).find(({ subject }) => subject === name)?.spread
      .median;
    return median === undefined ? null : Math.round(median);
  };
  const series = names.map((name) => ({
    type: "line",
    name,
    color: CURVE_COLORS.find(([pattern]) => pattern.test(name))?.[1],
    xAxisIndex: 1,
    yAxisIndex: 1,
    data: curve.map((result) => valueAt(result, name)),
    lineStyle: name.startsWith("bare") ? { type: "dashed" } : {},
    endLabel: { show: true, formatter: "{a}" },
    labelLayout: { moveOverlap: "shiftY" },
  }));
  return {
    grid: { left: LEFT, right: 150, top, height: CURVE_HEIGHT },
    xAxis: {
      type: "category",
      gridIndex: 1,
      data: curve.map(({ at }) => String(at)),
      name: "connections (plain requests/s)",
      nameLocation: "middle",
      nameGap: 28,
    },
    yAxis: { type: "value", gridIndex: 1 },
    series,
  };
}

/**
 * Draws the results that can be quoted.
 *
 * @param results The results of a run
 * @param caption The measurement and the machine
 * @returns SVG
 */
export function drawChart(results: readonly Result[], caption: string): string {
  const bars = results.filter(({ name }) => name === "plain" || name === "streamed");
  const isAnywhere = (name: string) =>
    bars.some(({ rows }) => rows.some((row) => row.subject === name && isShown(row)));
  const subjects = [...new Set(bars.flatMap(({ rows }) => rows.map(({ subject }) => subject)))]
    .filter(isAnywhere);
  const curve = results.filter(({ name }) => name === "connections");
  const barHeight = Math.max(1, subjects.length) * ROW_HEIGHT;
  const curveTop = TOP + barHeight + GAP;
  const height = TOP + barHeight + GAP + (curve.length > 0 ? CURVE_HEIGHT + GAP : 0);
  const chart = init(null, null, { renderer: "svg", ssr: true, width: WIDTH, height });
  const { grid, xAxis, yAxis, series } = toBars(results, subjects, barHeight) as Record<
    string,
    object[]
  >;
  const curves = curve.length > 0 ? toCurves(curve, curveTop) : undefined;
  chart.setOption({
    animation: false,
    backgroundColor: "#ffffff",
    title: { text: "The same provider, seen through each", subtext: caption, left: "center" },
    legend: { data: ["plain", "streamed"], top: TOP + barHeight + GAP - 40 },
    grid: [...grid ?? [], ...(curves ? [curves.grid] : [])],
    xAxis: [...xAxis ?? [], ...(curves ? [curves.xAxis] : [])],
    yAxis: [...yAxis ?? [], ...(curves ? [curves.yAxis] : [])],
    series: [...series ?? [], ...curves?.series ?? []],
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg + "\n";
}
