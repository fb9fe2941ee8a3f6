/**
 * Administration of gateway keys, shared by the command line and the admin API.
 *
 * @module
 */
import { findKeyMisfits, type Surroundings } from "../config/cross_checks.ts";
import { type KeyInput, type KeyPolicy, toKeyJson } from "../config/key.ts";
import { formatPath } from "../config/issue.ts";
import { mergeLimits } from "../config/limit_set.ts";
import { ERRORS } from "../errors/codes.ts";
import type { Digest } from "../keys/key_format.ts";
import { replaceLater } from "../keys/key_record.ts";
import { createKey, type NewKey, revokeKey, rotateKey, suspendKey } from "../keys/lifecycle.ts";
import {
  type GatewayKey,
  type KeyQuery,
  type KeyRegistry,
  KeyStoreError,
  type LaterPart,
} from "../keys/key_store.ts";
import { findKeyState, type KeyState } from "../keys/policy.ts";
import { TeamDirectory } from "../keys/team_directory.ts";
import type { SettingChange } from "../keys/change_log.ts";
import type { Limiter } from "../limits/limiter.ts";
import { type Author, type ChangeAction, type Changes, compareSettings } from "./changes.ts";
import { type LimitUse, toLimitUse } from "./limit_use.ts";

/** Parts of {@link KeyAdministration}. */
export interface KeyAdministrationParts {
  readonly keys: KeyRegistry;
  readonly digest: Digest;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
  /** The list of changes. */
  readonly changes: Pick<Changes, "add">;
  /** The configuration. A key that does not fit it is refused, because it could make no calls. */
  readonly config: Surroundings;
  /** The teams of keys. Default: the teams of the configuration. */
  readonly teams?: TeamDirectory | undefined;
  /** The limiter that counts the use of keys. Not set at the command line, which has none. */
  readonly limiter?: Limiter | undefined;
}

/** A key as administrators see it: everything but its digests. */
export interface KeyView extends Omit<KeyInput, "key" | "digest" | "previous"> {
  /**
   * Of keys that are active: `unreadable` if this version does not understand its record, or its
   * budget is in another currency than the prices, `team_not_configured` if its calls are refused
   * for that reason.
   */
  readonly state: KeyState | "unreadable" | "team_not_configured";
  /** Reason for the state `unreadable`. */
  readonly unreadable?: string;
  /** Names of fields that this version does not understand. They are kept. */
  readonly unknown?: readonly string[];
  /** Time until which the previous secret is valid after a rotation. */
  readonly previousExpires?: string;
  readonly lastUsed?: string;
  readonly use?: readonly LimitUse[];
}

/** States of keys, as administrators see them. */
export const KEY_STATES: readonly KeyView["state"][] = [
  "active",
  "disabled",
  "revoked",
  "expired",
  "unreadable",
  "team_not_configured",
];

/** Message for a text that is no state. */
export const KEY_STATE_FORM: string = `expected one of ${KEY_STATES.join(", ")}`;

/** A query for a page of keys. */
export interface KeyPageQuery extends KeyQuery {
  /** Only keys in this state. */
  readonly state?: KeyView["state"] | undefined;
}

/** A page of keys, and the id that the next page begins after; `null` on the last page. */
export interface KeyPage {
  readonly keys: readonly KeyView[];
  readonly next: string | null;
}

/** Number of keys that are read at once while keys of one state are searched. */
const READ_AT_ONCE = 1000;
/** Maximum number of keys that are looked at for one page of keys in one state. */
const MAX_SCANNED = 20_000;

/** A key with its secret. Only the answer that created the secret shows it. */
export interface NewKeyView extends KeyView {
  readonly key: string;
}

/** Operations on keys. Each throws {@link KeyStoreError} if it is refused. */
export class KeyAdministration {
  readonly #parts: KeyAdministrationParts;
  readonly #teams: TeamDirectory;

  constructor(parts: KeyAdministrationParts) {
    this.#parts = parts;
    this.#teams = parts.teams ?? new TeamDirectory(parts.config.teams);
  }

  /** True if keys are in the configuration and can only be viewed. */
  get isReadOnly(): boolean {
    return this.#parts.keys.isReadOnly === true;
  }

