/**
 * Client of the running gateway's admin API.
 *
 * @module
 */
import { request } from "node:http";
import { request as requestByTls } from "node:https";
import process from "node:process";
import type { Config } from "../config/config.ts";
import { isTrustedAddress } from "../config/identity.ts";
import { CommandLineError } from "./command.ts";
import { toPlain } from "./table.ts";

/** The longest time until a gateway answers a command. Milliseconds. */
const ANSWER_MS = 10_000;

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

/** Options of a call. */
export interface AdminCallOptions {
  /** The longest silence, milliseconds. */
  readonly timeout: number;
  /** The admin token, if one is needed. */
  readonly token?: string;
  /** Default: `POST` with a content, and `GET` without. */
  readonly method?: "DELETE";
  /** The content of a `POST`, sent as JSON. */
  readonly content?: unknown;
}

/**
 * Calls the running gateway, for an answer that can be long. Rejects if the gateway's answer is not
 * as expected.
 *
 * @returns `undefined` if nothing listens
 */
export function askAdminInParts(
  url: string,
  options: AdminCallOptions,
): Promise<StreamedAdminAnswer | undefined> {
  const { timeout, token, content } = options;
  const { method = content === undefined ? "GET" : "POST" } = options;
  return new Promise((resolve, reject) => {
    const headers = {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(content !== undefined && { "content-type": "application/json" }),
    };
    const send = url.startsWith("https:") ? requestByTls : request;
    const asking = send(url, { method, headers, timeout, agent: false }, (response) => {
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
    asking.end(content === undefined ? undefined : JSON.stringify(content));
  });
}

/** Calls the running gateway, see {@link askAdminInParts}. */
export async function askAdmin(
  url: string,
  options: AdminCallOptions,
): Promise<AdminAnswer | undefined> {
  const answer = await askAdminInParts(url, options);
  if (answer === undefined) return undefined;
  return { status: answer.status, text: await collect(answer.parts) };
}

/** An admin listener, or a Worker for operators. */
export interface AdminPlace {
  /** A URL without a path. */
  readonly origin: string;
  /** The admin token, if one is needed. */
  readonly token?: string | undefined;
  /** The source of the token, for people. */
  readonly tokenSource: string;
}

/** Returns the admin listener of a configuration. @throws {CommandLineError} If it has none */
export function toAdminPlace({ admin }: Pick<Config, "admin">): AdminPlace {
  if (admin === undefined) {
    throw new CommandLineError(
      "the command needs the running gateway: set admin in the configuration",
    );
  }
  return { origin: toAdminUrl(admin), token: admin.token, tokenSource: "the configuration" };
}

/** The variable with the admin token. */
const TOKEN_VARIABLE = "SALLYPORT_ADMIN_TOKEN";

/** Returns the admin listener at a stated address. @throws {CommandLineError} For a mistake */
export function readAdminPlace(url: string): AdminPlace {
  if (!isTrustedAddress(url) || !/^\w+:\/\/[^/?#]+\/?$/.test(url)) {
    throw new CommandLineError("--url expects an address such as https://admin.example.com");
  }
  const { [TOKEN_VARIABLE]: token = "" } = process.env;
  if (token === "") throw new CommandLineError(`--url needs the admin token in ${TOKEN_VARIABLE}`);
  return { origin: new URL(url).origin, token, tokenSource: TOKEN_VARIABLE };
}

/**
 * Calls a running gateway for a command that needs it running.
 *
 * @param path Path and query, such as `/v1/runs`
 * @returns The text of its answer
 * @throws {CommandLineError} If no gateway runs, or if it refuses
 */
export async function askGateway(
  { origin, token, tokenSource }: AdminPlace,
  path: string,
  request: Pick<AdminCallOptions, "method" | "content"> = {},
): Promise<string> {
  const options = { timeout: ANSWER_MS, ...request, ...(token !== undefined && { token }) };
  const fail = ({ message }: Error): never => {
    throw new CommandLineError(`cannot ask the gateway at ${origin}: ${message}`);
  };
  const answer = await askAdminInParts(origin + path, options).catch(fail);
  if (answer === undefined) throw new CommandLineError(`no gateway runs at ${origin}`);
  if (answer.status !== 200) throw await readRefusal(answer, origin, tokenSource);
  const text = await collect(answer.parts).catch(fail);
  if (!text.startsWith("{")) return fail(new Error("another server answers there"));
  return text;
}

/** Joins the parts of a text. */
export async function collect(parts: AsyncIterable<string>): Promise<string> {
  let text = "";
  for await (const part of parts) text += part;
  return text;
}

/** Reads the error of an answer that refuses a call. */
export async function readRefusal(
  { status, parts }: StreamedAdminAnswer,
  origin: string,
  tokenSource = "the configuration",
): Promise<CommandLineError> {
  if (status === 401) {
    return new CommandLineError(
      `the gateway at ${origin} has another admin.token than ${tokenSource}`,
    );
  }
  let content: unknown;
  try {
    content = JSON.parse(await collect(parts));
  } catch {
    return new CommandLineError(
      `the server at ${origin} is no gateway: see admin in the configuration`,
    );
  }
  const { error } = content as { error?: { message?: unknown } };
  const reason = toPlain(String(error?.message ?? "no reason"));
  return new CommandLineError(`the gateway at ${origin} answers ${status}: ${reason}`);
}
