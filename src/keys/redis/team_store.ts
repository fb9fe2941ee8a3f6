/**
 * Teams in Redis, next to the keys.
 *
 * @module
 */
import type { RedisClient } from "../../storage/redis_client.ts";
import type { RedisCommand } from "../../storage/redis_command.ts";
import type { KeySnapshot } from "../key_snapshot_file.ts";
import type { TeamRecords, TeamStore } from "../team_store.ts";
import { READ_TEAMS, REPLACE_TEAM, type ReplaceTeamCall, toKeyNames } from "./key_scripts.ts";
import { explainFailure } from "./store_failure.ts";

const UNAVAILABLE = "Cannot use the teams in Redis: check that it runs, its URL and its log";

type Replacement = Omit<ReplaceTeamCall, "teamsKey">;

/** The parts of the key store that its teams use. */
export interface KeyStoreParts {
  /**
   * Returns the generation of the keys that this process has met. If Redis does not have it any
   * more, it has lost teams too.
   */
  readonly generation: () => string | undefined;
  /** The snapshot, if there is one. */
  readonly snapshot?: KeySnapshot | undefined;
}

/** Teams in Redis. */
export class RedisTeamStore implements TeamStore {
  readonly #snapshot: KeySnapshot | undefined;
  readonly #read: RedisCommand<void, TeamRecords>;
  readonly #replace: RedisCommand<Replacement, boolean>;

  constructor(client: RedisClient, keys: KeyStoreParts) {
    this.#snapshot = keys.snapshot;
    const { teams: teamsKey, generations: generationsKey } = toKeyNames(client.isCluster);
    this.#read = client.command({
      script: READ_TEAMS,
      write: () => ({ teamsKey, generationsKey, own: keys.generation() ?? "" }),
      read: toTeamRecords,
    });
    this.#replace = client.command({
      script: REPLACE_TEAM,
      write: (call: Replacement) => ({ teamsKey, ...call }),
      read: (reply) => reply === 1,
    });
  }

  async read(isAdministrative = false): Promise<TeamRecords> {
    const found = await this.#explain(() => this.#read(undefined, { isAdministrative }));
    if (found.isComplete) this.#snapshot?.seeTeams(found.records);
    return found;
  }

  remembered(): ReadonlyMap<string, string> | undefined {
    return this.#snapshot?.teams;
  }

  async replace(
    name: string,
    current: string | undefined,
    next: string | undefined,
  ): Promise<boolean> {
    const call = { name, current: current ?? "", next: next ?? "" };
    return await this.#explain(() => this.#replace(call, { isAdministrative: true }));
  }

  #explain<T>(act: () => Promise<T>): Promise<T> {
    return explainFailure(UNAVAILABLE, act);
  }
}

/** Reads the reply of {@link READ_TEAMS}. */
function toTeamRecords(reply: unknown): TeamRecords {
  const [isLost, ...texts] = Array.isArray(reply) ? reply : [];
  if (isLost !== 0 && isLost !== 1) throw new Error("no teams");
  const records = new Map<string, string>();
  for (let index = 0; index < texts.length; index += 2) {
    records.set(String(texts[index]), String(texts[index + 1]));
  }
  return { records, isComplete: isLost === 0 };
}
