/**
 * `sallyport usage history`: the calls of a team, a key or a provider over time, and since when
 * they fail. Its source is the same as the source of usage.
 *
 * @module
 */
import * as v from "valibot";
import { HistoryQuerySchema, HistoryReportSchema } from "../admin/api/history.ts";
import { loadConfig } from "../serve/load_config.ts";
import type {
  HistoryEnd,
  HistoryReport,
  HistoryShare,
  HistorySums,
} from "../usage/history/report.ts";
import { collect } from "./admin_client.ts";
import { CommandLineError, print } from "./command.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns, toPlain } from "./table.ts";
import { readQuery, toCommandLineError, toTexts, withUsage } from "./usage_source.ts";

const ASKED = ["key", "team", "provider", "last"] as const;
/** Number of decimals of a cost in the table. JSON has more. */
const DECIMALS = 4;

async function readReport(parts: AsyncIterable<string>, origin: string): Promise<HistoryReport> {
  const text = await collect(parts);
  try {
    return v.parse(HistoryReportSchema, JSON.parse(text));
  } catch {
    throw new CommandLineError(
      `the server at ${origin} is no gateway of this version: restart the gateway after an update`,
    );
  }
}

const toMinute = (time: string): string => time.slice(0, 16).replace("T", " ");
const toMs = (ms: number | null): string => ms === null ? "-" : `${ms} ms`;

function toCells({ calls, errors, refused, tokens, cost, p50, p95 }: HistorySums): string[] {
  const counts = [calls, errors, refused, tokens].map(String);
  return [...counts, cost.toFixed(DECIMALS), toMs(p50), toMs(p95)];
}

function toTitles(currency: string): string[] {
  return ["CALLS", "ERRORS", "REFUSED", "TOKENS", `COST ${currency}`, "P50", "P95"];
}

const isNumber = (column: number): boolean => column > 0;

function toSharesTable(title: string, shares: readonly HistoryShare[], currency: string): string {
  const cells = shares.map((
    share,
  ) => [toPlain(share.id === "" ? "-" : share.id), ...toCells(share)]);
  return alignColumns([title, ...toTitles(currency)], cells, isNumber);
}

function toEndsTable(ends: readonly HistoryEnd[]): string {
  const cells = ends.map(({ end, concern, calls, since, last }) => [
    toPlain(end.replaceAll("_", " ")),
    concern,
    String(calls),
    toMinute(since),
    toMinute(last),
  ]);
  return alignColumns(["END", "CONCERNS", "CALLS", "SINCE", "LAST"], cells);
}

function toText(report: HistoryReport): string {
  const { from, to, currency, points, ends, teams, keys, providers } = report;
  const period = `${toMinute(from)} to ${toMinute(to)} UTC`;
  const used = points.filter(({ calls }) => calls > 0);
  if (used.length === 0) return `no calls from ${period}`;
  const steps = used.map((point) => [toMinute(point.at), ...toCells(point)]);
  return [
    period,
    alignColumns(["TIME", ...toTitles(currency)], steps, isNumber),
    ...(ends.length === 0 ? [] : [toEndsTable(ends)]),
    toSharesTable("TEAM", teams, currency),
    toSharesTable("KEY", keys, currency),
    toSharesTable("PROVIDER", providers, currency),
  ].join("\n\n");
}

/**
 * Shows the history.
 *
 * @throws {CommandLineError} For a mistake in the command, or if the history can't be read
 */
export async function usageHistoryCommand(options: CommandOptions): Promise<void> {
  const texts = toTexts(options, ASKED);
  const query = readQuery(HistoryQuerySchema, texts);
  try {
    const report = await withUsage(loadConfig(options.config), {
      path: `/v1/history?${new URLSearchParams(texts)}`,
      ofGateway: readReport,
      ofStore: (_usage, history) => history.report(query),
    });
    print(options.json ? `${JSON.stringify(report, null, 2)}\n` : `${toText(report)}\n`);
  } catch (error) {
    throw toCommandLineError(error);
  }
}
