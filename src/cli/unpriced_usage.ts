/**
 * Usage without a price: `sallyport check --usage`.
 *
 * @module
 */
import { UsageQuerySchema } from "../admin/api/usage.ts";
import type { LoadedConfig } from "../serve/load_config.ts";
import { readQuery, readReport, toCommandLineError, withUsage } from "./usage_source.ts";

const QUERY = { by: "provider,model,tariff", sort: "unpriced", limit: "1000" };

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
      ofGateway: readReport,
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
