/**
 * Access control of the admin listener: checks the Host of the call, and authenticates the operator
 * by the admin token or by an identity token with a role.
 *
 * @module
 */
import { type Digest, equalDigests } from "../../keys/key_format.ts";
import type { GatewayRequest } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import type { AdminRole } from "../../keys/identity/claims.ts";
import type { TokenOperator } from "../../keys/identity/verifier.ts";
import { parseBearer } from "../../inbound/credentials.ts";
import { HOST } from "../../config/address.ts";
import { GatewayError } from "../../errors/gateway_error.ts";

/** An authenticated operator. */
export interface Operator {
  /** Id of the operator's token, or `admin token`. */
  readonly who: string;
  readonly role: AdminRole;
  /**
   * True if the token would still be accepted. Checked by work that continues after the request was
   * answered.
   */
  readonly isStillAccepted: () => Promise<boolean>;
}

/** The operator of a call that needs none. */
export const NO_OPERATOR: Operator = {
  who: "",
  role: "viewer",
  isStillAccepted: () => Promise.resolve(false),
};

/** Parts of {@link Guard}. They can change with the configuration, so each is read when needed. */
export interface GuardParts {
  /** The admin token. */
  readonly token?: string | undefined;
  /**
   * Finds the operator of an identity token. Without this and {@link token}, every call that needs
   * an operator is refused.
   */
  readonly signIn?: ((token: string) => Promise<TokenOperator | undefined>) | undefined;
  /** The configured hostname of the listener. */
  readonly hostname?: string | undefined;
  readonly digest: Digest;
  readonly clock: Clock;
}

/** Number of wrong tokens that are refused without delay, for operators who mistype. */
const FREE_REFUSALS = 10;
/**
 * Delay of any token after these, even the right one, and time until one more wrong token is
 * refused without delay. Milliseconds.
 */
const DELAY_MS = 1000;
/**
 * Limit of concurrently delayed tokens. Each has its connection and a timer. Any further one is
 * answered with a 429.
 */
const MAX_WAITING = 64;
/** The operator of the admin token. */
const BY_ADMIN_TOKEN: TokenOperator = { id: "admin token", role: "admin" };
/** Hosts that always mean this machine, regardless of DNS. */
const LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"];

/** Checks requests before they reach a route. */
export class Guard {
  readonly #parts: GuardParts;
  readonly #names: readonly string[];
  #free = FREE_REFUSALS;
  #refilledAt: number;
  #waiting = 0;

  constructor(parts: GuardParts) {
    const { hostname = "localhost", clock } = parts;
    this.#parts = parts;
    this.#names = [
      ...LOOPBACK_NAMES,
      hostname.includes(":") ? `[${hostname}]` : hostname.toLowerCase(),
    ];
    this.#refilledAt = clock.monotonic();
  }

  /** True if operators must send a token. */
  get isGuarded(): boolean {
    return this.#parts.token !== undefined || this.#parts.signIn !== undefined;
  }

  /**
   * Refuses requests of other sites' pages if the listener has no token, because it then serves
   * metrics without authentication. A browser on this machine can send a page's requests here:
   * directly, or because the page's own name resolves to this machine (DNS rebinding). Requests
   * without Host are allowed: no browser sends them.
   *
   * @throws {GatewayError} For an unknown Host, or a request of another site's page
   */
  assertLocal({ headers }: GatewayRequest): void {
    if (this.isGuarded) return;
    const host = headers.get("host");
    if (host !== null && !this.#isOwnName(host)) throw new GatewayError("unknown_admin_host");
    // A link to the console is followed. A page's own fetch is not answered.
    if (
      headers.get("sec-fetch-site") === "cross-site" && headers.get("sec-fetch-mode") !== "navigate"
    ) {
      throw new GatewayError("cross_site_request");
    }
  }

  #isOwnName(host: string): boolean {
    const hostname = HOST.exec(host.toLowerCase())?.groups?.hostname;
    return hostname !== undefined && this.#names.includes(hostname);
  }

  /**
   * Authenticates the operator. Compares digests in constant time, so that timing reveals nothing
   * about the admin token. During many wrong attempts, the right token is delayed or refused like
   * the wrong ones: otherwise a right guess would be answered at once. An identity token is not
   * delayed, because its signature cannot be guessed.
   *
   * @throws {GatewayError} For a missing, wrong or unchecked token
   */
  async authenticate({ headers }: GatewayRequest, header = "Authorization"): Promise<Operator> {
    if (!this.isGuarded) throw new GatewayError("no_admin_token");
    const presentedToken = parseBearer(headers.get(header.toLowerCase())) ?? "";
    const operator = await this.#parts.signIn?.(presentedToken) ??
      await this.#checkAdminToken(presentedToken);
    if (operator !== undefined) {
      const isStillAccepted = () =>
        this.#find(presentedToken).then((found) => found !== undefined, () => false);
      return { who: operator.id, role: operator.role, isStillAccepted };
    }
    throw new GatewayError("invalid_admin_token", {
      detail: `send ${header}: Bearer <admin token>`,
      headers: { "www-authenticate": 'Bearer realm="admin"' },
    });
  }

  /** Finds the operator of a token, without delay. */
  async #find(presentedToken: string): Promise<TokenOperator | undefined> {
    return this.#isAdminToken(presentedToken)
      ? BY_ADMIN_TOKEN
      : await this.#parts.signIn?.(presentedToken);
  }

  #isAdminToken(presentedToken: string): boolean {
    const { token, digest } = this.#parts;
    return token !== undefined && equalDigests(digest(presentedToken), digest(token));
  }

  /** Compares a token with the admin token, in a time that does not depend on the result. */
  async #checkAdminToken(presentedToken: string): Promise<TokenOperator | undefined> {
    if (presentedToken === "") return undefined;
    this.#refill();
    if (this.#free === 0) await this.#wait();
    if (this.#isAdminToken(presentedToken)) return BY_ADMIN_TOKEN;
    this.#free = Math.max(0, this.#free - 1);
    return undefined;
  }

  /**
   * Restores the undelayed refusals that have become due. All callers share this count, because
   * they cannot be distinguished.
   */
  #refill(): void {
    const refilled = Math.floor((this.#parts.clock.monotonic() - this.#refilledAt) / DELAY_MS);
    this.#free = Math.min(FREE_REFUSALS, this.#free + refilled);
    this.#refilledAt += refilled * DELAY_MS;
  }

  async #wait(): Promise<void> {
    if (this.#waiting >= MAX_WAITING) {
      throw new GatewayError("too_many_wrong_tokens", { retryAfterMs: DELAY_MS });
    }
    this.#waiting++;
    try {
      await new Promise<void>((resolve) => void this.#parts.clock.timer(DELAY_MS, resolve));
    } finally {
      this.#waiting--;
    }
  }
}
