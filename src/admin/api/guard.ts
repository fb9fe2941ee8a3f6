/**
 * Access control of the admin listener: checks the Host by which it is called, and the admin token.
 *
 * @module
 */
import type { Digest } from "../../keys/key_format.ts";
import type { GatewayRequest } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import { parseBearer } from "../../inbound/credentials.ts";
import { HOST } from "../../config/provider.ts";
import { AdminError } from "./answers.ts";

/** Parts of {@link Guard}. */
export interface GuardParts {
  /** The admin token. If left out, whatever needs one is refused. */
  readonly token?: string | undefined;
  /** The configured hostname of the listener. */
  readonly hostname?: string | undefined;
  readonly digest: Digest;
  readonly clock: Clock;
}

/** Number of wrong tokens that are refused without delay, for an operator who mistypes one. */
const FREE_REFUSALS = 10;
/** Delay of any further refusal, and time until one more is refused without delay. Milliseconds. */
const REFUSAL_MS = 1000;
/** Limit of refusals delayed at the same time, each with its connection and a timer; any further one is a 429. */
const MAX_WAITING = 64;
/** Hosts that always stand for this machine, whatever the DNS answers. */
const LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"];

/** Decides on requests before any route does. */
export class Guard {
  readonly #parts: GuardParts;
  readonly #names: readonly string[];
  #free = FREE_REFUSALS;
  #refilledAt: number;
  #waiting = 0;

  /** @param parts The parts that it works with */
  constructor(parts: GuardParts) {
    const { hostname = "localhost", clock } = parts;
    this.#parts = parts;
    this.#names = [...LOOPBACK_NAMES, hostname.includes(":") ? `[${hostname}]` : hostname.toLowerCase()];
    this.#refilledAt = clock.monotonic();
  }

  /**
   * Refuses pages of other sites at a listener that has no token, where anybody may read metrics. Such a page reaches
   * the listener through a browser on this machine: by a name of its own that resolves to this machine (DNS rebinding),
   * or directly. Requests without Host pass: no browser sends them.
   *
   * @param request What arrived
   * @throws {AdminError} For an unknown Host, or a request of another site's page
   */
  assertLocal({ headers }: GatewayRequest): void {
    if (this.#parts.token !== undefined) return;
    const host = headers.get("host");
    const { hostname } = HOST.exec(host?.toLowerCase() ?? "")?.groups ?? {};
    if (host !== null && !this.#names.includes(hostname ?? "")) {
      const names = Array.from(new Set(this.#names)).join(", ");
      throw new AdminError(
        421,
        "unknown_host",
        `Cannot answer to this Host: without admin.token only ${names} are known here. Use one of them, or set a token`,
      );
    }
    // A link to the console is followed; what a page fetches of its own accord is not answered.
    if (headers.get("sec-fetch-site") === "cross-site" && headers.get("sec-fetch-mode") !== "navigate") {
      throw new AdminError(403, "cross_site_request", "Cannot answer a page of another site: set admin.token first");
    }
  }

  /**
   * Checks the admin token. Compares digests in constant time, so that timing reveals nothing of the token. A right
   * token passes at once, however many wrong ones wait.
   *
   * @param request What arrived
   * @param header Name of the header that holds the token
   * @throws {AdminError} For no token or a wrong one
   */
  async assertToken({ headers }: GatewayRequest, header = "Authorization"): Promise<void> {
    const { token, digest } = this.#parts;
    if (token === undefined) {
      throw new AdminError(
        403,
        "no_admin_token",
        "Cannot manage keys or tell of usage: set admin.token in the configuration first",
      );
    }
    const shown = parseBearer(headers.get(header.toLowerCase())) ?? "";
    const [a, b] = [digest(shown), digest(token)];
    let difference = 0;
    for (let index = 0; index < b.length; index++) difference |= a.charCodeAt(index) ^ b.charCodeAt(index);
    if (difference === 0) return;
    if (shown !== "") await this.#slowDown();
    throw new AdminError(401, "invalid_admin_token", `Cannot act: send ${header}: Bearer <admin token>`, {
      headers: { "www-authenticate": 'Bearer realm="admin"' },
    });
  }

  /** Delays the refusal of a wrong token after the first ones. All callers share the count: they are not told apart. */
  async #slowDown(): Promise<void> {
    const { clock } = this.#parts;
    const now = clock.monotonic();
    const refilled = Math.floor((now - this.#refilledAt) / REFUSAL_MS);
    this.#free = Math.min(FREE_REFUSALS, this.#free + refilled);
    this.#refilledAt += refilled * REFUSAL_MS;
    if (this.#free > 0) return void this.#free--;
    if (this.#waiting >= MAX_WAITING) {
      throw new AdminError(
        429,
        "too_many_wrong_tokens",
        "Cannot act: too many wrong admin tokens were shown lately. The right one passes at once",
        { headers: { "retry-after": String(REFUSAL_MS / 1000) } },
      );
    }
    this.#waiting++;
    try {
      await new Promise<void>((resolve) => void clock.timer(REFUSAL_MS, resolve));
    } finally {
      this.#waiting--;
    }
  }
}
