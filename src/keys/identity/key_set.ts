/**
 * The public keys of an issuer (JWKS): fetched at the start, refreshed before they are old, and
 * kept while the issuer does not answer. A request waits for them only if its token names an
 * unknown key.
 *
 * @module
 */
import type { ReportEvent } from "../../exchange/reported_event.ts";
import { createLocalJWKSet, type JWK } from "jose";
import { isTrustedAddress } from "../../config/identity.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import type { Clock } from "../../exchange/clock.ts";

/**
 * Fetches a document. @returns Its text; rejects unless the answer is complete and has status 200
 */
export type FetchDocument = (url: URL) => Promise<string>;

/** Reads the text of a set of keys, from any source. */
export type ReadKeySet = () => Promise<string>;

/** The current keys. A new object means that they have changed. */
export interface KeySet {
  /**
   * Finds the key of a token by its header: a `JWTVerifyGetKey` of `jose`, whose types must not be
   * in declarations.
   */
  readonly find: unknown;
  readonly size: number;
}

/** State of an issuer's keys, for operators. */
export interface KeySetHealth {
  /** Number of keys; 0 if no fetch has succeeded. */
  readonly keys: number;
  /** Time since they were fetched, seconds; `null` if they never were. */
  readonly ageSeconds: number | null;
  /** Number of successful and failed fetches since the start. */
  readonly fetches: number;
  readonly failures: number;
  /** Reason why the last fetch failed; left out if it did not. */
  readonly failure?: string;
}

/**
 * Shortest time between two fetches for unknown keys, and after the first failure. Milliseconds.
 */
const COOLDOWN_MS = 10_000;
const FIRST_PAUSE_MS = 1000;
/** Maximum number of keys. Issuers have two to ten. */
const MAX_KEYS = 100;
/** Kinds of asymmetric keys (RFC 7518 §6.1, RFC 8037 §2). */
const KINDS: readonly unknown[] = ["RSA", "EC", "OKP"];

