/**
 * Export and import of the teams that operators created. An exported team is a line of JSON among
 * the lines of exported keys. In a snapshot of keys, the first line has the teams.
 *
 * @module
 */
import * as v from "valibot";
import { describeIssue, formatMistake } from "../config/issue.ts";
import { TeamNameSchema, type TeamPolicy, TeamPolicySchema } from "../config/team.ts";
import { KeyStoreError } from "./key_store.ts";
import { type ImportCounts, SNAPSHOT_HEAD } from "./key_transfer.ts";
import type { TeamDirectory } from "./team_directory.ts";
import { readTeam, type StoredTeam, writeTeam } from "./team_store.ts";

/** Beginning of a line with a team. No line with a key begins like this. */
const LINE_HEAD = '{"createdTeam":';
const LineSchema = v.strictObject({ createdTeam: TeamNameSchema, settings: TeamPolicySchema });
/** The used part of the first line of a snapshot. Their records are texts. */
const SnapshotSchema = v.object({
  teams: v.optional(v.object({ records: v.record(TeamNameSchema, v.string()) })),
});

/** Returns whether an exported line is a team. */
export const isTeamLine = (line: string): boolean => line.startsWith(LINE_HEAD);

/** All created teams, as text. */
export interface TeamExport {
  readonly lines: readonly string[];
  /** Names of the teams that were left out, because this version does not understand them. */
  readonly damaged: readonly string[];
}

/** Exports the created teams. */
export function exportTeams(stored: ReadonlyMap<string, StoredTeam>): TeamExport {
  const lines: string[] = [];
  const damaged: string[] = [];
  for (const [name, { policy }] of stored) {
    if (policy === undefined) damaged.push(name);
    else lines.push(`${LINE_HEAD}${JSON.stringify(name)},"settings":${writeTeam(policy)}}`);
  }
  return { lines, damaged };
}

/**
 * Reads the teams among exported lines, or of a snapshot.
 *
 * @throws {KeyStoreError} With the number of a line that is not a team, or that is a duplicate
 */
export function readTeamLines(lines: readonly string[]): ReadonlyMap<string, TeamPolicy> {
  const [first = ""] = lines;
  if (first.startsWith(SNAPSHOT_HEAD)) return readSnapshotTeams(first);
  const teams = new Map<string, TeamPolicy>();
  for (const [index, line] of lines.entries()) {
    if (!isTeamLine(line)) continue;
    const { createdTeam, settings } = readJson(line, `line ${index + 1}`, LineSchema);
    if (teams.has(createdTeam)) {
      throw new KeyStoreError(`Cannot import line ${index + 1}: its team is there twice`);
    }
    teams.set(createdTeam, settings);
  }
  return teams;
}

function readSnapshotTeams(line: string): ReadonlyMap<string, TeamPolicy> {
  const { teams } = readJson(line, "line 1", SnapshotSchema);
  return new Map(
    Object.entries(teams?.records ?? {}).map(([name, record]) => {
      const { policy, fault } = readTeam(record);
      if (policy !== undefined) return [name, policy];
      throw new KeyStoreError(`Cannot import line 1: the team ${name} is damaged: ${fault}`);
    }),
  );
}

function readJson<T>(line: string, location: string, schema: v.GenericSchema<unknown, T>): T {
  let content: unknown;
  try {
    content = JSON.parse(line);
  } catch {
    throw new KeyStoreError(`Cannot import ${location}: it is no JSON`);
  }
  const { success, output, issues } = v.safeParse(schema, content);
  if (success) return output;
  const mistake = formatMistake(describeIssue(issues[0]));
  throw new KeyStoreError(`Cannot import ${location}: ${mistake}`);
}

/**
 * Adds teams to a store. Teams that exist and are equal stay unchanged, so an import can be
 * repeated.
 *
 * @param options Whether existing teams with other settings are replaced, or refused
 * @throws {KeyStoreError} If a team is refused. Then no team is changed
 */
export async function importTeams(
  directory: TeamDirectory,
  wanted: ReadonlyMap<string, TeamPolicy>,
  { isReplacing }: { readonly isReplacing: boolean },
): Promise<ImportCounts> {
  const counts = { added: 0, replaced: 0, same: 0 };
  if (wanted.size === 0) return counts;
  await directory.load();
  const isSame = (name: string, policy: TeamPolicy): boolean =>
    directory.stored.get(name)?.record === writeTeam(policy);
  for (const [name, policy] of wanted) {
    if (directory.isConfigured(name)) {
      throw new KeyStoreError(
        `Cannot import the team ${name}: it is in the configuration. Remove it there`,
      );
    }
    if (!isReplacing && directory.stored.has(name) && !isSame(name, policy)) {
      throw new KeyStoreError(
        `Cannot import the team ${name}: it has other settings already. ` +
          "--replace keeps the imported ones",
      );
    }
  }
  for (const [name, policy] of wanted) {
    if (isSame(name, policy)) counts.same++;
    else if (directory.stored.has(name)) counts.replaced++;
    else counts.added++;
    if (!isSame(name, policy)) await directory.change(name, () => policy);
  }
  return counts;
}
