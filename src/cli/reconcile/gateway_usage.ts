/**
 * The gateway's usage of a period, by day and model.
 *
 * @module
 */
import { UsageExportSchema } from "../../admin/api/usage.ts";
import { parseCost } from "../../config/cost.ts";
import {
  addAmounts,
  BILLING_CLASSES,
  type BillingClass,
  type ClassAmounts,
} from "../../exchange/billing.ts";
import type { LoadedConfig } from "../../serve/load_config.ts";
import { toExportText } from "../../usage/usage_text.ts";
import { collect } from "../admin_client.ts";
import { isObject } from "../prices/findings.ts";
import { readQuery, toCommandLineError, withUsage } from "../usage_source.ts";
import { addCosts, type Costs, totalOf } from "./difference.ts";
import type { Period } from "./fetch_export.ts";
import { countOf, type Entry, withoutDate } from "./provider_export.ts";

/** Usage of a model in a day. */
export interface GatewayUsage {
  readonly classes: ClassAmounts;
  /** Units of 10^-24 of the currency. */
  readonly cost: bigint;
  /** The same by class. */
  readonly costs: Costs;
  /** Tokens without a price. */
  readonly unpriced: number;
  /** Tokens that the gateway estimated, because no answer stated them. */
  readonly estimated: number;
}

/** The usage of a day without calls. */
export const NO_USAGE: GatewayUsage = {
  classes: {},
  cost: 0n,
  costs: {},
  unpriced: 0,
  estimated: 0,
};

/** Usage by `day model`; tools have names of their own, see {@link TOOLS}. */
export type GatewayDays = ReadonlyMap<string, GatewayUsage>;

/** Usage of tools that providers state without a model: counts of some classes, costs of others. */
interface Tools {
  readonly kind: "tools" | "containers";
  /** Name in place of the model. */
  readonly name: string;
  readonly counted: readonly BillingClass[];
  readonly priced: readonly BillingClass[];
}

/** Providers count web searches by model, and state their cost with the other tools. */
export const TOOLS: readonly Tools[] = [
  {
    kind: "tools",
    name: "(tools)",
    counted: ["fileSearches"],
    priced: ["webSearches", "fileSearches"],
  },
  {
    kind: "containers",
    name: "(containers)",
    counted: ["codeSessions"],
    priced: ["codeSessions"],
  },
];

/** Classes that are not tokens, and that providers count by model. */
const OF_UNITS: readonly BillingClass[] = ["webSearches", "images", "characters", "audioMs"];
/** Classes whose costs providers state by model. */
const OF_MODELS = BILLING_CLASSES.filter((name) =>
  !TOOLS.some(({ priced }) => priced.includes(name))
);

/**
 * Returns the classes of a row of the export that providers state by model. Written tokens and
 * audio are 0 in rows that do not divide the input by class.
 */
function classesOf(row: Entry): ClassAmounts {
  const cached = countOf(row.cached);
  const cacheReadAudio = countOf(row.cachedAudio);
  const written = countOf(row.written);
  const cacheWriteLong = countOf(row.writtenLong);
  const inputAudio = countOf(row.inputAudio);
  const outputAudio = countOf(row.outputAudio);
  return {
    input: countOf(row.input) - cached - written - inputAudio,
    inputAudio,
    cacheRead: cached - cacheReadAudio,
    cacheReadAudio,
    cacheWrite: written - cacheWriteLong,
    cacheWriteLong,
    output: countOf(row.output) + countOf(row.other) - outputAudio,
    outputAudio,
    ...Object.fromEntries(
      OF_UNITS.map((name) => [name, countOf(row[name])] as const).filter(([, count]) => count > 0),
    ),
  };
}

/** Returns the costs of some classes of a row. Rows of earlier versions have no cost by class. */
function costsOf({ classes }: Entry, names: readonly BillingClass[]): Costs {
  const costs: Partial<Record<BillingClass, bigint>> = {};
  for (const name of names) {
    const found = isObject(classes) ? classes[name] : undefined;
    const cost = isObject(found) && typeof found.cost === "string" ? parseCost(found.cost) : 0n;
    if (cost > 0n) costs[name] = cost;
  }
  return costs;
}

/** Divides a row into the usage of its model, and of the tools that have names of their own. */
function* divide(row: Entry): Generator<readonly [name: string, usage: GatewayUsage]> {
  let cost = typeof row.cost === "string" ? parseCost(row.cost) : 0n;
  for (const { name, counted, priced } of TOOLS) {
    const ofTools = totalOf(costsOf(row, priced));
    const pairs = counted.map((each) => [each, countOf(row[each])] as const);
    const classes: ClassAmounts = Object.fromEntries(pairs.filter(([, count]) => count > 0));
    cost -= ofTools;
    if (ofTools > 0n || Object.keys(classes).length > 0) {
      yield [name, { ...NO_USAGE, classes, cost: ofTools, costs: { all: ofTools } }];
    }
  }
  const costs = costsOf(row, OF_MODELS);
  yield [withoutDate(String(row.model)), {
    classes: classesOf(row),
    cost,
    costs: totalOf(costs) === cost ? costs : { all: cost },
    unpriced: countOf(row.unpriced),
    estimated: countOf(row.estimatedInput) + countOf(row.estimatedOutput),
  }];
}

/** Adds the usage of one day and model. */
const add = (one: GatewayUsage, other: GatewayUsage): GatewayUsage => ({
  classes: addAmounts(one.classes, other.classes),
  cost: one.cost + other.cost,
  costs: addCosts(one.costs, other.costs),
  unpriced: one.unpriced + other.unpriced,
  estimated: one.estimated + other.estimated,
});

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
    for (const [model, usage] of divide(row)) {
      const name = `${String(row.from).slice(0, 10)} ${model}`;
      days.set(name, add(days.get(name) ?? NO_USAGE, usage));
    }
  }
  return days;
}
