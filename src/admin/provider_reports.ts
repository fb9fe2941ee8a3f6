/**
 * Reports of providers: the limits that all keys share, and their use.
 *
 * @module
 */
import { type LimitSet, toLimitsJson, type WrittenLimits } from "../config/limit_set.ts";
import type { ShapeName } from "../config/shape.ts";
import { toCallableListener } from "../inbound/callable_address.ts";
import type { Limiter } from "../limits/limiter.ts";
import { SHAPES } from "../operations/shapes.ts";
import { type LimitUse, toLimitUse } from "./limit_use.ts";

/** A provider as administrators see it. */
export interface ProviderView {
  readonly name: string;
  /** Shape of its addresses, if it is another one than `v1`. */
  readonly shape?: ShapeName;
  /**
   * Base URLs that work on this machine as they are, such as `http://127.0.0.1:8787/v1`, or without
   * `/v1` for another shape.
   */
  readonly urls: readonly string[];
  /** Left out if it has none. */
  readonly limits?: WrittenLimits;
  readonly use: readonly LimitUse[];
}

/** All providers, and the listeners for callers. */
export interface ProviderList {
  /** Origins of the listeners on this machine, such as `http://127.0.0.1:8787`. */
  readonly listeners: readonly string[];
  readonly providers: readonly ProviderView[];
}

/** The settings of a provider that reports show. */
interface ReportedProvider {
  readonly hosts: readonly string[];
  readonly shape: ShapeName;
  readonly limits?: LimitSet | undefined;
}

/** Reports of the configured providers. */
export class ProviderReports {
  readonly #providers: Readonly<Record<string, ReportedProvider>>;
  readonly #limiter: Limiter;
  readonly #listeners: () => readonly string[];

  /** @param listeners Returns the URLs of the listeners for callers */
  constructor(
    providers: Readonly<Record<string, ReportedProvider>>,
    limiter: Limiter,
    listeners: () => readonly string[],
  ) {
    this.#providers = providers;
    this.#limiter = limiter;
    this.#listeners = listeners;
  }

  /** Reports all providers, in the order of the configuration, and where callers reach them. */
  async list(): Promise<ProviderList> {
    const listeners = this.#listeners().map((url) => toCallableListener(url, this.#providers));
    const urlsOf = (name: string, shape: ShapeName) =>
      listeners.flatMap((each) => each.providers.get(name) ?? []).map((url) =>
        url + SHAPES[shape].base
      );
    const providers = await Promise.all(
      Object.entries(this.#providers).map(async ([name, provider]) => {
        const { limits, shape } = provider;
        const view = { name, ...(shape !== "v1" && { shape }), urls: urlsOf(name, shape) };
        if (limits === undefined) return { ...view, use: [] };
        const statuses = await this.#limiter.status({ name: `provider:${name}`, limits });
        return { ...view, limits: toLimitsJson(limits), use: statuses.map(toLimitUse) };
      }),
    );
    return { listeners: listeners.map(({ origin }) => origin), providers };
  }
}
