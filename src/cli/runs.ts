/**
 * `sallyport runs`: the runs of agents, which the running gateway counts, or a Worker's objects.
 *
 * @module
 */
import type { RunList } from "../admin/api/runs.ts";
import type { RunView } from "../admin/run_lists.ts";
import { gatewayKeyId } from "../keys/key_format.ts";
import { loadConfig } from "../serve/load_config.ts";
import { type AdminPlace, askGateway, readAdminPlace, toAdminPlace } from "./admin_client.ts";
import { CommandLineError, print } from "./command.ts";
import { readLimit } from "./keys.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns, toPlain } from "./table.ts";

const MAX_LISTED = 1000;

const toKeyId = (key: string): string => gatewayKeyId(key) ?? key;

/** Formats how often a run has sent its last body. */
function toRepeats({ repeats = 0, repeatLimit = Infinity }: RunView): string {
  if (repeats === 0) return "";
  return repeats > repeatLimit ? `${repeats} (more than ${repeatLimit})` : String(repeats);
}

/** Returns the cells of a run, in the order of the titles in {@link toTable}. */
function toCells(run: RunView): string[] {
  const { id, key, parent = "", state, budget, spent, currency, callLimit, calls } = run;
  const ofBudget = budget === undefined ? "" : ` of ${budget}`;
  const ofCalls = callLimit === undefined ? "" : ` of ${callLimit}`;
  const used = run.lastUsed.slice(0, 19).replace("T", " ");
  const cells = [id, key, parent, state, `${spent}${ofBudget} ${currency}`, `${calls}${ofCalls}`];
  return [...cells, String(run.openCalls), used].map(toPlain);
}

function toTable(runs: readonly RunView[]): string {
  const titles = ["RUN", "KEY", "PARENT", "STATE", "SPENT", "CALLS", "OPEN", "LAST USED"];
  const isCounted = runs.some(({ repeatLimit }) => repeatLimit !== undefined);
  if (isCounted) titles.push("REPEATS");
  const toRow = (run: RunView) => isCounted ? [...toCells(run), toRepeats(run)] : toCells(run);
  return alignColumns(titles, runs.map(toRow));
}

/** Returns the gateway to ask. @throws {CommandLineError} If it is not known */
function placeOf({ url, config }: CommandOptions): AdminPlace {
  if (url === undefined) return toAdminPlace(loadConfig(config).config);
  if (config !== undefined) throw new CommandLineError("runs accepts --url or --config, not both");
  return readAdminPlace(url);
}

async function list(options: CommandOptions): Promise<void> {
  const query = new URLSearchParams({ limit: String(readLimit(options.limit, MAX_LISTED)) });
  if (options.key !== undefined) query.set("key", toKeyId(options.key));
  const { runs } = JSON.parse(await askGateway(placeOf(options), `/v1/runs?${query}`)) as RunList;
  if (options.json) return print(`${JSON.stringify(runs, null, 2)}\n`);
  print(runs.length === 0 ? "no runs\n" : `${toTable(runs)}\n`);
}

async function stop(options: CommandOptions): Promise<void> {
  const { operand = "", key = "", reason } = options;
  if (operand === "") throw new CommandLineError("runs stop expects the id of a run");
  if (key === "") {
    throw new CommandLineError(
      "runs stop expects --key: run ids belong to gateway keys, see sallyport runs list",
    );
  }
  const query = new URLSearchParams({ key: toKeyId(key), ...(reason !== undefined && { reason }) });
  const path = `/v1/runs/${encodeURIComponent(operand)}?${query}`;
  const stopped = await askGateway(placeOf(options), path, { method: "DELETE" });
  if (options.json) return print(`${stopped}\n`);
  print(`stopped: ${toPlain(operand)} and the runs below it\n`);
}

/**
 * Lists runs, or stops one.
 *
 * @throws {CommandLineError} For a mistake in the command, or if the gateway refuses
 */
export async function runsCommand(options: CommandOptions): Promise<void> {
  if (options.command === "runs stop") await stop(options);
  else await list(options);
}
