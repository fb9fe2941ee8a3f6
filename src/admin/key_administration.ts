/**
 * What an administrator does with gateway keys, the same from the command line and at the admin API.
 *
 * @module
 */
import { type KeyPolicy, type LimitSet, toKeyJson } from "../config/key.ts";
import type { Digest } from "../keys/key_format.ts";
import { createKey, keyState, type NewKey, revokeKey, rotateKey, suspendKey } from "../keys/lifecycle.ts";
import { type GatewayKey, type KeyQuery, type KeyRegistry, KeyStoreError } from "../keys/key_store.ts";
import type { Limiter } from "../limits/memory_limiter.ts";

/** What an administrator needs. */
export interface KeyAdministrationParts {
  readonly keys: KeyRegistry;
  readonly digest: Digest;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
  /** Names of the providers that are configured: a key for any other would be good for nothing. */
  readonly providers: readonly string[];
  /** Who counts, where somebody does: the command line has nobody beside it. */
  readonly limiter?: Limiter | undefined;
}

/** A key as administrators see it: everything but its digests. */
export type KeyView = Readonly<Record<string, unknown>> & {
  readonly id: string;
  readonly state: string;
  readonly name?: string;
  readonly expires?: string;
  readonly lastUsed?: string;
  readonly providers?: readonly string[];
  readonly models?: readonly string[];
  readonly limits?: Readonly<Record<string, unknown>>;
};

/** The verbs. Each throws {@link KeyStoreError} where it is refused. */
export class KeyAdministration {
  readonly #parts: KeyAdministrationParts;

  /** @param parts What it needs */
  constructor(parts: KeyAdministrationParts) {
    this.#parts = parts;
  }

  /** Makes a key. @returns It, shown this once, and how administrators see it */
  async create(policy: KeyPolicy): Promise<{ key: string; view: KeyView }> {
    const { keys, digest, now } = this.#parts;
    this.#assertProviders(policy);
    if (policy.expiresAt !== undefined && policy.expiresAt <= now()) {
      throw new KeyStoreError("Cannot make a key that has expired already: give a time to come");
    }
    const made = createKey(policy, { digest, now: now() });
    return { key: made.key, view: this.#view(await keys.change(made.record.id, () => made.record)) };
  }

  /**
   * @param query Which
   * @param options Whether to look up what each has taken of its limits, too
   * @returns The newest first
   */
  async list(query: KeyQuery, { withUse = false }: { withUse?: boolean } = {}): Promise<KeyView[]> {
    const { keys } = this.#parts;
    const found = await keys.list(query);
    const used = await keys.lastUsed(found.map(({ id }) => id));
    return await Promise.all(found.map((key) => {
      const view = this.#view(key, used.get(key.id));
      return withUse ? this.#withUse(key, view) : view;
    }));
  }

  /** @returns The key, with what it has taken of its limits where that is known here */
  async show(id: string): Promise<KeyView> {
    const { keys } = this.#parts;
    const key = await keys.get(id) ?? refuseUnknown();
    const used = await keys.lastUsed([id]);
    return await this.#withUse(key, this.#view(key, used.get(id)));
  }

  async #withUse({ id, limits }: GatewayKey, view: KeyView): Promise<KeyView> {
    const { limiter } = this.#parts;
    if (limiter === undefined || limits === undefined) return view;
    const standings = await limiter.standing({ name: `key:${id}`, limits });
    return {
      ...view,
      use: standings.map(({ name, limit, used, resetMs }) => ({
        name,
        limit,
        used,
        ...(name !== "concurrency" && { resetsIn: `${Math.ceil(resetMs / 1000)}s` }),
      })),
    };
  }

  /** Changes what a key may do. @param patch What to set; `undefined` takes a setting away */
  async update(id: string, patch: Partial<KeyPolicy>): Promise<KeyView> {
    this.#assertProviders(patch);
    return this.#view(
      await this.#parts.keys.change(id, (current = refuseUnknown()) => ({
        ...current,
        ...patch,
        ...(patch.limits !== undefined && { limits: mergeLimits(current.limits, patch.limits) }),
      })),
    );
  }

  /** Ends a key for good. */
  async revoke(id: string): Promise<KeyView> {
    const { keys, now } = this.#parts;
    return this.#view(await keys.change(id, (current = refuseUnknown()) => revokeKey(current, now())));
  }

  /** Suspends a key, with both its secrets, until it is enabled. */
  async disable(id: string): Promise<KeyView> {
    return this.#view(await this.#parts.keys.change(id, (current = refuseUnknown()) => suspendKey(current, true)));
  }

  /** Takes {@link disable} back. */
  async enable(id: string): Promise<KeyView> {
    return this.#view(await this.#parts.keys.change(id, (current = refuseUnknown()) => suspendKey(current, false)));
  }

  /** Gives a key a new secret. @param overlapMs For how long the old one stays good, milliseconds */
  async rotate(id: string, overlapMs: number): Promise<{ key: string; view: KeyView }> {
    const { keys, digest, now } = this.#parts;
    let rotated: NewKey | undefined;
    const record = await keys.change(id, (current = refuseUnknown()) => {
      rotated = rotateKey(current, overlapMs, { digest, now: now() });
      return rotated.record;
    });
    return { key: rotated?.key ?? "", view: this.#view(record) };
  }

  #view(key: GatewayKey, lastUsed?: number): KeyView {
    const now = this.#parts.now();
    const { digest: _, previous: __, ...json } = toKeyJson(key);
    const previousExpiresAt = key.previous?.expiresAt ?? 0;
    return {
      ...json,
      id: key.id,
      state: keyState(key, now),
      ...(previousExpiresAt > now && { previousExpires: new Date(previousExpiresAt).toISOString() }),
      ...(lastUsed !== undefined && { lastUsed: new Date(lastUsed).toISOString() }),
    };
  }

  #assertProviders({ providers = [] }: Partial<KeyPolicy>): void {
    const stranger = providers.find((name) => !this.#parts.providers.includes(name));
    if (stranger === undefined) return;
    throw new KeyStoreError(
      `Cannot allow a provider that is not configured: expected one of ${this.#parts.providers.join(", ")}`,
    );
  }
}

/** Some limits laid over others; nothing where none is left. */
function mergeLimits(current: LimitSet | undefined, patch: LimitSet): LimitSet | undefined {
  const merged = { ...current, ...patch };
  return Object.values(merged).some((limit) => limit !== undefined) ? merged : undefined;
}

/** There is no key with the id that was asked for. */
export class UnknownKey extends KeyStoreError {
  override readonly name = "UnknownKey";
}

function refuseUnknown(): never {
  throw new UnknownKey("Cannot find a key with this id: sallyport keys list shows all");
}