  /** Creates a key. The key itself is shown only once. */
  async create(policy: KeyPolicy, by: Author): Promise<{ key: string; view: KeyView }> {
    const { keys, digest, now } = this.#parts;
    await this.#teams.load();
    this.#assertFits(policy, Object.keys(policy));
    if (policy.expiresAt !== undefined && policy.expiresAt <= now()) {
      throw new KeyStoreError(
        "Cannot make a key that has expired already: set a later time",
        { param: "expires" },
      );
    }
    const made = createKey(policy, { digest, now: now() });
    const record = await keys.change(made.record.id, () => made.record);
    await this.#note("create", record, compareSettings({}, toKeyJson(record)), by);
    return { key: made.key, view: this.#view(record) };
  }

  /** Lists keys, the newest first. With `withUse`, each has the use of its limits. */
  async list(query: KeyQuery, { withUse = false }: { withUse?: boolean } = {}): Promise<KeyView[]> {
    const found = await this.#parts.keys.list(query);
    await this.#teams.load();
    return await this.#views(found, { withUse });
  }

  async #views(
    found: readonly GatewayKey[],
    { withUse = false }: { withUse?: boolean },
  ): Promise<KeyView[]> {
    const used = await this.#parts.keys.lastUsed(found.map(({ id }) => id));
    return await Promise.all(found.map((key) => {
      const view = this.#view(key, used.get(key.id));
      return withUse ? this.#withUse(key, view) : view;
    }));
  }

  /**
   * Lists a page of keys, the newest first. A state is known only after a key was read, so a page of
   * one state can be shorter than its limit and still have a next page.
   */
  async page(
    { state, ...query }: KeyPageQuery,
    options: { withUse?: boolean } = {},
  ): Promise<KeyPage> {
    const { limit } = query;
    if (state === undefined) {
      const keys = await this.list(query, options);
      return { keys, next: keys.length === limit ? keys.at(-1)?.id ?? null : null };
    }
    const { keys, now } = this.#parts;
    await this.#teams.load();
    const found: GatewayKey[] = [];
    let { after } = query;
    for (let scanned = 0; scanned < MAX_SCANNED; scanned += READ_AT_ONCE) {
      const read = await keys.list({ ...query, after, limit: READ_AT_ONCE });
      for (const key of read) {
        if (this.#stateOf(key, now()) !== state) continue;
        found.push(key);
        if (found.length === limit) {
          return { keys: await this.#views(found, options), next: key.id };
        }
      }
      after = read.at(-1)?.id;
      if (read.length < READ_AT_ONCE) {
        return { keys: await this.#views(found, options), next: null };
      }
    }
    return { keys: await this.#views(found, options), next: after ?? null };
  }

  /** Shows a key, with the use of its limits if there is a limiter. */
  async show(id: string): Promise<KeyView> {
    const { keys } = this.#parts;
    const key = await keys.get(id) ?? refuseUnknown();
    await this.#teams.load();
    const used = await keys.lastUsed([id]);
    return await this.#withUse(key, this.#view(key, used.get(id)));
  }

  async #withUse({ id, limits }: GatewayKey, view: KeyView): Promise<KeyView> {
    const { limiter } = this.#parts;
    if (limiter === undefined || limits === undefined) return view;
    const statuses = await limiter.status({ name: `key:${id}`, limits });
    return { ...view, use: statuses.map(toLimitUse) };
  }

  /** Changes the settings of a key; `undefined` removes one. */
  async update(id: string, patch: Partial<KeyPolicy>, by: Author): Promise<KeyView> {
    await this.#teams.load();
    return await this.#change("update", id, by, (current) => {
      const limits = patch.limits === undefined
        ? {}
        : { limits: mergeLimits(current.limits, patch.limits) };
      const changed = { ...current, ...patch, ...limits };
      // Settings that no longer fit because the configuration has changed do not prevent changes
      // of other settings.
      this.#assertFits(
        changed,
        "providers" in patch ? [...Object.keys(patch), "limits"] : Object.keys(patch),
      );
      return replaceLater(changed, namesOf(patch));
    });
  }

  /** Revokes a key, with both its secrets. */
  async revoke(id: string, by: Author): Promise<KeyView> {
    const now = this.#parts.now();
    return await this.#change("revoke", id, by, (current) => revokeKey(current, now));
  }

  /** Disables a key, with both its secrets, until it is enabled. */
  async disable(id: string, by: Author): Promise<KeyView> {
    return await this.#change("disable", id, by, (current) => suspendKey(current, true));
  }

  /** Enables a disabled key. */
  async enable(id: string, by: Author): Promise<KeyView> {
    await this.#teams.load();
    return await this.#change("enable", id, by, (current) => suspendKey(current, false));
  }

