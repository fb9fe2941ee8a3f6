/**
 * Credits: amounts that an operator gives back to a key or a team, because a call was charged that
 * brought nothing, such as one to a provider that hangs. Usage keeps the call.
 *
 * @module
 */
import type { LimitSet } from "../config/limit_set.ts";
import { formatMoney, type Money } from "../config/units.ts";
import type { TeamDirectory } from "../keys/team_directory.ts";
import { type KeyRegistry, KeyStoreError, KeyStoreUnavailable } from "../keys/key_store.ts";
import { type Limiter, NO_AMOUNTS } from "../limits/limiter.ts";
import { type Changes, compareSettings, type MadeChange } from "./changes.ts";
import { refuseUnknown } from "./key_administration.ts";
import { refuseUnknown as refuseUnknownTeam } from "./team_administration.ts";

/** An amount to give back, and the reason for the audit. */
export interface Credit {
  /** Tokens; `undefined` for none. */
  readonly tokens?: number | undefined;
  /** Money; `undefined` for none. */
  readonly money?: Money | undefined;
  readonly reason: string;
}

/** A credit that was given. */
export interface CreditView {
  /** Id of the key, or name of the team. */
  readonly id: string;
  readonly tokens?: number;
  /** Amount and currency, such as `5 USD`. */
  readonly money?: string;
  readonly reason: string;
}

/** Parts of {@link Credits}. */
export interface CreditParts {
  readonly keys: Pick<KeyRegistry, "get">;
  readonly teams: Pick<TeamDirectory, "load">;
  readonly limiter: Limiter;
  /** The list of changes. */
  readonly changes: Pick<Changes, "add">;
}

/** Gives credits. Each function throws {@link KeyStoreError} if the credit is refused. */
export class Credits {
  readonly #parts: CreditParts;

  constructor(parts: CreditParts) {
    this.#parts = parts;
  }

  /** Gives back an amount to a key. */
  async toKey(id: string, credit: Credit, who: string): Promise<CreditView> {
    const key = await this.#parts.keys.get(id) ?? refuseUnknown();
    const given = await this.#give(`key:${id}`, key.limits ?? {}, { id, credit });
    const { name, team } = key;
    await this.#note({ of: "key", id, name, team }, given, who);
    return given;
  }

  /** Gives back an amount to a team. */
  async toTeam(id: string, credit: Credit, who: string): Promise<CreditView> {
    const teams = await this.#parts.teams.load();
    const team = Object.hasOwn(teams, id) ? teams[id] : undefined;
    if (team === undefined) return refuseUnknownTeam();
    const given = await this.#give(`team:${id}`, team.limits, { id, credit });
    await this.#note({ of: "team", id }, given, who);
    return given;
  }

  async #note(
    subject: Pick<MadeChange, "of" | "id" | "name" | "team">,
    { tokens, money, reason }: CreditView,
    who: string,
  ): Promise<void> {
    const settings = compareSettings({}, { tokens, money });
    await this.#parts.changes.add({ ...subject, action: "credit", settings }, { who, reason });
  }

  async #give(
    name: string,
    limits: LimitSet,
    { id, credit }: { readonly id: string; readonly credit: Credit },
  ): Promise<CreditView> {
    const { tokens, money, reason } = credit;
    const { limiter } = this.#parts;
    if (tokens !== undefined && limits.tokens === undefined && limits.budget === undefined) {
      throw new KeyStoreError("Cannot credit tokens: no limit counts them here");
    }
    if (money !== undefined && limits.spend?.currency !== money.currency) {
      throw new KeyStoreError(`Cannot credit money: there is no budget in ${money.currency} here`);
    }
    if (limiter.correct === undefined) {
      throw new KeyStoreError("Cannot credit: this limiter does not correct amounts");
    }
    const charged = { tokens: tokens ?? 0, spend: money?.amount ?? 0 };
    try {
      await limiter.correct([{ name, limits }], { charged, used: NO_AMOUNTS, ageMs: 0 });
    } catch (cause) {
      const message = "Cannot credit: the counts cannot be changed now. Try again";
      throw new KeyStoreUnavailable(message, { cause });
    }
    return {
      id,
      ...(tokens !== undefined && { tokens }),
      ...(money !== undefined && { money: `${formatMoney(money.amount)} ${money.currency}` }),
      reason,
    };
  }
}
