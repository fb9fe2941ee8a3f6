/**
 * Teams of keys, for reports. Usage is stored by key, and a report shows the key's current team.
 * For an identity token, the team of its claims is stored with the usage.
 *
 * @module
 */
import { type KeyConfig, TOKEN_ID_PREFIX } from "../config/key.ts";
import { OTHER_NAME, type UsageRow, UsageUnavailable } from "./counts.ts";
import { WideMap } from "./wide_map.ts";

/** Team of removed keys, and of keys without a team. */
const REMOVED = "(removed)";
const NONE = "(none)";
/** Team of identity tokens without a team, and of usage from before teams were stored. */
const TOKENS = "(identity tokens)";

/** Source of the names and the teams of keys. */
export interface KeyNames {
  get(id: string): Promise<Pick<KeyConfig, "name" | "team"> | undefined>;
}

/** The teams of keys. Each is looked up once. */
export class TeamLookup {
  readonly #keys: KeyNames;
  readonly #teams = new WideMap<string>();

  constructor(keys: KeyNames) {
    this.#keys = keys;
  }

  /**
   * Looks up the teams of the keys of some rows.
   *
   * @throws {UsageUnavailable} If a team can't be looked up: sums by team would be wrong
   */
  async learn(rows: readonly UsageRow[]): Promise<void> {
    const unknown = new Set(
      rows.flatMap(({ key, team }) =>
        team === undefined && this.#teams.get(key) === undefined ? [key] : []
      ),
    );
    const found = await Promise.all(Array.from(unknown, async (id) => {
      if (id === OTHER_NAME) return [id, OTHER_NAME] as const;
      if (id.startsWith(TOKEN_ID_PREFIX)) return [id, TOKENS] as const;
      const key = await this.#keys.get(id);
      return [id, key === undefined ? REMOVED : key.team ?? NONE] as const;
    })).catch((cause) => {
      throw new UsageUnavailable("Cannot report usage by team: the keys can't be read", { cause });
    });
    for (const [id, team] of found) this.#teams.add(id, team);
  }

  /**
   * Returns only the rows of a team.
   *
   * @throws {UsageUnavailable} If a team can't be looked up, see {@link learn}
   */
  async ofTeam(rows: readonly UsageRow[], team: string): Promise<readonly UsageRow[]> {
    await this.learn(rows);
    return rows.filter((row) => this.of(row) === team);
  }

  /** Returns the team of a row. Its key must have been looked up. */
  of({ key, team }: Pick<UsageRow, "key" | "team">): string {
    return team ?? this.#teams.get(key) ?? NONE;
  }
}
