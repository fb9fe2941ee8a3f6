/**
 * Usage without a price: `sallyport check --usage`.
 *
 * @module
 */
import * as v from "valibot";
import { UsageQuerySchema, UsageReportSchema } from "../admin/api/usage.ts";
import type { LoadedConfig } from "../serve/load_config.ts";
import type { UsageReport } from "../usage/report.ts";
import { collect } from "./admin_client.ts";
import { CommandLineError } from "./command.ts";
import { readQuery, toCommandLineError, withUsage } from "./usage_source.ts";

const QUERY = { by: "provider,model,tariff", sort: "unpriced", limit: "1000" };

function readReport(text: string): UsageReport {
  const report = v.safeParse(UsageReportSchema, JSON.parse(text));
  if (report.success) return report.output;
  throw new CommandLineError("the gateway that runs is of another version");
}

/**
 * Describes what was used in the last week without a price: a line for each provider, model and
 * tariff.
 *
 * @throws {CommandLineError} If usage can't be read
 */
export async function listUnpriced(loaded: LoadedConfig): Promise<readonly string[]> {
  try {
    const { rows } = await withUsage(loaded, {
      path: `/v1/usage?${new URLSearchParams(QUERY)}`,
      ofGateway: async (parts) => readReport(await collect(parts)),
      ofStore: (reports) => reports.report(readQuery(UsageQuerySchema, QUERY)),
    });
    return rows.flatMap(({ provider, model, tariff, unpricedClasses }) => {
      if (unpricedClasses === undefined) return [];
      const amounts = Object.entries(unpricedClasses).map(([name, amount]) => `${name} ${amount}`);
      return [`no price for ${model} of ${provider}, tariff ${tariff}: ${amounts.join(", ")}`];
    });
  } catch (error) {
    throw toCommandLineError(error);
  }
}
