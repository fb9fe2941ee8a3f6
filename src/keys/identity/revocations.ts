/**
 * Revoked identity tokens: by their `jti`, by their subject, or by the gateway's id of the subject.
 * A revocation of a subject ends its existing tokens. Tokens that are issued later are accepted.
 *
 * @module
 */
import * as v from "valibot";
import { KeyStoreError } from "../key_store.ts";

/** One revocation. */
export interface Revocation {
  /** `iss` of the tokens; left out for an id, which contains its issuer. */
  readonly issuer?: string | undefined;
  /** The claim, or `id` for the id of the caller in the log. */
  readonly by: "jti" | "subject" | "id";
  /** Its value. */
  readonly value: string;
  /** Time of the revocation, milliseconds since 1970. */
  readonly at: number;
  /** Time at which all its tokens have expired, milliseconds since 1970. */
  readonly until: number;
}

/**
 * The part of a verified token that revocations use.
 *
 * @example Revoke tokens in an embedded gateway
 * ```ts
 * import { createGateway, parseConfig, type RevocableToken } from "sallyport";
 *
 * const revoked = new Set(["jti-of-a-token"]);
 * const isRevoked = ({ jti = "" }: RevocableToken) => revoked.has(jti);
 * const config = parseConfig({
 *   providers: { a: { upstream: "openai" } },
 *   identity: [{ issuer: "https://id.example.com", audience: "gateway" }],
 * });
 * await createGateway(config, { isRevoked }).close();
 * ```
 */
export interface RevocableToken {
  /** `iss`. */
  readonly issuer: string;
  /** `jti`. */
  readonly jti: string | undefined;
  /** `sub`. */
  readonly subject: string | undefined;
  /** Id of the caller in limits, log and metrics, such as `jwt:corp:ann`. */
  readonly id: string | undefined;
  /** `iat`, milliseconds since 1970. */
  readonly issuedAt: number;
  /** The tolerated difference of clocks, milliseconds. */
  readonly leewayMs: number;
}

/**
 * Port: storage of revocations. Every process has a copy in memory, which is at most a second old.
 */
export interface RevocationRegistry {
  /**
   * Returns whether a token is revoked. It answers from memory, so no request waits for it.
   *
   * @param token A verified token
   */
  isRevoked(token: RevocableToken): boolean;
  /** False until the revocations were read once. Before that, the state of a token is unknown. */
  readonly isReady: boolean;
  /**
   * Adds a revocation, which takes effect here at once and everywhere within a second.
   *
   * @throws {KeyStoreUnavailable} If it cannot be written
   */
  revoke(revocation: Revocation): Promise<void>;
  /** @returns The revocations of tokens that have not expired, the latest first */
  list(): Promise<readonly Revocation[]>;
}

/** Maximum number of stored revocations. Each expires with its tokens. */
export const MAX_REVOCATIONS = 100_000;

const toKey = (issuer: string | undefined, by: Revocation["by"], value: string): string =>
  `${by} ${by === "id" ? "" : issuer} ${value}`;

/** Revocations in memory, by the claims that they name. */
export class RevocationIndex {
  #all = new Map<string, Revocation>();

  /** Replaces all revocations. */
  replace(all: Iterable<Revocation>): void {
    this.#all = new Map();
    for (const each of all) this.add(each);
  }

  /** Adds one. Of two revocations for the same tokens, the later one counts. */
  add(revocation: Revocation): void {
    const key = toKey(revocation.issuer, revocation.by, revocation.value);
    const before = this.#all.get(key);
    if (before === undefined || before.at < revocation.at) this.#all.set(key, revocation);
  }

  /** Returns whether it has a revocation, or a later one for the same tokens. */
  has(revocation: Revocation): boolean {
    const found = this.#all.get(toKey(revocation.issuer, revocation.by, revocation.value));
    return found !== undefined && found.at >= revocation.at;
  }

  /**
   * Lists the revocations whose tokens have not expired, the latest first.
   *
   * @param now Milliseconds since 1970
   */
  list(now: number): Revocation[] {
    return Array.from(this.#all.values()).filter(({ until }) => until > now).sort((one, other) =>
      other.at - one.at
    );
  }

  /** Returns whether a token is revoked. */
  isRevoked(token: RevocableToken): boolean {
    const { issuer, jti, subject, id, issuedAt, leewayMs } = token;
    const all = this.#all;
    if (all.size === 0) return false;
    if (jti !== undefined && all.has(toKey(issuer, "jti", jti))) return true;
    // A token that was issued within the tolerated difference of clocks can be older than the
    // revocation.
    const isBefore = (found: Revocation | undefined) =>
      found !== undefined && issuedAt <= found.at + leewayMs;
    if (subject !== undefined && isBefore(all.get(toKey(issuer, "subject", subject)))) return true;
    return id !== undefined && isBefore(all.get(toKey(undefined, "id", id)));
  }
}

const RevocationSchema: v.GenericSchema<unknown, Revocation> = v.object({
  issuer: v.optional(v.string()),
  by: v.picklist(["jti", "subject", "id"]),
  value: v.string(),
  at: v.number(),
  until: v.number(),
});

/**
 * Reads one stored revocation.
 *
 * @throws {Error} For anything else
 */
export function readRevocation(stored: unknown): Revocation {
  return v.parse(RevocationSchema, stored);
}

/** Refuses another revocation. @throws {KeyStoreError} */
export function refuseMore(): never {
  throw new KeyStoreError(`Cannot revoke more tokens: ${MAX_REVOCATIONS} revocations are in force`);
}

/** Revocations in the memory of one process, for embedders and tests. They end with it. */
export class MemoryRevocations implements RevocationRegistry {
  readonly isReady = true;
  readonly #index = new RevocationIndex();
  readonly #now: () => number;

  /** @param now Wall clock, milliseconds since 1970 */
  constructor(now: () => number) {
    this.#now = now;
  }

  isRevoked(token: RevocableToken): boolean {
    return this.#index.isRevoked(token);
  }

  revoke(revocation: Revocation): Promise<void> {
    this.#index.add(revocation);
    return Promise.resolve();
  }

  list(): Promise<readonly Revocation[]> {
    return Promise.resolve(this.#index.list(this.#now()));
  }
}
