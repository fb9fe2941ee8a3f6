/**
 * Keys whose team is not configured: all of their calls are refused.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import type { KeyRegistry } from "../keys/key_store.ts";
import { keyState } from "../keys/policy.ts";

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
  { teams }: Pick<Config, "teams">,
): Promise<string[]> {
  const lost = new Map<string, string[]>();
  for (const key of await keys.list({ limit: MAX_KEYS })) {
    const { team } = key;
    if (team === undefined || Object.hasOwn(teams, team)) continue;
    if (keyState(key, Date.now()) !== "active") continue;
    const named = lost.get(team) ?? [];
    lost.set(team, [...named, key.name ?? key.id]);
  }
  return Array.from(lost, ([team, named]) => {
    const shown = named.slice(0, MAX_NAMED).join(", ");
    const rest = named.length > MAX_NAMED ? ` and ${named.length - MAX_NAMED} more` : "";
    const count = named.length === 1 ? "1 key is" : `${named.length} keys are`;
    return `${count} refused, because the team ${team} is not configured: ${shown}${rest}. ` +
      `Add it to teams, or move its keys: sallyport keys update ID --team NAME`;
  });
}
