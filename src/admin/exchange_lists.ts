/**
 * Lists of settled exchanges for operators: pages of the stored exchanges, with the names of their
 * keys.
 *
 * @module
 */
import { formatCost } from "../config/cost.ts";
import type { KeyQuery } from "../keys/key_store.ts";
import type { CallCosts } from "../observe/call_costs.ts";
import type { FleetPage } from "../observe/fleet/fleet.ts";
import type { ExchangePage, ExchangeQuery } from "../observe/live/exchange_page.ts";
import type { LiveCost, LiveExchange } from "../observe/live/live_report.ts";

/** The part of a key store that names keys. */
export interface KeyNameSource {
  get(id: string): Promise<{ readonly name?: string | undefined } | undefined>;
  list(query: KeyQuery): Promise<readonly { readonly id: string }[]>;
}

/** Parts of {@link ExchangeLists}. */
export interface ExchangeListParts {
  /** Finds exchanges in all processes of this gateway. */
  readonly find: (query: ExchangeQuery) => Promise<ExchangePage>;
  /** Finds exchanges of gateways of the fleet. */
  readonly findInFleet: (gateway: string, query: ExchangeQuery) => Promise<FleetPage>;
  readonly keys: KeyNameSource;
  /** Computes costs by current prices; not set if there are no prices. */
  readonly costs?: CallCosts | undefined;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
}

/** Time for which a key's name is cached. A changed name is visible after it. Milliseconds. */
const NAMED_MS = 10_000;
/** Number of cached names. */
const MAX_NAMES = 10_000;
/** Limit of the keys whose names match a search. */
const MAX_MEANT = 1000;

function toLiveCost(exchange: LiveExchange, costs: CallCosts): LiveCost | undefined {
  const cost = costs.of(exchange);
  if (cost === undefined) return undefined;
  const { amount, classes, unpriced } = cost;
  return {
    total: amount === undefined ? null : formatCost(amount),
    currency: costs.currency,
    classes: Object.fromEntries(
      Object.entries(classes).map(([name, each]) => [name, formatCost(each)]),
    ),
    ...(unpriced && { unpriced }),
  };
}

/** Lists of settled exchanges. */
export class ExchangeLists {
  readonly #parts: ExchangeListParts;
  #names = new Map<string, Promise<string | undefined>>();
  #namesUntil = 0;

  constructor(parts: ExchangeListParts) {
    this.#parts = parts;
  }

  /**
   * Finds a page of the stored exchanges, the newest first.
   *
   * @param gateway Id or name of a gateway, or `all`; this one if left out
   */
  async find(query: ExchangeQuery, gateway?: string): Promise<ExchangePage & Partial<FleetPage>> {
    const { key, search } = query.filter;
    const [keyIds, searchKeyIds] = await Promise.all([this.#idsOf(key), this.#idsOf(search)]);
    const meant = { ...query, filter: { ...query.filter, keyIds, searchKeyIds } };
    const { find, findInFleet } = this.#parts;
    const page = gateway === undefined ? await find(meant) : await findInFleet(gateway, meant);
    return { ...page, exchanges: await this.withNames(this.withCosts(page.exchanges)) };
  }

  /** Adds the cost of each exchange, by current prices. */
  withCosts<Each extends LiveExchange>(exchanges: readonly Each[]): readonly Each[] {
    const { costs } = this.#parts;
    if (costs === undefined) return exchanges;
    return exchanges.map((exchange) => {
      const cost = toLiveCost(exchange, costs);
      return cost === undefined ? exchange : { ...exchange, cost };
    });
  }

  /** Finds the keys whose names contain a text. */
  async #idsOf(name: string | undefined): Promise<readonly string[]> {
    if (name === undefined) return [];
    const found = await this.#parts.keys.list({ search: name, limit: MAX_MEANT }).catch(() => []);
    return found.map(({ id }) => id);
  }

  /**
   * Adds the names of keys to settled or durable exchanges. If keys can't be looked up, only their
   * ids are shown.
   */
  async withNames<Each extends Pick<LiveExchange, "keyId">>(
    exchanges: readonly Each[],
  ): Promise<readonly (Each & { readonly keyName?: string })[]> {
    const now = this.#parts.now();
    if (now > this.#namesUntil || this.#names.size > MAX_NAMES) {
      this.#names = new Map();
      this.#namesUntil = now + NAMED_MS;
    }
    return await Promise.all(exchanges.map(async (exchange) => {
      const keyName = exchange.keyId === undefined ? undefined : await this.#nameOf(exchange.keyId);
      return keyName === undefined ? exchange : { ...exchange, keyName };
    }));
  }

  #nameOf(id: string): Promise<string | undefined> {
    let name = this.#names.get(id);
    if (name === undefined) {
      name = this.#parts.keys.get(id).then((key) => key?.name, () => undefined);
      this.#names.set(id, name);
    }
    return name;
  }
}