  /** Creates a new secret for a key. The old one stays valid for `overlapMs`. */
  async rotate(
    id: string,
    overlapMs: number,
    by: Author,
  ): Promise<{ key: string; view: KeyView }> {
    const { keys, digest, now } = this.#parts;
    await this.#teams.load();
    let rotated: NewKey | undefined;
    const record = await keys.change(id, (current = refuseUnknown()) => {
      rotated = rotateKey(current, overlapMs, { digest, now: now() });
      return rotated.record;
    });
    if (rotated === undefined) throw new Error("Cannot rotate the key: the store did not read it");
    const until = record.previous?.expiresAt ?? now();
    const settings = [{ setting: "old secret until", to: new Date(until).toISOString() }];
    await this.#note("rotate", record, settings, by);
    return { key: rotated.key, view: this.#view(record) };
  }

  /** Changes a key, and adds the change to the list. */
  async #change(
    action: ChangeAction,
    id: string,
    by: Author,
    change: (current: GatewayKey) => GatewayKey,
  ): Promise<KeyView> {
    let before: GatewayKey | undefined;
    const record = await this.#parts.keys.change(id, (current = refuseUnknown()) => {
      before = current;
      return change(current);
    });
    if (before === undefined) throw new Error("Cannot change the key: the store did not read it");
    await this.#note(action, record, compareSettings(toKeyJson(before), toKeyJson(record)), by);
    return this.#view(record);
  }

  async #note(
    action: ChangeAction,
    { id, name, team }: GatewayKey,
    settings: readonly SettingChange[],
    by: Author,
  ): Promise<void> {
    await this.#parts.changes.add({ action, of: "key", id, name, team, settings }, by);
  }

  #view(key: GatewayKey, lastUsed?: number): KeyView {
    const now = this.#parts.now();
    const { later, ...known } = key;
    const { digest: _, previous: __, ...json } = toKeyJson(known);
    const previousExpiresAt = key.previous?.expiresAt ?? 0;
    const unreadable = this.#refusalOf(key);
    return {
      ...json,
      id: key.id,
      state: this.#stateOf(key, now),
      ...(unreadable !== undefined && { unreadable }),
      ...(later !== undefined && { unknown: unknownOf(later) }),
      ...(previousExpiresAt > now &&
        { previousExpires: new Date(previousExpiresAt).toISOString() }),
      ...(lastUsed !== undefined && { lastUsed: new Date(lastUsed).toISOString() }),
    };
  }

  /** Returns why calls with the key are refused with `key_not_understood`. */
  #refusalOf({ later, limits }: GatewayKey): string | undefined {
    const { currency } = this.#parts.config;
    const isForeign = limits?.spend !== undefined && limits.spend.currency !== currency;
    return later?.refusal ??
      (isForeign ? "its budget is in another currency than the prices" : undefined);
  }

  #stateOf(key: GatewayKey, now: number): KeyView["state"] {
    const state = findKeyState(key, now);
    if (state !== "active") return state;
    if (this.#refusalOf(key) !== undefined) return "unreadable";
    const { byName, isComplete } = this.#teams;
    // A team that the store has lost can exist: its calls are not refused for that reason.
    const isKnown = key.team === undefined || Object.hasOwn(byName, key.team) || !isComplete;
    return isKnown ? state : "team_not_configured";
  }

  /** Checks the changed settings. @throws {KeyStoreError} If one does not fit the configuration */
  #assertFits(policy: Partial<KeyPolicy>, changed: readonly string[]): void {
    const { config } = this.#parts;
    const whole = { ...config, teams: this.#teams.byName };
    const misfit = findKeyMisfits(policy, whole).find(({ path }) =>
      changed.includes(String(path[0]))
    );
    if (misfit === undefined) return;
    const { path, message } = misfit;
    const [setting] = path;
    const param = formatPath(path);
    if (setting === "providers") {
      const names = Object.keys(config.providers).join(", ");
      throw new KeyStoreError(
        `Cannot allow a provider that is not configured: expected one of ${names}`,
        { param },
      );
    }
    throw new KeyStoreError(
      setting === "team"
        ? `Cannot put the key into a team that is not configured: ${message}`
        : `Cannot count by these limits: ${message}`,
      { param },
    );
  }
}

/** Lists the settings of a patch by their names in a record. */
function namesOf({ limits, ...patch }: Partial<KeyPolicy>): string[] {
  const names = Object.keys(patch).map((name) => name === "expiresAt" ? "expires" : name);
  return [...names, ...Object.keys(limits ?? {}).map((name) => `limits.${name}`)];
}

/** Lists the names of fields that this version does not understand. Their values can be secret. */
function unknownOf({ fields, limits }: LaterPart): string[] {
  return [...Object.keys(fields), ...Object.keys(limits).map((name) => `limits.${name}`)];
}

/** Error for an unknown key id. */
export class UnknownKey extends KeyStoreError {
  override readonly name = "UnknownKey";
}

/** @throws {UnknownKey} */
export function refuseUnknown(): never {
  throw new UnknownKey(ERRORS.key_not_found.message);
}
