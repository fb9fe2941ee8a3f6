/**
 * Who gets an answer at the admin listener: by which name it is called, and with which token.
 *
 * @module
 */
import type { Digest } from "../../keys/key_format.ts";
import type { GatewayRequest } from "../../http/message.ts";
import type { Clock } from "../../exchange/clock.ts";
import { HOST } from "../../config/provider.ts";
import { AdminError } from "./answers.ts";

/** What is known of the listener. */
export interface GuardParts {
  /** What a caller must show for anything but health; left out, nobody gets further. */
  readonly token?: string | undefined;
  /** Where it listens, as it is configured. */
  readonly hostname?: string | undefined;
  readonly digest: Digest;
  readonly clock: Clock;
}

/** Wrong tokens that are refused at once: an operator who mistypes one waits for nothing. */
const FREE_REFUSALS = 10;
/** After them: how long a refusal takes, and how long it takes until one more is free. Milliseconds. */
const REFUSAL_MS = 1000;
/** Refusals that wait at once, each with its connection and a timer; the next ones are answered 429. */
const MAX_WAITING = 64;
/** Names that lead nowhere but to this machine, whoever answers for them in the DNS. */
const LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"];

/** Decides on requests before any route does. */
export class Guard {
  readonly #parts: GuardParts;
  readonly #names: readonly string[];
  #free = FREE_REFUSALS;
  #refilledAt: number;
  #waiting = 0;

  /** @param parts What is known of the listener */
  constructor(parts: GuardParts) {
    const { hostname = "localhost", clock } = parts;
    this.#parts = parts;
    this.#names = [...LOOPBACK_NAMES, hostname.includes(":") ? `[${hostname}]` : hostname.toLowerCase()];
    this.#refilledAt = clock.monotonic();
  }

  /**
   * Without a token, whoever reaches the listener may read metrics. A page of another site reaches it through the
   * browser of somebody at this machine: by a name of its own that it lets lead here (DNS rebinding), or directly.
   * Programs that send no Host are no browsers.
   *
   * @param request What arrived
   * @throws {AdminError} For a name that may be somebody else's, or a page of another site
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
   * Compares by digest: what differs where takes no time that could be measured. A right token passes at once, however
   * many wrong ones wait.
   *
   * @param request What arrived
   * @param header Where the token stands
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
    const shown = /^Bearer ([\x21-\x7e]+)$/i.exec(headers.get(header.toLowerCase()) ?? "")?.[1] ?? "";
    const [a, b] = [digest(shown), digest(token)];
    let difference = 0;
    for (let index = 0; index < b.length; index++) difference |= a.charCodeAt(index) ^ b.charCodeAt(index);
    if (difference === 0) return;
    if (shown !== "") await this.#slowDown();
    throw new AdminError(401, "invalid_admin_token", `Cannot act: send ${header}: Bearer <admin token>`, {
      headers: { "www-authenticate": 'Bearer realm="admin"' },
    });
  }

  /** Takes its time for a wrong token, once there were several; all callers together, for they are not told apart. */
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
