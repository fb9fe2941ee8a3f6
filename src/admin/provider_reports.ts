/**
 * Reports of providers: the limits that all keys share, and their use.
 *
 * @module
 */
import { type LimitSet, toLimitsJson, type WrittenLimits } from "../config/limit_set.ts";
import type { Limiter } from "../limits/limiter.ts";
import { type LimitUse, toLimitUse } from "./limit_use.ts";

/** A provider as administrators see it. */
export interface ProviderView {
  readonly name: string;
  /** Left out if it has none. */
  readonly limits?: WrittenLimits;
  readonly use: readonly LimitUse[];
}

/** Reports of the configured providers. */
export class ProviderReports {
  readonly #providers: Readonly<Record<string, { readonly limits?: LimitSet | undefined }>>;
  readonly #limiter: Limiter;

  constructor(
    providers: Readonly<Record<string, { readonly limits?: LimitSet | undefined }>>,
    limiter: Limiter,
  ) {
    this.#providers = providers;
    this.#limiter = limiter;
  }

  /** Reports all providers, in the order of the configuration. */
  async list(): Promise<ProviderView[]> {
    return await Promise.all(
      Object.entries(this.#providers).map(async ([name, provider]) => {
        const { limits } = provider;
        if (limits === undefined) return { name, use: [] };
        const statuses = await this.#limiter.status({ name: `provider:${name}`, limits });
        return { name, limits: toLimitsJson(limits), use: statuses.map(toLimitUse) };
      }),
    );
  }
}
