/** The tables of metrics, from the metrics that the sources create. */
import { GEN_AI_CONVENTIONS } from "../../src/observe/gen_ai.ts";
import { GEN_AI_LABELS } from "../../src/observe/metrics/gen_ai_metrics.ts";
import { AttributionMetrics } from "../../src/observe/metrics/attribution_metrics.ts";
import { CostMetrics } from "../../src/observe/metrics/cost_metrics.ts";
import { KeyMetrics } from "../../src/observe/metrics/key_metrics.ts";
import { type MetricConfig, MetricRegistry } from "../../src/observe/metrics/metric_registry.ts";
import { Metrics } from "../../src/observe/metrics/metrics.ts";
import { toTable } from "./parts.ts";

/** A registry that records the metrics that are created. */
class ListingRegistry extends MetricRegistry {
  readonly created: MetricConfig[] = [];

  override counter(metric: MetricConfig): ReturnType<MetricRegistry["counter"]> {
    this.created.push(metric);
    return super.counter(metric);
  }

  override histogram(
    metric: MetricConfig,
    bounds: readonly number[],
  ): ReturnType<MetricRegistry["histogram"]> {
    this.created.push(metric);
    return super.histogram(metric, bounds);
  }

  override read(metric: Parameters<MetricRegistry["read"]>[0]): void {
    this.created.push(metric);
    super.read(metric);
  }
}

/**
 * The table of the metrics of exchanges whose names start with the prefix. @param left Labels that
 * are left out of each row
 */
function toMetricsTable(prefix: string, left: readonly string[] = []): string {
  const registry = new ListingRegistry();
  new Metrics(registry);
  new CostMetrics(registry);
  new KeyMetrics(registry);
  new AttributionMetrics(registry);
  return toTable(
    ["metric", "labels", "meaning"],
    registry.created.filter(({ name }) => name.startsWith(prefix)).map((
      { name, help, labels = [] },
    ) => [
      `\`${name}\``,
      labels.filter((label) => !left.includes(label)).map((label) => `\`${label}\``).join(" "),
      help,
    ]),
  );
}

/** @returns The gateway's own metrics of exchanges */
export function makeMetrics(): string {
  return toMetricsTable("sallyport_");
}

/** @returns The metrics of OpenTelemetry's GenAI conventions, with the commit of the conventions */
export function makeGenAi(): string {
  const { repository, commit } = GEN_AI_CONVENTIONS;
  const source = `[\`${repository}\`](https://github.com/${repository}/tree/${commit}/docs/gen-ai)`;
  // Line breaks as the formatter writes them.
  const about = `Names are those of\n${source}\nat commit \`${commit.slice(0, 7)}\`.`;
  return `${about}\n\n${toMetricsTable("gen_ai_", GEN_AI_LABELS)}`;
}
