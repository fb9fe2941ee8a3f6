/**
 * Stored usage by the prices of a file: `--prices` of `sallyport usage`.
 *
 * @module
 */
import { resolve } from "node:path";
import { setImmediate } from "node:timers/promises";
import * as v from "valibot";
import { UsageRowSchema } from "../admin/api/usage.ts";
import { DIMENSIONS } from "../config/dimensions.ts";
import { type Config, ConfigError } from "../config/config.ts";
import { describeIssue } from "../config/issue.ts";
import { type Prices, PricesSchema } from "../config/prices.ts";
import { readJsonFile } from "../serve/json_file.ts";
import type { LoadedConfig } from "../serve/load_config.ts";
import { readPriceFile } from "../serve/price_files.ts";
import { writeAttribution } from "../usage/attributed.ts";
import { CLASS_COUNTS, type UsageRow, type UsageStore } from "../usage/counts.ts";
import { isTimeDimension, type UsageDimension } from "../usage/query.ts";
import { type UsageExportRow, UsageReports } from "../usage/report.ts";
import { inParts } from "../usage/usage_memory.ts";
import { CommandLineError } from "./command.ts";

/**
 * Reads a file of prices, in the form that `prices import` writes, or of the setting `prices`.
 *
 * @throws {ConfigError} For each mistake
 */
function readPrices(file: string, currency: string): Prices {
  const { input, lineOf } = readJsonFile(resolve(file), "prices");
  const isWhole = typeof input.currency === "string";
  const prices = isWhole ? readPriceFile(resolve(file), "prices", currency) : input;
  const result = v.safeParse(PricesSchema, prices);
  if (result.success) return result.output;
  throw new ConfigError(result.issues.map((issue) => ({
    ...describeIssue(issue, "prices"),
    source: lineOf(describeIssue(issue).path),
  })));
}

/**
 * Replaces all prices of a configuration by those of a file. Costs that providers state are not
 * used then.
 *
 * @throws {ConfigError} For a mistake in the file
 */
export function withPrices(loaded: LoadedConfig, file: string): LoadedConfig {
  const providers = Object.entries(loaded.config.providers).map(([name, provider]) => {
    const { prices: _, statesCost: __, ...others } = provider;
    return [name, others] as const;
  });
  const prices = readPrices(file, loaded.config.currency);
  const config = { ...loaded.config, prices, providers: Object.fromEntries(providers) };
  return { ...loaded, config };
}

/** Returns the path of the export that has the rows of a report by some dimensions. */
export function toExportPath(texts: Readonly<Record<string, string>>): string {
  const { by = "", limit: _, format: __, ...selection } = texts;
  const time = by.split(",").find((part) => isTimeDimension(part as UsageDimension));
  const step = time === "month" ? "day" : time;
  const query = { ...selection, ...(step !== undefined && { by: step }) };
  return `/v1/usage/export?${new URLSearchParams(query)}`;
}

/** Converts an exported row back to a row of usage. */
function toRow(line: UsageExportRow): UsageRow {
  const { from, key, provider, model, operation, team, tariff } = line;
  const payer = line.payer === "gateway" ? line.payer : undefined;
  const more = CLASS_COUNTS.map((name) => line[name] ?? 0);
  const attribution = writeAttribution(line, new Set(DIMENSIONS));
  const calls = { key, provider, model, operation, team, payer };
  return {
    ...calls,
    tariff: tariff || undefined,
    attribution,
    at: Date.parse(from),
    counts: line,
    more,
  };
}

function readExported(text: string): UsageRow {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    content = undefined;
  }
  const row = v.safeParse(UsageRowSchema, content);
  if (row.success) return toRow(row.output);
  throw new CommandLineError("the gateway that answers is of another version");
}

/** Yields the rows of an export in JSON lines, part by part. */
async function* readRows(parts: AsyncIterable<string>): AsyncIterable<readonly UsageRow[]> {
  let rest = "";
  for await (const part of parts) {
    const lines = (rest + part).split("\n");
    rest = lines.pop() as string; // a text has at least one line
    yield* inParts(lines.map(readExported));
  }
  if (rest !== "") throw new CommandLineError("the gateway's export broke off");
}

/** Makes reports of the rows that a running gateway exports. */
export function ofExport(parts: AsyncIterable<string>, config: Config): UsageReports {
  const { keys } = config;
  const isListed = Array.isArray(keys);
  const usage: Pick<UsageStore, "backend" | "read"> = {
    backend: isListed ? "memory" : "file",
    read: () => readRows(parts),
  };
  const named = new Map(isListed ? keys.map((key) => [key.id, key] as const) : []);
  return new UsageReports({
    usage,
    config,
    keys: { get: (id) => Promise.resolve(named.get(id)) },
    now: Date.now,
    rest: setImmediate,
  });
}
