/**
 * `sallyport usage export`: the rows of usage, printed as they are read.
 *
 * @module
 */
import { UsageExportSchema } from "../admin/api/usage.ts";
import { loadConfig } from "../serve/load_config.ts";
import type { UsageReports } from "../usage/report.ts";
import { toExportText } from "../usage/usage_text.ts";
import { printParts } from "./command.ts";
import { USAGE_FILTERS } from "./command_table.ts";
import type { CommandOptions } from "./options.ts";
import { ofExport, toExportPath, withPrices } from "./usage_prices.ts";
import { readQuery, toCommandLineError, toTexts, withUsage } from "./usage_source.ts";

/**
 * Prints the rows of usage.
 *
 * @throws {CommandLineError} For a mistake in the command, or if usage can't be read
 */
export async function exportUsageCommand(options: CommandOptions): Promise<void> {
  const texts = { ...toTexts(options, USAGE_FILTERS), format: options.csv ? "csv" : "jsonl" };
  const { format, ...query } = readQuery(UsageExportSchema, texts);
  const ofStore = (reports: UsageReports) =>
    printParts(toExportText(format, reports.export(query)));
  const loaded = loadConfig(options.config);
  const { prices } = options;
  try {
    if (prices !== undefined) {
      const repriced = withPrices(loaded, prices);
      return await withUsage(repriced, {
        path: toExportPath(texts),
        ofGateway: (parts) => ofStore(ofExport(parts, repriced.config)),
        ofStore,
      });
    }
    await withUsage(loaded, {
      path: `/v1/usage/export?${new URLSearchParams(texts)}`,
      ofGateway: printParts,
      ofStore,
    });
  } catch (error) {
    throw toCommandLineError(error);
  }
}
