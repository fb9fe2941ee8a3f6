/**
 * Client of the running gateway's admin API.
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

/** Returns a listener's hostname as it is called from this machine. */
function toCallable(hostname: string): string {
  if (hostname === "0.0.0.0") return "127.0.0.1";
  return hostname === "::" ? "::1" : hostname;
}

/** Returns the admin listener's address as it is called from this machine: a URL without a path. */
export function toAdminUrl({ hostname, port }: NonNullable<Config["admin"]>): string {
  const host = toCallable(hostname);
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Answer of an admin listener, part by part. */
export interface StreamedAdminAnswer {
  readonly status: number;
  /** The text. It throws if it breaks off or stalls. */
  readonly parts: AsyncIterable<string>;
}

/**
 * Calls the running gateway, for an answer that can be long. Rejects if the gateway's answer is not
 * as expected.
 *
 * @param options The longest silence, milliseconds; the admin token, if one is needed
 * @returns `undefined` if nothing listens
 */
export function askAdminInParts(
  url: string,
  { timeout, token }: { timeout: number; token?: string },
): Promise<StreamedAdminAnswer | undefined> {
  return new Promise((resolve, reject) => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const asking = request(url, { headers, timeout, agent: false }, (response) => {
      response.setEncoding("utf8");
      const parts = async function* (): AsyncIterable<string> {
        for await (const part of response) yield String(part);
        if (!response.complete) throw new Error("the answer broke off");
      };
      const status = response.statusCode as number; // always set on a client's response
      resolve({ status, parts: parts() });
    });
    asking.on("timeout", () => asking.destroy(new Error("no answer")));
    asking.on("error", (error) => {
      const isAbsent = "code" in error &&
        /^(?:ECONNREFUSED|ENOTFOUND|EHOSTUNREACH)$/.test(String(error.code));
      if (isAbsent) resolve(undefined);
      else reject(error);
    });
    asking.end();
  });
}

/** Calls the running gateway, see {@link askAdminInParts}. */
export async function askAdmin(
  url: string,
  options: { timeout: number; token?: string },
): Promise<AdminAnswer | undefined> {
  const answer = await askAdminInParts(url, options);
  if (answer === undefined) return undefined;
  return { status: answer.status, text: await collect(answer.parts) };
}

/** Joins the parts of a text. */
export async function collect(parts: AsyncIterable<string>): Promise<string> {
  let text = "";
  for await (const part of parts) text += part;
  return text;
}
