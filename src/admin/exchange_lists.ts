/**
 * Lists of settled exchanges for operators: pages of those that are kept, with the names of their
 * keys.
 *
 * @module
 */
import type { KeyQuery } from "../keys/key_store.ts";
import type { FleetPage } from "../observe/fleet/fleet.ts";
import type { ExchangePage, ExchangeQuery } from "../observe/live/exchange_page.ts";
import type { LiveExchange } from "../observe/live/live_report.ts";

/** The part of a key store that names keys. */
export interface KeyNameSource {
  get(id: string): Promise<{ readonly name?: string | undefined } | undefined>;
  list(query: KeyQuery): Promise<readonly { readonly id: string }[]>;
}

/** Parts of {@link ExchangeLists}. */
export interface ExchangeListParts {
  /** Finds exchanges at all processes of this gateway. */
  readonly find: (query: ExchangeQuery) => Promise<ExchangePage>;
  /** Finds exchanges of gateways of the fleet. */
  readonly findInFleet: (gateway: string, query: ExchangeQuery) => Promise<FleetPage>;
  readonly keys: KeyNameSource;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
}

/**
 * The time for which the name of a key is remembered: one that is changed shows after it.
 * Milliseconds.
 */
const NAMED_MS = 10_000;
/** Number of names that are remembered. */
const MAX_NAMES = 10_000;
/** Number of keys that the part of a name can stand for. */
const MAX_MEANT = 1000;

/** Lists of settled exchanges. */
export class ExchangeLists {
  readonly #parts: ExchangeListParts;
  #names = new Map<string, Promise<string | undefined>>();
  #namesUntil = 0;

  constructor(parts: ExchangeListParts) {
    this.#parts = parts;
  }

  /**
   * Finds a page of the exchanges that are kept, the newest first.
   *
   * @param gateway Id or name of a gateway, or `all`; this one if left out
   */
  async find(query: ExchangeQuery, gateway?: string): Promise<ExchangePage & Partial<FleetPage>> {
    const { key, search } = query.filter;
    const [keyIds, searchKeyIds] = await Promise.all([this.#idsOf(key), this.#idsOf(search)]);
    const meant = { ...query, filter: { ...query.filter, keyIds, searchKeyIds } };
    const { find, findInFleet } = this.#parts;
    const page = gateway === undefined ? await find(meant) : await findInFleet(gateway, meant);
    return { ...page, exchanges: await this.withNames(page.exchanges) };
  }

  /** Finds the keys that a part of a name stands for. */
  async #idsOf(name: string | undefined): Promise<readonly string[]> {
    if (name === undefined) return [];
    const found = await this.#parts.keys.list({ search: name, limit: MAX_MEANT }).catch(() => []);
    return found.map(({ id }) => id);
  }

  /**
   * Adds the names of keys to exchanges, settled or durable. Where keys can't be looked up, their
   * ids have to do.
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
