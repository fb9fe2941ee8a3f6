/**
 * Reports of teams: their limits, and the use of these by all keys of the team.
 *
 * @module
 */
import { toLimitsJson, type WrittenLimits } from "../config/limit_set.ts";
import type { TeamConfig } from "../config/team.ts";
import type { Limiter } from "../limits/limiter.ts";
import { type LimitUse, toLimitUse } from "./limit_use.ts";

/** A team as administrators see it. */
export interface TeamView {
  readonly name: string;
  readonly limits: WrittenLimits;
  readonly use: readonly LimitUse[];
}

/** Reports of the configured teams. */
export class TeamReports {
  readonly #teams: Readonly<Record<string, TeamConfig>>;
  readonly #limiter: Limiter;

  constructor(teams: Readonly<Record<string, TeamConfig>>, limiter: Limiter) {
    this.#teams = teams;
    this.#limiter = limiter;
  }

  /** Reports all teams, in the order of the configuration. */
  async list(): Promise<TeamView[]> {
    return await Promise.all(
      Object.entries(this.#teams).map(async ([name, team]) => {
        const { limits } = team;
        const statuses = await this.#limiter.status({ name: `team:${name}`, limits });
        return { name, limits: toLimitsJson(limits), use: statuses.map(toLimitUse) };
      }),
    );
  }
}
