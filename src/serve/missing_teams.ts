/**
 * Keys whose team is not configured: all of their calls are refused.
 *
 * @module
 */
import { findTeamMisfits, type Surroundings } from "../config/cross_checks.ts";
import { formatPath } from "../config/issue.ts";
import type { KeyRegistry } from "../keys/key_store.ts";
import { findKeyState } from "../keys/policy.ts";
import type { ConfiguredTeams, TeamDirectory } from "../keys/team_directory.ts";

/** Maximum number of keys that are looked at: the newest ones. */
const MAX_KEYS = 10_000;
/** Maximum number of keys that a line names. */
const MAX_NAMED = 10;

/**
 * Finds active keys whose team is not configured.
 *
 * @returns One line for each team, such as `2 keys are refused: …`
 * @throws {Error} If the keys can't be read
 */
export async function describeMissingTeams(
  keys: Pick<KeyRegistry, "list">,
  teams: ConfiguredTeams,
): Promise<string[]> {
  const lost = new Map<string, string[]>();
  for (const key of await keys.list({ limit: MAX_KEYS })) {
    const { team } = key;
    if (team === undefined || Object.hasOwn(teams, team)) continue;
    if (findKeyState(key, Date.now()) !== "active") continue;
    const named = lost.get(team) ?? [];
    lost.set(team, [...named, key.name ?? key.id]);
  }
  return Array.from(lost, ([team, named]) => {
    const shown = named.slice(0, MAX_NAMED).join(", ");
    const rest = named.length > MAX_NAMED ? ` and ${named.length - MAX_NAMED} more` : "";
    const count = named.length === 1 ? "1 key is" : `${named.length} keys are`;
    return `${count} refused, because the team ${team} is not configured: ${shown}${rest}. ` +
      `Add it to teams, create it by sallyport teams create ${team}, ` +
      "or move its keys: sallyport keys update ID --team NAME";
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
    return findTeamMisfits(policy, config).slice(0, 1).map(({ path, message }) =>
      `calls of the team ${name} can be refused: ${formatPath(path)}: ${message}. ` +
      "Change it by sallyport teams update"
    );
  });
}
