/**
 * The teams that keys can belong to: those of the configuration, and those that operators create. A
 * new team works at once in all gateways, and a change within a second.
 *
 * @module
 */
import type { TeamConfig, TeamPolicy } from "../config/team.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type Clock, systemClock } from "../exchange/clock.ts";
import { KeyStoreError } from "./key_store.ts";
import { readTeam, type StoredTeam, type TeamStore, writeTeam } from "./team_store.ts";

/**
 * Age up to which stored teams are used without waiting, and age from which they are read again.
 * Milliseconds.
 */
const FRESH_MS = 1000;
const REFRESH_MS = 500;
/** Number of tries to change a team that others change too. */
const MAX_TRIES = 20;

/** Teams by their names. */
export type ConfiguredTeams = Readonly<Record<string, TeamConfig>>;

/** The teams of the configuration and the stored ones. */
export class TeamDirectory {
  readonly #configured: ConfiguredTeams;
  readonly #store: TeamStore | undefined;
  readonly #clock: Clock;
  #stored: ReadonlyMap<string, StoredTeam> = new Map();
  /** Teams that the store had before it lost data. They stay in effect until it is complete. */
  #lost: ReadonlyMap<string, StoredTeam> = new Map();
  #isComplete = true;
  #readAt = -Infinity;
  #reading: Promise<void> | undefined;

  /** @param store Storage of further teams; `undefined` if only the configuration has teams */
  constructor(configured: ConfiguredTeams, store?: TeamStore, clock: Clock = systemClock) {
    this.#configured = configured;
    this.#store = store;
    this.#clock = clock;
  }

  /** True if no team can be created. */
  get isReadOnly(): boolean {
    return this.#store === undefined;
  }

  /** False if the store has lost data, so that a team that is not found can exist. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** The teams as last read. A team of the configuration hides a stored one of the same name. */
  get byName(): ConfiguredTeams {
    const stored: Record<string, TeamConfig> = {};
    for (const [name, team] of [...this.#lost, ...this.#stored]) {
      if (team.policy !== undefined) stored[name] = team.policy;
    }
    // First, because they are listed first; and last, because they hide stored ones.
    return { ...this.#configured, ...stored, ...this.#configured };
  }

  /** The stored teams as last read, by name. */
  get stored(): ReadonlyMap<string, StoredTeam> {
    return this.#stored;
  }

  /** Returns whether a team is in the configuration. */
  isConfigured(name: string): boolean {
    return Object.hasOwn(this.#configured, name);
  }

  /**
   * Reads the stored teams again, for an operator.
   *
   * @returns All teams
   * @throws {KeyStoreUnavailable} If they cannot be read
   */
  async load(): Promise<ConfiguredTeams> {
    await this.#readAgain(true);
    return this.byName;
  }

  /**
   * Finds a team. While the store fails or has lost data, the teams that were read last still apply.
   *
   * @throws {GatewayError} `key_store_unavailable` for a team that was not read before
   */
  find(name: string): TeamConfig | undefined | Promise<TeamConfig | undefined> {
    if (this.isConfigured(name)) return this.#configured[name];
    if (this.#store === undefined) return undefined;
    const found = this.#findRead(name);
    const age = this.#clock.monotonic() - this.#readAt;
    if (found === undefined || age >= FRESH_MS) return this.#findAgain(name, found);
    if (age >= REFRESH_MS) this.#refresh().catch(() => {});
    return found;
  }

  /**
   * Changes a stored team atomically.
   *
   * @param change From its current settings (`undefined` if there is no such team) to the new ones
   * (`undefined` removes it). Can be called again if another process has changed the team
   * @throws {KeyStoreError} If the change is refused
   * @throws {KeyStoreUnavailable} If it cannot be written
   */
  async change(
    name: string,
    change: (current: StoredTeam | undefined) => TeamPolicy | undefined,
  ): Promise<void> {
    if (this.#store === undefined) {
      const fix = 'set keys to { "file": "gateway-keys.json" } or "redis"';
      throw new KeyStoreError(`Cannot store teams next to keys of the configuration: ${fix}`);
    }
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      await this.load();
      const current = this.#stored.get(name);
      const next = change(current);
      const record = next && writeTeam(next);
      if (!await this.#store.replace(name, current?.record, record)) continue;
      await this.load();
      return;
    }
    throw new KeyStoreError("Cannot change the team: others keep changing it. Try again");
  }

  async #findAgain(name: string, found: TeamPolicy | undefined): Promise<TeamConfig | undefined> {
    try {
      await (found === undefined ? this.#readAgain() : this.#refresh());
    } catch (cause) {
      const known = this.#findRead(name);
      if (known === undefined) throw new GatewayError("key_store_unavailable", { cause });
      return known;
    }
    const known = this.#findRead(name);
    const isUnknown = known === undefined && !this.#stored.has(name);
    if (isUnknown && !this.#isComplete) {
      const cause = new Error("The store of teams has lost data");
      throw new GatewayError("key_store_unavailable", { cause });
    }
    return known;
  }

  /** Finds a team among those that were read. */
  #findRead(name: string): TeamPolicy | undefined {
    return (this.#stored.get(name) ?? this.#lost.get(name))?.policy;
  }

  /** Reads the stored teams after a running read, which can have begun before the last change. */
  async #readAgain(isAdministrative = false): Promise<void> {
    await this.#reading?.catch(() => {});
    await this.#refresh(isAdministrative);
  }

  /** Reads the stored teams. Concurrent calls share one read. */
  #refresh(isAdministrative = false): Promise<void> {
    this.#reading ??= this.#read(isAdministrative).finally(() => this.#reading = undefined);
    return this.#reading;
  }

  async #read(isAdministrative: boolean): Promise<void> {
    if (this.#store === undefined) return;
    // Also after a failure, so that calls of known teams do not all wait for a store that fails.
    this.#readAt = this.#clock.monotonic();
    try {
      const { records, isComplete } = await this.#store.read(isAdministrative);
      if (!isComplete) this.#remember();
      const before = this.#learn(records);
      // A team that disappears after the loss was deleted.
      const knownAtLoss = this.#isComplete ? before : this.#lost;
      this.#lost = isComplete ? new Map() : withoutNames(knownAtLoss, records);
      this.#isComplete = isComplete;
    } catch (error) {
      this.#remember();
      throw error;
    }
  }

  /** Uses the teams that an earlier process has read, if this one has read none. */
  #remember(): void {
    if (this.#stored.size > 0 || this.#lost.size > 0) return;
    const remembered = this.#store?.remembered?.();
    if (remembered !== undefined) this.#learn(remembered);
  }

  /** Replaces the teams by the records that were read. @returns All teams that were known before */
  #learn(records: ReadonlyMap<string, string>): ReadonlyMap<string, StoredTeam> {
    const before = new Map([...this.#lost, ...this.#stored]);
    this.#stored = new Map(Array.from(records, ([name, record]) => {
      const known = before.get(name);
      return [name, known?.record === record ? known : readTeam(record)];
    }));
    return before;
  }
}

function withoutNames(
  teams: ReadonlyMap<string, StoredTeam>,
  names: ReadonlyMap<string, unknown>,
): ReadonlyMap<string, StoredTeam> {
  return new Map(Array.from(teams).filter(([name]) => !names.has(name)));
}
