/**
 * Administration of gateway keys, shared by the command line and the admin API.
 *
 * @module
 */
import { findKeyMisfits, type Surroundings } from "../config/cross_checks.ts";
import { type KeyInput, type KeyPolicy, toKeyJson } from "../config/key.ts";
import type { LimitSet } from "../config/limit_set.ts";
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
import { type KeyState, keyState } from "../keys/policy.ts";
import type { Limiter } from "../limits/limiter.ts";
import { type LimitUse, toLimitUse } from "./limit_use.ts";

/** Parts of {@link KeyAdministration}. */
export interface KeyAdministrationParts {
  readonly keys: KeyRegistry;
  readonly digest: Digest;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
  /** The configuration. A key that does not fit it is refused, because it could make no calls. */
  readonly config: Surroundings;
  /** The limiter that counts the use of keys. Not set at the command line, which has none. */
  readonly limiter?: Limiter | undefined;
}

/** A key as administrators see it: everything but its digests. */
export interface KeyView extends Omit<KeyInput, "key" | "digest" | "previous"> {
  /**
   * Of keys that are active: `unreadable` if this version does not understand its record,
   * `team_not_configured` if its calls are refused for that reason.
   */
  readonly state: KeyState | "unreadable" | "team_not_configured";
  /** Reason for refusal: the part of its record that this version does not understand. */
  readonly unreadable?: string;
  /** Names of fields that this version does not understand. They are kept. */
  readonly unknown?: readonly string[];
  /** Time until which the previous secret is valid after a rotation. */
  readonly previousExpires?: string;
  readonly lastUsed?: string;
  readonly use?: readonly LimitUse[];
}

/** A key with its secret. Only the answer that created the secret shows it. */
export interface NewKeyView extends KeyView {
  readonly key: string;
}

/** Operations on keys. Each throws {@link KeyStoreError} if it is refused. */
export class KeyAdministration {
  readonly #parts: KeyAdministrationParts;

  constructor(parts: KeyAdministrationParts) {
    this.#parts = parts;
  }

  /** True if keys are in the configuration and can only be viewed. */
  get isReadOnly(): boolean {
    return this.#parts.keys.isReadOnly === true;
  }

  /** Creates a key. The key itself is shown only once. */
  async create(policy: KeyPolicy): Promise<{ key: string; view: KeyView }> {
    const { keys, digest, now } = this.#parts;
    this.#assertFits(policy, Object.keys(policy));
    if (policy.expiresAt !== undefined && policy.expiresAt <= now()) {
      throw new KeyStoreError("Cannot make a key that has expired already: set a later time");
    }
    const made = createKey(policy, { digest, now: now() });
    return {
      key: made.key,
      view: this.#view(await keys.change(made.record.id, () => made.record)),
    };
  }

  /** Lists keys, the newest first. With `withUse`, each has the use of its limits. */
  async list(query: KeyQuery, { withUse = false }: { withUse?: boolean } = {}): Promise<KeyView[]> {
    const { keys } = this.#parts;
    const found = await keys.list(query);
    const used = await keys.lastUsed(found.map(({ id }) => id));
    return await Promise.all(found.map((key) => {
      const view = this.#view(key, used.get(key.id));
      return withUse ? this.#withUse(key, view) : view;
    }));
  }

  /** Shows a key, with the use of its limits if there is a limiter. */
  async show(id: string): Promise<KeyView> {
    const { keys } = this.#parts;
    const key = await keys.get(id) ?? refuseUnknown();
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
  async update(id: string, patch: Partial<KeyPolicy>): Promise<KeyView> {
    return this.#view(
      await this.#parts.keys.change(id, (current = refuseUnknown()) => {
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
      }),
    );
  }

  /** Revokes a key, with both its secrets. */
  async revoke(id: string): Promise<KeyView> {
    const { keys, now } = this.#parts;
    return this.#view(
      await keys.change(id, (current = refuseUnknown()) => revokeKey(current, now())),
    );
  }

  /** Disables a key, with both its secrets, until it is enabled. */
  async disable(id: string): Promise<KeyView> {
    return this.#view(
      await this.#parts.keys.change(id, (current = refuseUnknown()) => suspendKey(current, true)),
    );
  }

  /** Enables a disabled key. */
  async enable(id: string): Promise<KeyView> {
    return this.#view(
      await this.#parts.keys.change(id, (current = refuseUnknown()) => suspendKey(current, false)),
    );
  }

  /** Creates a new secret for a key. The old one stays valid for `overlapMs`. */
  async rotate(id: string, overlapMs: number): Promise<{ key: string; view: KeyView }> {
    const { keys, digest, now } = this.#parts;
    let rotated: NewKey | undefined;
    const record = await keys.change(id, (current = refuseUnknown()) => {
      rotated = rotateKey(current, overlapMs, { digest, now: now() });
      return rotated.record;
    });
    if (rotated === undefined) throw new Error("Cannot rotate the key: the store did not read it");
    return { key: rotated.key, view: this.#view(record) };
  }

  #view(key: GatewayKey, lastUsed?: number): KeyView {
    const now = this.#parts.now();
    const { later, ...known } = key;
    const { digest: _, previous: __, ...json } = toKeyJson(known);
    const previousExpiresAt = key.previous?.expiresAt ?? 0;
    return {
      ...json,
      id: key.id,
      state: this.#stateOf(key, now),
      ...(later?.refusal !== undefined && { unreadable: later.refusal }),
      ...(later !== undefined && { unknown: unknownOf(later) }),
      ...(previousExpiresAt > now &&
        { previousExpires: new Date(previousExpiresAt).toISOString() }),
      ...(lastUsed !== undefined && { lastUsed: new Date(lastUsed).toISOString() }),
    };
  }

  #stateOf(key: GatewayKey, now: number): KeyView["state"] {
    const state = keyState(key, now);
    if (state !== "active") return state;
    if (key.later?.refusal !== undefined) return "unreadable";
    const { teams } = this.#parts.config;
    return key.team === undefined || Object.hasOwn(teams, key.team) ? state : "team_not_configured";
  }

  /** Checks the changed settings. @throws {KeyStoreError} If one does not fit the configuration */
  #assertFits(policy: Partial<KeyPolicy>, changed: readonly string[]): void {
    const { config } = this.#parts;
    const misfit = findKeyMisfits(policy, config).find(({ path }) =>
      changed.includes(String(path[0]))
    );
    if (misfit === undefined) return;
    const { path: [setting], message } = misfit;
    if (setting === "providers") {
      const names = Object.keys(config.providers).join(", ");
      throw new KeyStoreError(
        `Cannot allow a provider that is not configured: expected one of ${names}`,
      );
    }
    throw new KeyStoreError(
      setting === "team"
        ? `Cannot put the key into a team that is not configured: ${message}`
        : `Cannot count by these limits: ${message}`,
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

/** Merges changed limits into the current ones. Returns `undefined` if none remains. */
function mergeLimits(current: LimitSet | undefined, patch: LimitSet): LimitSet | undefined {
  const merged = { ...current, ...patch };
  return Object.values(merged).some((limit) => limit !== undefined) ? merged : undefined;
}

/** Error for an unknown key id. */
export class UnknownKey extends KeyStoreError {
  override readonly name = "UnknownKey";
}

function refuseUnknown(): never {
  throw new UnknownKey(ERRORS.key_not_found.message);
}
