/**
 * Asks the gateway that runs, at its admin listener.
 *
 * @module
 */
import { request } from "node:http";
import type { Config } from "../config/config.ts";

/** Answer of an admin listener. */
export interface AdminAnswer {
  readonly status: number;
  readonly text: string;
}

/**
 * Returns the address of the admin listener as it is called from this machine.
 *
 * @param admin Where it listens
 * @returns A URL without a path
 */
export function toAdminUrl({ hostname, port }: NonNullable<Config["admin"]>): string {
  const host = hostname === "0.0.0.0" ? "127.0.0.1" : hostname === "::" ? "::1" : hostname;
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * Asks the gateway that runs.
 *
 * @param url The URL to request
 * @param options The longest silence, milliseconds; the admin token, where one is needed
 * @returns Its answer; `undefined` where nobody listens. Rejects when it does not answer as it should
 */
export function askAdmin(
  url: string,
  { timeout, token }: { timeout: number; token?: string },
): Promise<AdminAnswer | undefined> {
  return new Promise((resolve, reject) => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const asking = request(url, { headers, timeout, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => text += part);
      response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      response.on("error", reject);
    });
    asking.on("timeout", () => asking.destroy(new Error("no answer")));
    asking.on("error", (error) => {
      const isAbsent = "code" in error && /^(?:ECONNREFUSED|ENOTFOUND|EHOSTUNREACH)$/.test(String(error.code));
      if (isAbsent) resolve(undefined);
      else reject(error);
    });
    asking.end();
  });
}
