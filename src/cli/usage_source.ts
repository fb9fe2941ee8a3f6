/**
 * Source of usage for the command line: Redis, which has the counts of all gateways; else the
 * running gateway's admin listener; else the usage file of a gateway that has ended.
 *
 * @module
 */
import process from "node:process";
import { setImmediate } from "node:timers/promises";
import * as v from "valibot";
import { UsageReportSchema } from "../admin/api/usage.ts";
import { describeIssue } from "../config/issue.ts";
import { assemble } from "../serve/compose.ts";
import type { LoadedConfig } from "../serve/load_config.ts";
import { UsageUnavailable } from "../usage/counts.ts";
import { HistoryReports } from "../usage/history/report.ts";
import { UsageRefusal } from "../usage/query.ts";
import { type UsageReport, UsageReports } from "../usage/report.ts";
import { askAdminInParts, collect, readRefusal, toAdminUrl } from "./admin_client.ts";
import { CommandLineError, print } from "./command.ts";
import type { OptionValues } from "./option_table.ts";
import type { CommandOptions } from "./options.ts";

/** The longest silence of the gateway. Milliseconds. */
const ASK_MS = 30_000;

/**
 * Returns the set options of a query, as texts.
 *
 * @param names The names of the query's options
 * @throws {CommandLineError} For an option without a value
 */
export function toTexts(
  options: CommandOptions,
  names: readonly (keyof OptionValues)[],
): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const name of names) {
    const text = options[name];
    if (text === "") {
      throw new CommandLineError(`--${name} is empty: set a value, or leave it out`);
    }
    if (text !== undefined) texts[name] = String(text);
  }
  return texts;
}

/** Reads a query by its schema. @throws {CommandLineError} For the first mistake */
export function readQuery<Query>(
  schema: v.GenericSchema<unknown, Query>,
  texts: Record<string, string>,
): Query {
  const result = v.safeParse(schema, texts);
  if (result.success) return result.output;
  const { path, message } = describeIssue(result.issues[0]);
  throw new CommandLineError(`--${path}: ${message}`);
}

/** Converts an error of usage to one for the terminal. Other errors are returned unchanged. */
export function toCommandLineError(error: unknown): unknown {
  if (error instanceof UsageUnavailable) return new CommandLineError(error.message);
  if (error instanceof UsageRefusal) {
    return new CommandLineError(`--${error.param}: ${error.message}`);
  }
  return error;
}

/** Functions that answer a query of usage. */
export interface UsageAnswering<Answer> {
  /** Path and query of the admin API. */
  readonly path: string;
  /** Reads the answer of a running gateway at `origin`. */
  ofGateway(parts: AsyncIterable<string>, origin: string): Promise<Answer>;
  /** Computes the answer from the stores of usage and of its history. */
  ofStore(reports: UsageReports, history: HistoryReports): Promise<Answer>;
}

/** Reads the report of a gateway. @throws {CommandLineError} If it has another form */
export async function readReport(
  parts: AsyncIterable<string>,
  origin: string,
): Promise<UsageReport> {
  const text = await collect(parts);
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw new CommandLineError(
      `the server at ${origin} is no gateway: see admin in the configuration`,
    );
  }
  const report = v.safeParse(UsageReportSchema, content);
  if (report.success) return report.output;
  throw new CommandLineError(
    `the server at ${origin} is no gateway of this version: restart the gateway after an update`,
  );
}

/** Reads usage from its store, without a gateway. */
async function ofStore<Answer>(
  { config, directory }: LoadedConfig,
  answering: UsageAnswering<Answer>,
): Promise<Answer> {
  const assembly = await assemble(config, { directory, report: () => {}, isServing: false });
  try {
    const { usage, history, keys } = assembly;
    const now = Date.now;
    const rest = setImmediate;
    return await answering.ofStore(
      new UsageReports({ usage, config, keys, now, rest }),
      new HistoryReports({ history, currency: config.currency, now, rest }),
    );
  } finally {
    await assembly.close();
  }
}

async function ofGateway<Answer>(
  origin: string,
  token: string,
  { path, ofGateway }: UsageAnswering<Answer>,
): Promise<{ readonly answer: Answer } | undefined> {
  try {
    const answer = await askAdminInParts(`${origin}${path}`, { timeout: ASK_MS, token });
    if (answer === undefined) return undefined;
    if (answer.status !== 200) throw await readRefusal(answer, origin);
    return { answer: await ofGateway(answer.parts, origin) };
  } catch (error) {
    if (error instanceof CommandLineError) throw error;
    throw new CommandLineError(`the gateway at ${origin} does not answer as it should`);
  }
}

/**
 * Answers a query from the first source that has usage.
 *
 * @throws {CommandLineError} If no source has usage, or the gateway refuses
 */
export async function withUsage<Answer>(
  loaded: LoadedConfig,
  answering: UsageAnswering<Answer>,
): Promise<Answer> {
  const { redis, admin, keys } = loaded.config;
  if (redis !== undefined) return await ofStore(loaded, answering);
  const hasFile = !Array.isArray(keys);
  if (admin?.token !== undefined && admin.port !== 0) {
    const origin = toAdminUrl(admin);
    const found = await ofGateway(origin, admin.token, answering);
    if (found !== undefined) return found.answer;
    if (!hasFile) {
      throw new CommandLineError(
        `no gateway runs at ${origin}, and only the gateway knows the usage`,
      );
    }
    print(
      `no gateway runs at ${origin}: this is the usage that the last one stored\n`,
      process.stderr,
    );
  }
  if (hasFile) return await ofStore(loaded, answering);
  throw new CommandLineError(
    "only the running gateway has the usage: configure admin with a port and a token to ask it",
  );
}