/** Returns the address of an issuer's description (OpenID Connect Discovery 1.0 §4). */
export function toDiscoveryUrl(issuer: string): URL {
  return new URL(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
}

/** Creates the function that fetches an issuer's description, and then its keys. */
export function discoverKeySet(issuer: string, fetchDocument: FetchDocument): ReadKeySet {
  return async () => {
    const found: unknown = JSON.parse(await fetchDocument(toDiscoveryUrl(issuer)));
    const { issuer: stated, jwks_uri: url } = Object(found) as Record<string, unknown>;
    // §4.3: the description of another issuer must not be used.
    if (stated !== issuer) throw new Error("the description is of another issuer");
    if (typeof url !== "string" || !isTrustedAddress(url)) {
      throw new Error("the description names no https jwks_uri");
    }
    return await fetchDocument(new URL(url));
  };
}

/** Reads the keys that verify signatures. Other keys and secrets are skipped. */
function readKeys(text: string): JWK[] {
  const { keys } = Object(JSON.parse(text)) as { keys?: unknown };
  if (!Array.isArray(keys)) throw new Error("expected an object with keys");
  if (keys.length > MAX_KEYS) throw new Error(`expected at most ${MAX_KEYS} keys`);
  const usable = keys.filter((key) =>
    KINDS.includes(key?.kty) && key.d === undefined && (key.use === undefined || key.use === "sig")
  );
  if (usable.length === 0) throw new Error("expected a public key for signatures");
  return usable;
}

/** Describes why a fetch failed, without any part of the answer. */
function describeFailure(error: unknown): string {
  if (error instanceof SyntaxError) return "the answer is no JSON";
  return error instanceof Error ? error.message : "unknown";
}

/** Options of {@link IssuerKeys}. */
export interface IssuerKeysOptions {
  /** The issuer, for messages. */
  readonly issuer: string;
  readonly read: ReadKeySet;
  readonly refreshMs: number;
  readonly clock: Clock;
  /**
   * Receives one line for the operator when the keys cannot be fetched, and when they can be
   * fetched again.
   */
  readonly report: ReportEvent;
  /**
   * False if timers do not outlive a request, as on Workers. Keys are then fetched during requests,
   * and requests do not share a fetch.
   */
  readonly hasTimers: boolean;
  /** Receives work that must be finished even if no request waits for it. */
  readonly keepAlive?: ((work: Promise<unknown>) => void) | undefined;
}

/** The keys of one issuer. */
export class IssuerKeys {
  readonly #options: IssuerKeysOptions;
  #current: KeySet | undefined;
  #text = "";
  #fetchedAt = -Infinity;
  #triedAt = -Infinity;
  #fetching: Promise<boolean> | undefined;
  #fetches = 0;
  #failures = 0;
  /** Number of failures since the last success. */
  #failing = 0;
  #failure: string | undefined;
  #cancelTimer = (): void => {};
  #isClosed = false;

  constructor(options: IssuerKeysOptions) {
    this.#options = options;
  }

  /** Fetches the keys now, and later again before they are old. Does not reject. */
  async start(): Promise<void> {
    await this.#fetch();
  }

  /** The current keys; `undefined` if none were ever fetched. */
  get current(): KeySet | undefined {
    const { clock, hasTimers, keepAlive } = this.#options;
    if (!hasTimers && clock.monotonic() >= this.#dueAt) keepAlive?.(this.#fetch());
    return this.#current;
  }

  /**
   * Waits for the first keys.
   *
   * @throws {GatewayError} `key_store_unavailable` if they cannot be fetched
   */
  async first(): Promise<KeySet> {
    if (this.#current === undefined) await this.#fetchIfCool(FIRST_PAUSE_MS);
    if (this.#current !== undefined) return this.#current;
    const cause = new Error(
      `Cannot fetch the public keys of ${this.#options.issuer}: ${this.#failure ?? "unknown"}`,
    );
    throw new GatewayError("key_store_unavailable", { cause });
  }

  /**
   * Fetches the keys again for a token that names an unknown key. Limited in frequency, because
   * anyone can send such a token.
   *
   * @returns The keys, if they have changed since `known`
   */
  async newer(known: KeySet): Promise<KeySet | undefined> {
    const cooldownMs = Math.min(COOLDOWN_MS, this.#options.refreshMs);
    if (this.#current === known) await this.#fetchIfCool(cooldownMs);
    return this.#current === known ? undefined : this.#current;
  }

  /** The state of the keys. */
  get health(): KeySetHealth {
    const age = this.#options.clock.monotonic() - this.#fetchedAt;
    return {
      keys: this.#current?.size ?? 0,
      ageSeconds: Number.isFinite(age) ? Math.round(age / 1000) : null,
      fetches: this.#fetches,
      failures: this.#failures,
      ...(this.#failure !== undefined && { failure: this.#failure }),
    };
  }

  /** Ends the fetches. */
  close(): void {
    this.#isClosed = true;
    this.#cancelTimer();
  }

  get #dueAt(): number {
    const { refreshMs } = this.#options;
    return this.#triedAt +
      (this.#failing === 0 ? refreshMs : Math.min(refreshMs, FIRST_PAUSE_MS * 2 ** this.#failing));
  }

  /**
   * Fetches the keys, or shares a running fetch. Does nothing within a cooldown after the last
   * fetch.
   */
  async #fetchIfCool(cooldownMs: number): Promise<void> {
    const isCool = this.#options.clock.monotonic() - this.#triedAt >= cooldownMs;
    if (isCool || this.#fetching !== undefined) await this.#fetch();
  }

  /** Fetches the keys. Concurrent callers share the fetch if requests can. Does not reject. */
  #fetch(): Promise<boolean> {
    if (this.#fetching !== undefined && this.#options.hasTimers) return this.#fetching;
    this.#triedAt = this.#options.clock.monotonic();
    const fetching = this.#fetchOnce().finally(() => {
      if (this.#fetching === fetching) this.#fetching = undefined;
      this.#fetchLater();
    });
    return this.#fetching = fetching;
  }

  async #fetchOnce(): Promise<boolean> {
    const { read, clock, issuer, report } = this.#options;
    try {
      const keys = readKeys(await read());
      const text = JSON.stringify(keys);
      // If the text is unchanged, imported keys and verified tokens are kept.
      if (text !== this.#text) {
        this.#current = { find: createLocalJWKSet({ keys }), size: keys.length };
      }
      this.#text = text;
      this.#fetchedAt = clock.monotonic();
      this.#fetches++;
      if (this.#failing > 0) {
        const text = `the public keys of ${issuer} could be fetched again`;
        report(text, { event: "identity_recovered", issuer });
      }
      this.#failing = 0;
      this.#failure = undefined;
      return true;
    } catch (error) {
      this.#failures++;
      this.#failure = describeFailure(error);
      if (this.#failing++ === 0) {
        const rest = this.#current === undefined
          ? "its tokens can't be verified"
          : "those fetched before stay in force";
        const text = `the public keys of ${issuer} can't be fetched (${this.#failure}): ${rest}`;
        report(text, { event: "identity_failed", issuer, reason: this.#failure });
      }
      return false;
    }
  }

  #fetchLater(): void {
    const { clock, hasTimers } = this.#options;
    this.#cancelTimer();
    if (!hasTimers || this.#isClosed) return;
    const waitMs = Math.max(1, this.#dueAt - clock.monotonic());
    this.#cancelTimer = clock.timer(waitMs, () => void this.#fetch(), { isBackground: true });
  }
}
