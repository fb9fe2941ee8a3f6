/**
 * `sallyport teams`.
 *
 * @module
 */
import * as v from "valibot";
import { TeamAdministration, type TeamView } from "../admin/team_administration.ts";
import { describeIssue } from "../config/issue.ts";
import { TeamPatchSchema, type TeamPolicy } from "../config/team.ts";
import type { Config } from "../config/config.ts";
import type { Assembly } from "../serve/compose.ts";
import { CommandLineError } from "./command.ts";
import { LIMIT_OPTIONS, specOf } from "./command_table.ts";
import { printJson, printText, toLines } from "./key_text.ts";
import { noteBudget, readOption } from "./keys.ts";
import { toLimits } from "./limit_texts.ts";
import type { CommandOptions } from "./options.ts";
import { alignColumns } from "./table.ts";
import { readRunningUse, toLeftText } from "./running_use.ts";
import { openChanges, readAuthor, withStores } from "./with_stores.ts";

/** Reads whether the callers of a team can use held keys. `null` removes the setting. */
function readHeldKeys(text: string): true | null {
  if (text === "on") return true;
  if (text === "off") return null;
  throw new CommandLineError("--held-keys expects on or off");
}

/** Reads the settings of a team from the options. A setting that is `undefined` is removed. */
function readPatch(options: CommandOptions): Partial<TeamPolicy> {
  const given = LIMIT_OPTIONS.filter((name) => options[name] !== undefined);
  const limits = given.map((name) => [name, readOption(options, name)] as const);
  const { "held-keys": heldKeys } = options;
  const result = v.safeParse(TeamPatchSchema, {
    ...(limits.length > 0 && { limits: Object.fromEntries(limits) }),
    ...(heldKeys !== undefined && { heldKeys: readHeldKeys(heldKeys) }),
  });
  if (result.success) {
    noteBudget(result.output.limits);
    return result.output;
  }
  const { path, message } = describeIssue(result.issues[0]);
  const [option = ""] = path.replace(/^limits\./, "").split(/\W/);
  throw new CommandLineError(`--${option}: ${message}`);
}

function readChange(options: CommandOptions): Partial<TeamPolicy> {
  const patch = readPatch(options);
  if (Object.keys(patch).length > 0) return patch;
  throw new CommandLineError(
    `teams update expects a change: --${[...LIMIT_OPTIONS, "held-keys"].join(", --")}`,
  );
}

/** A team, with the use of its limits only if the gateway or Redis knows it. */
type ShownTeam = Omit<TeamView, "use"> & Partial<Pick<TeamView, "use">>;

/** Returns a team without the use of its limits, which only a running gateway knows. */
function withoutUse({ use: _, ...team }: TeamView): ShownTeam {
  return team;
}

/** Formats the settings of a team, a line for each. */
function toTeamLines({ limits, use, ...team }: ShownTeam): string {
  const text = toLimits(limits);
  return toLines({ ...team, limits: text === "" ? "none" : text, left: toLeftText(use) });
}

/** Shows a team, with the use of its limits if the gateway or Redis knows it. */
async function showTeam(
  name: string,
  teams: TeamAdministration,
  assembly: Assembly,
  config: Config,
): Promise<ShownTeam> {
  const team = withoutUse(await teams.show(name));
  const limits = assembly.teams.byName[name]?.limits;
  if (limits === undefined) return team;
  const use = await readRunningUse(config, assembly, { name: `team:${name}`, limits });
  return use === undefined ? team : { ...team, use };
}

function printList(teams: readonly TeamView[], isJson: boolean): void {
  if (isJson) return printJson(teams.map(withoutUse));
  if (teams.length === 0) return printText("no teams: make one by sallyport teams create NAME");
  const cells = teams.map(({ name, source, limits, heldKeys, unreadable }) => [
    name,
    source,
    heldKeys === true ? "yes" : "no",
    unreadable === undefined ? toLimits(limits) : "not understood by this version",
  ]);
  printText(alignColumns(["NAME", "SOURCE", "HELD KEYS", "LIMITS"], cells));
}

async function run(options: CommandOptions, assembly: Assembly, config: Config): Promise<void> {
  const changes = openChanges(assembly);
  const parts = { teams: assembly.teams, keys: assembly.keys, changes, now: Date.now, config };
  const teams = new TeamAdministration(parts);
  const { operand: name = "" } = options;
  const isJson = options.json === true;
  const by = readAuthor(options);
  const print = (team: ShownTeam) => isJson ? printJson(team) : printText(toTeamLines(team));
  const show = (view: TeamView) => print(withoutUse(view));
  switch (options.command) {
    case "teams create":
      return show(await teams.create(name, { limits: {}, ...readPatch(options) }, by));
    case "teams list":
      return printList(await teams.list(), isJson);
    case "teams show":
      return print(await showTeam(name, teams, assembly, config));
    case "teams update":
      return show(await teams.update(name, readChange(options), by));
    case "teams delete":
      return show(await teams.delete(name, options.force === true, by));
  }
}

/**
 * Manages the teams of the configured store.
 *
 * @throws {CommandLineError} For a mistake in the command, or if the change is refused
 */
export async function teamsCommand(options: CommandOptions): Promise<void> {
  const { command, operand } = options;
  if (specOf(command).operand !== undefined && operand === undefined) {
    throw new CommandLineError(`${command} expects the name of a team`);
  }
  await withStores(options, (assembly, config) => run(options, assembly, config));
}
