/**
 * Administration of teams, shared by the command line and the admin API. Teams of the configuration
 * can only be viewed.
 *
 * @module
 */
import { findTeamMisfits, type Surroundings } from "../config/cross_checks.ts";
import { formatPath } from "../config/issue.ts";
import { mergeLimits, toLimitsJson, type WrittenLimits } from "../config/limit_set.ts";
import { type TeamConfig, type TeamPolicy, toTeamJson } from "../config/team.ts";
import { TEAM_NAME_FORM } from "../config/team_name.ts";
import { ERRORS } from "../errors/codes.ts";
import { type KeyRegistry, KeyStoreError } from "../keys/key_store.ts";
import { findKeyState } from "../keys/policy.ts";
import type { TeamDirectory } from "../keys/team_directory.ts";
import { isTeamName } from "../keys/team_store.ts";
import type { Limiter } from "../limits/limiter.ts";
import { type Author, type ChangeAction, type Changes, compareSettings } from "./changes.ts";
import { type LimitUse, toLimitUse } from "./limit_use.ts";

/** Maximum number of stored teams: all are read at once. */
const MAX_TEAMS = 1000;
/** Maximum number of keys of a team that are looked at before it is deleted: the newest ones. */
const MAX_KEYS = 10_000;
/** Maximum number of keys that a refusal names. */
const MAX_NAMED = 10;

/** A team as administrators see it. */
export interface TeamView {
  readonly name: string;
  /** Only a stored team can be changed. */
  readonly source: "configuration" | "store";
  readonly limits: WrittenLimits;
  readonly heldKeys?: boolean | undefined;
  /**
   * The part of its record that this version does not understand. The calls of its keys are
   * refused.
   */
  readonly unreadable?: string | undefined;
  readonly use: readonly LimitUse[];
}

/** Parts of {@link TeamAdministration}. */
export interface TeamAdministrationParts {
  readonly teams: TeamDirectory;
  readonly keys: Pick<KeyRegistry, "list">;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
  /** The list of changes. */
  readonly changes: Pick<Changes, "add">;
  /** The configuration, which the limits of a team must fit. */
  readonly config: Surroundings;
  /** The limiter that counts the use of teams. Not set at the command line, which has none. */
  readonly limiter?: Limiter | undefined;
}

/** Operations on teams. Each throws {@link KeyStoreError} if it is refused. */
export class TeamAdministration {
  readonly #parts: TeamAdministrationParts;

  constructor(parts: TeamAdministrationParts) {
    this.#parts = parts;
  }

  /** True if no team can be created, because the keys are in the configuration. */
  get isReadOnly(): boolean {
    return this.#parts.teams.isReadOnly;
  }

