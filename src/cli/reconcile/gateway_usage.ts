/**
 * The gateway's usage of a period, by day and model.
 *
 * @module
 */
import { UsageExportSchema } from "../../admin/api/usage.ts";
import { parseCost } from "../../config/cost.ts";
import { addAmounts, type ClassAmounts } from "../../exchange/billing.ts";
import type { LoadedConfig } from "../../serve/load_config.ts";
import { toExportText } from "../../usage/usage_text.ts";
import { collect } from "../admin_client.ts";
import { readQuery, toCommandLineError, withUsage } from "../usage_source.ts";
import type { Period } from "./fetch_export.ts";
import { countOf, type Entry, withoutDate } from "./provider_export.ts";

/** Usage of a model in a day. */
export interface GatewayUsage {
  readonly classes: ClassAmounts;
  /** Units of 10^-24 of the currency. */
  readonly cost: bigint;
  /** Tokens without a price. */
  readonly unpriced: number;
  /** Tokens that the gateway estimated, because no answer stated them. */
  readonly estimated: number;
}

/** Usage by `day model`. */
export type GatewayDays = ReadonlyMap<string, GatewayUsage>;

/**
 * Returns the classes of a row of the export. Written tokens and searches are 0 in rows that do not
 * divide the input by class.
 */
export function classesOf(row: Entry): ClassAmounts {
  const cacheRead = countOf(row.cached);
  const written = countOf(row.written);
  const cacheWriteLong = countOf(row.writtenLong);
  return {
    input: countOf(row.input) - cacheRead - written,
    cacheRead,
    cacheWrite: written - cacheWriteLong,
    cacheWriteLong,
    output: countOf(row.output) + countOf(row.other),
    webSearches: countOf(row.webSearches),
  };
}

/** The rows of one day and model, added up. */
function add(one: GatewayUsage | undefined, row: Entry): GatewayUsage {
  const cost = typeof row.cost === "string" ? parseCost(row.cost) : 0n;
  return {
    classes: addAmounts(one?.classes ?? {}, classesOf(row)),
    cost: (one?.cost ?? 0n) + cost,
    unpriced: (one?.unpriced ?? 0) + countOf(row.unpriced),
    estimated: (one?.estimated ?? 0) + countOf(row.estimatedInput) + countOf(row.estimatedOutput),
  };
}

/**
 * Reads the usage of some providers.
 *
 * @throws {CommandLineError} If usage can't be read
 */
export async function readGatewayUsage(
  loaded: LoadedConfig,
  providers: readonly string[],
  { from, to }: Period,
): Promise<GatewayDays> {
  const texts = { by: "day", from, to, format: "jsonl" };
  const { format, ...query } = readQuery(UsageExportSchema, texts);
  let text: string;
  try {
    text = await withUsage(loaded, {
      path: `/v1/usage/export?${new URLSearchParams(texts)}`,
      ofGateway: collect,
      ofStore: (reports) => collect(toExportText(format, reports.export(query))),
    });
  } catch (error) {
    throw toCommandLineError(error);
  }
  const days = new Map<string, GatewayUsage>();
  for (const line of text.split("\n").filter((each) => each !== "")) {
    const row: Entry = JSON.parse(line);
    if (!providers.includes(String(row.provider))) continue;
    const name = `${String(row.from).slice(0, 10)} ${withoutDate(String(row.model))}`;
    days.set(name, add(days.get(name), row));
  }
  return days;
}
