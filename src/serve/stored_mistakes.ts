/**
 * Stored keys and teams that do not fit the configuration, so that calls are refused: keys whose
 * team is not configured, and limits that cannot be counted.
 *
 * @module
 */
import { findKeyMisfits, findTeamMisfits, type Surroundings } from "../config/cross_checks.ts";
import { formatPath } from "../config/issue.ts";
import type { TeamPolicy } from "../config/team.ts";
import type { GatewayKey, KeyRegistry } from "../keys/key_store.ts";
import { findKeyState } from "../keys/policy.ts";
import type { ConfiguredTeams, TeamDirectory } from "../keys/team_directory.ts";

/** Maximum number of keys that are looked at: the newest ones. */
const MAX_KEYS = 10_000;
/** Maximum number of keys that a line names. */
const MAX_NAMED = 10;

/**
 * Lists the keys to look at.
 *
 * @throws {Error} If the keys can't be read
 */
export async function listNewestKeys(
  keys: Pick<KeyRegistry, "list">,
): Promise<readonly GatewayKey[]> {
  return await keys.list({ limit: MAX_KEYS });
}

/** Groups the active keys by a fault. Keys without one are left out. */
function groupActive(
  keys: readonly GatewayKey[],
  findFault: (key: GatewayKey) => string | undefined,
): ReadonlyMap<string, readonly GatewayKey[]> {
  const groups = new Map<string, GatewayKey[]>();
  for (const key of keys) {
    const fault = findFault(key);
    if (fault === undefined || findKeyState(key, Date.now()) !== "active") continue;
    const group = groups.get(fault);
    if (group === undefined) groups.set(fault, [key]);
    else group.push(key);
  }
  return groups;
}

/** Returns the number of some keys, and the names of the first ones. */
function describeKeys(keys: readonly GatewayKey[]): { count: string; names: string } {
  const shown = keys.slice(0, MAX_NAMED).map(({ id, name }) => name ?? id).join(", ");
  const rest = keys.length > MAX_NAMED ? ` and ${keys.length - MAX_NAMED} more` : "";
  const count = keys.length === 1 ? "1 key" : `${keys.length} keys`;
  return { count, names: `${shown}${rest}` };
}

/**
 * Finds active keys whose team is not configured.
 *
 * @returns One line for each team, such as `2 keys are refused: …`
 */
export function describeMissingTeams(
  keys: readonly GatewayKey[],
  teams: ConfiguredTeams,
): string[] {
  const isMissing = (team: string): boolean => !Object.hasOwn(teams, team);
  const lost = groupActive(
    keys,
    ({ team }) => team !== undefined && isMissing(team) ? team : undefined,
  );
  return Array.from(lost, ([team, all]) => {
    const { count, names } = describeKeys(all);
    return `${count} ${all.length === 1 ? "is" : "are"} refused, because the team ${team} is ` +
      `not configured: ${names}. ` +
      `Add it to teams, create it by sallyport teams create ${team}, ` +
      "or move its keys: sallyport keys update ID --team NAME";
  });
}

/**
 * Finds active keys whose limits do not fit the configuration, such as a budget in another currency.
 *
 * @returns One line for each mistake, with the names of its keys
 */
export function describeKeyLimits(keys: readonly GatewayKey[], config: Surroundings): string[] {
  const misfits = groupActive(keys, (key) => {
    const misfit = findKeyMisfits(key, config).find(({ path }) => path[0] === "limits");
    return misfit && `${formatPath(misfit.path)}: ${misfit.message}`;
  });
  return Array.from(misfits, ([mistake, all]) => {
    const { count, names } = describeKeys(all);
    return `calls of ${count} can be refused: ${names}: ${mistake}. ` +
      "Change it by sallyport keys update ID";
  });
}

/**
 * Finds mistakes in the stored teams.
 *
 * @returns One line for each team that is also configured, that this version does not understand,
 * or whose limits do not fit the configuration, such as a budget in another currency
 * @throws {Error} If the teams can't be read
 */
export async function describeStoredTeams(
  teams: TeamDirectory,
  config: Surroundings,
): Promise<string[]> {
  await teams.load();
  return Array.from(teams.stored).flatMap(([name, team]) => {
    const { fault, policy } = team;
    if (teams.isConfigured(name)) {
      return [
        `the stored team ${name} has no effect, because the configuration has one of this name. ` +
        `Remove it there, or delete the stored one by sallyport teams delete ${name}`,
      ];
    }
    if (policy === undefined) {
      return [
        `keys of the team ${name} are refused: this version does not understand its ${fault}`,
      ];
    }
    return describeTeamLimits(name, policy, config);
  });
}

/** Describes the first limit of a team that does not fit the configuration, if there is one. */
export function describeTeamLimits(
  name: string,
  policy: TeamPolicy,
  config: Surroundings,
): string[] {
  return findTeamMisfits(policy, config).slice(0, 1).map(({ path, message }) =>
    `calls of the team ${name} can be refused: ${formatPath(path)}: ${message}. ` +
    "Change it by sallyport teams update"
  );
}