  /** Lists all teams, with the use of their limits: first those of the configuration. */
  async list(): Promise<TeamView[]> {
    const { teams } = this.#parts;
    const readable = Object.entries(await teams.load());
    const unreadable = Array.from(teams.stored)
      .filter(([name, team]) => team.policy === undefined && !teams.isConfigured(name))
      .map(([name, team]): TeamView => {
        return { name, source: "store", limits: {}, unreadable: team.fault, use: [] };
      });
    const views = readable.map(([name, team]) => this.#view(name, team));
    return [...await Promise.all(views), ...unreadable];
  }

  /** Shows a team, with the use of its limits. */
  async show(name: string): Promise<TeamView> {
    return (await this.list()).find((team) => team.name === name) ?? refuseUnknown();
  }

  /** Creates a team. It works at once in all gateways. */
  async create(name: string, policy: TeamPolicy, by: Author): Promise<TeamView> {
    const { teams } = this.#parts;
    if (!isTeamName(name)) {
      throw new KeyStoreError(
        `Cannot create the team: ${TEAM_NAME_FORM}`,
        { param: "name" },
      );
    }
    this.#assertStorable(name);
    this.#assertFits(policy);
    await teams.change(name, (current) => {
      if (current !== undefined) {
        throw new KeyStoreError(
          `Cannot create the team: there is one already. Change it by sallyport teams update ${name}`,
          { param: "name" },
        );
      }
      if (teams.stored.size >= MAX_TEAMS) {
        throw new KeyStoreError(
          `Cannot create the team: there are ${MAX_TEAMS} teams, which is the maximum. Delete one`,
        );
      }
      return policy;
    });
    await this.#note("create", name, { after: policy }, by);
    return await this.show(name);
  }

  /** Changes the settings of a team; `undefined` removes one. */
  async update(name: string, patch: Partial<TeamPolicy>, by: Author): Promise<TeamView> {
    this.#assertStorable(name);
    let made: { readonly before: TeamPolicy; readonly after: TeamPolicy } | undefined;
    await this.#parts.teams.change(name, (current = refuseUnknown()) => {
      if (current.policy === undefined) {
        throw new KeyStoreError(
          `Cannot change the team: this version does not understand its ${current.fault}. ` +
            "Change it with the version that wrote it, or delete it",
        );
      }
      const { limits } = current.policy;
      const isCleared = "limits" in patch && patch.limits === undefined;
      const changed = {
        ...current.policy,
        ...patch,
        limits: isCleared ? {} : mergeLimits(limits, patch.limits ?? {}) ?? {},
      };
      if (patch.limits !== undefined) this.#assertFits(changed);
      made = { before: current.policy, after: changed };
      return changed;
    });
    await this.#note("update", name, made ?? {}, by);
    return await this.show(name);
  }

  /**
   * Deletes a team.
   *
   * @param isForced True if it is also deleted while keys use it. Their calls are then refused
   * @returns The deleted team
   */
  async delete(name: string, isForced: boolean, by: Author): Promise<TeamView> {
    const { teams } = this.#parts;
    const view = await this.show(name);
    if (!teams.stored.has(name)) this.#assertStorable(name);
    if (!isForced && !teams.isConfigured(name)) await this.#assertUnused(name);
    let before: TeamPolicy | undefined;
    await teams.change(name, (current = refuseUnknown()) => {
      before = current.policy;
      return undefined;
    });
    await this.#note("delete", name, { before }, by);
    // The view has the team of the configuration if there is one of this name.
    return before === undefined ? view : { ...await this.#view(name, before), source: "store" };
  }

  async #note(
    action: ChangeAction,
    id: string,
    { before, after }: { readonly before?: TeamPolicy | undefined; readonly after?: TeamPolicy },
    by: Author,
  ): Promise<void> {
    const toJson = (policy: TeamPolicy | undefined) =>
      policy === undefined ? {} : toTeamJson(policy);
    const settings = compareSettings(toJson(before), toJson(after));
    await this.#parts.changes.add({ action, of: "team", id, settings }, by);
  }

  async #view(name: string, { limits, heldKeys }: TeamConfig): Promise<TeamView> {
    const { limiter, teams } = this.#parts;
    const statuses = await limiter?.status({ name: `team:${name}`, limits }) ?? [];
    return {
      name,
      source: teams.isConfigured(name) ? "configuration" : "store",
      limits: toLimitsJson(limits),
      ...(heldKeys !== undefined && { heldKeys }),
      use: statuses.map(toLimitUse),
    };
  }

  /** Checks that a team is not in the configuration. @throws {KeyStoreError} */
  #assertStorable(name: string): void {
    if (!this.#parts.teams.isConfigured(name)) return;
    throw new KeyStoreError(
      `Cannot change the team: it is in the configuration, so change teams.${name} there`,
    );
  }

  /** Checks that the limits can be counted. @throws {KeyStoreError} */
  #assertFits(policy: TeamPolicy): void {
    const [misfit] = findTeamMisfits(policy, this.#parts.config);
    if (misfit === undefined) return;
    throw new KeyStoreError(
      `Cannot count by these limits: ${misfit.message}`,
      { param: formatPath(misfit.path) },
    );
  }

  /** Checks that no key uses a team. @throws {KeyStoreError} With the names of the keys */
  async #assertUnused(team: string): Promise<void> {
    const { keys, now } = this.#parts;
    const users = (await keys.list({ limit: MAX_KEYS, team })).filter((key) =>
      ["active", "disabled"].includes(findKeyState(key, now()))
    );
    if (users.length === 0) return;
    const shown = users.slice(0, MAX_NAMED).map(({ id, name }) => name ?? id).join(", ");
    const rest = users.length > MAX_NAMED ? ` and ${users.length - MAX_NAMED} more` : "";
    const count = users.length === 1 ? "1 key uses" : `${users.length} keys use`;
    throw new KeyStoreError(
      `Cannot delete the team: ${count} it: ${shown}${rest}. Move them by ` +
        "sallyport keys update ID --team NAME, or delete it with force, which refuses their calls",
    );
  }
}

/** Error for an unknown team. */
export class UnknownTeam extends KeyStoreError {
  override readonly name = "UnknownTeam";
}

/** @throws {UnknownTeam} Always */
export function refuseUnknown(): never {
  throw new UnknownTeam(ERRORS.team_not_found.message);
}
