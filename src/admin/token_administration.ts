/**
 * Administration of revoked identity tokens, shared by the command line and the admin API.
 *
 * @module
 */
import type { IdentityConfig } from "../config/identity.ts";
import { TOKEN_ID_PREFIX } from "../config/key.ts";
import type { Revocation, RevocationRegistry } from "../keys/identity/revocations.ts";
import { KeyStoreError } from "../keys/key_store.ts";
import type { Author, Changes } from "./changes.ts";

/** Parts of {@link TokenAdministration}. */
export interface TokenAdministrationParts {
  /** The configured issuers. */
  readonly identity: readonly IdentityConfig[] | undefined;
  /** Store of revocations; `undefined` without issuers. */
  readonly revocations: RevocationRegistry | undefined;
  /** Receives each revocation. */
  readonly changes: Changes;
  /** Wall clock, milliseconds since 1970. */
  readonly now: () => number;
}

/** The tokens to revoke. Exactly one of `jti`, `subject` and `id` is set. */
export interface RevokedTokens {
  /**
   * Name of the issuer in the configuration. Optional with an id, or if there is only one issuer.
   */
  readonly issuer?: string | undefined;
  /** `jti` of one token. */
  readonly jti?: string | undefined;
  /** `sub` of tokens. */
  readonly subject?: string | undefined;
  /** Id of the caller as in the log, such as `jwt:corp:ann`. */
  readonly id?: string | undefined;
}

/** A revocation as administrators see it. */
export interface RevocationView {
  /** Id of the caller, or the claim and its value. */
  readonly id: string;
  readonly by: Revocation["by"];
  readonly value: string;
  /** `iss` of the tokens. */
  readonly issuer?: string | undefined;
  readonly revoked: string;
  /** Time when all of these tokens have expired. */
  readonly until: string;
}

function toView(revocation: Revocation): RevocationView {
  const { issuer, by, value } = revocation;
  const id = by === "id" ? value : `${by} ${value}`;
  return {
    id,
    by,
    value,
    issuer,
    revoked: new Date(revocation.at).toISOString(),
    until: new Date(revocation.until).toISOString(),
  };
}

/** Operations on tokens. Each throws {@link KeyStoreError} if it is refused. */
export class TokenAdministration {
  readonly #parts: TokenAdministrationParts;

  constructor(parts: TokenAdministrationParts) {
    this.#parts = parts;
  }

  /** Lists the revocations of tokens that have not expired, the latest first. */
  async list(): Promise<RevocationView[]> {
    return (await this.#registry.list()).map(toView);
  }

  /**
   * Revokes tokens. For a subject, revokes all tokens issued so far. Tokens issued later are
   * accepted.
   */
  async revoke(tokens: RevokedTokens, author: Author): Promise<RevocationView> {
    const registry = this.#registry;
    const given = (["jti", "subject", "id"] as const).filter((by) => tokens[by] !== undefined);
    const [by] = given;
    const value = by && tokens[by];
    if (by === undefined || value === undefined || given.length > 1) {
      throw new KeyStoreError(
        "Cannot tell which tokens to revoke: name one of jti, subject and id",
      );
    }
    const { issuer } = this.#issuerOf(tokens);
    const at = this.#parts.now();
    const lives = (this.#parts.identity ?? []).filter((each) => each.issuer === issuer)
      .map(({ maxAgeMs, leewayMs }) => maxAgeMs + 3 * leewayMs);
    const revocation: Revocation = {
      ...(by !== "id" && { issuer }),
      by,
      value,
      at,
      until: at + Math.max(...lives),
    };
    await registry.revoke(revocation);
    const view = toView(revocation);
    const settings = view.issuer === undefined ? [] : [{ setting: "issuer", to: view.issuer }];
    await this.#parts.changes.add(
      { action: "revoke", of: "token", id: view.id, settings },
      author,
    );
    return view;
  }

  get #registry(): RevocationRegistry {
    const { revocations } = this.#parts;
    if (revocations !== undefined) return revocations;
    throw new KeyStoreError("Cannot revoke identity tokens: identity is not configured");
  }

  #issuerOf({ issuer, id }: RevokedTokens): IdentityConfig {
    const { identity = [] } = this.#parts;
    const ofId = (name: string) => id?.startsWith(`${TOKEN_ID_PREFIX}${name}:`);
    const found = identity.filter(({ name }) =>
      id === undefined ? issuer === undefined || name === issuer : ofId(name)
    );
    const [first] = found;
    if (first !== undefined && found.every((each) => each.issuer === first.issuer)) return first;
    const names = identity.map(({ name }) => name).join(", ");
    throw new KeyStoreError(
      id === undefined
        ? `Cannot tell the issuer of these tokens: name one of ${names}`
        : "Cannot find the issuer of this id: " +
          `it begins with ${TOKEN_ID_PREFIX} and one of ${names}`,
    );
  }
}
