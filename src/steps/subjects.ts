/**
 * The subjects whose limits count a call.
 *
 * @module
 */
import type { KeyConfig } from "../config/key.ts";
import type { TeamConfig } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { LimitSubject } from "../limits/limiter.ts";

/**
 * Names the subjects whose limits count: the key, its team and the provider.
 *
 * @param settings Settings of the team of the key; `undefined` if there is no such team
 * @throws {GatewayError} `team_not_configured`
 */
export function subjectsOf(
  { id, team, limits }: KeyConfig,
  { subjects }: { readonly subjects: readonly LimitSubject[] },
  settings: TeamConfig | undefined,
): readonly LimitSubject[] {
  if (limits === undefined && team === undefined) return subjects;
  const own = limits === undefined ? [] : [{ name: `key:${id}`, limits }];
  if (team === undefined) return [...own, ...subjects];
  if (settings === undefined) throw new GatewayError("team_not_configured");
  return [...own, { name: `team:${team}`, limits: settings.limits }, ...subjects];
}
