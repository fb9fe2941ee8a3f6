/**
 * Exports asked for at a provider, with a key of its administrators. The key is read from a
 * variable, sent to this provider alone, and never printed.
 *
 * @module
 */
import { once } from "node:events";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import process from "node:process";
import { isObject } from "../prices/findings.ts";
import { collect } from "../admin_client.ts";
import { CommandLineError } from "../command.ts";
import { type Entry, joinPages, type PlacedEntry } from "./provider_export.ts";

/** Providers with an export. */
export type ExportName = "openai" | "anthropic";

/** The period of an export: days, the last one excluded. */
export interface Period {
  readonly from: string;
  readonly to: string;
}

const ASK_MS = 60_000;
const OK = 200;
/** More pages than this are a loop. */
const MAX_PAGES = 1000;

/** Variables, addresses and queries by provider. */
const PROVIDERS = {
  openai: {
    variable: "OPENAI_ADMIN_KEY",
    base: "https://api.openai.com",
    paths: [
      "/v1/organization/costs?group_by=line_item&group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/completions?group_by=model&group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/embeddings?group_by=model&group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/images?group_by=model&group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/audio_speeches?group_by=model&group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/audio_transcriptions" +
      "?group_by=model&group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/web_search_calls" +
      "?group_by=model&group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/file_search_calls?group_by=project_id&group_by=api_key_id",
      "/v1/organization/usage/code_interpreter_sessions?group_by=project_id",
    ],
    headersOf: (key: string) => ({ authorization: `Bearer ${key}` }),
    periodOf: ({ from, to }: Period) => ({
      start_time: String(Date.parse(from) / 1000),
      end_time: String(Date.parse(to) / 1000),
      bucket_width: "1d",
      limit: "31",
    }),
  },
  anthropic: {
    variable: "ANTHROPIC_ADMIN_KEY",
    base: "https://api.anthropic.com",
    paths: ["cost", "usage"].map((what) =>
      `/v1/organizations/analytics/${what}?${
        ["model", "service_tier", "api_key_id", "workspace_id"]
          .concat(what === "cost" ? ["cost_type", "token_type"] : [])
          .map((name) => `group_by[]=${name}`).join("&")
      }`
    ),
    headersOf: (key: string) => ({
      "x-api-key": key,
      "anthropic-version": "2023-06-01",
      "anthropic-beta": "analytics-usage-cost-2026-08-24",
    }),
    periodOf: ({ from, to }: Period) => ({
      starting_at: `${from}T00:00:00Z`,
      ending_at: `${to}T00:00:00Z`,
      time_bucket_width: "1d",
    }),
  },
} as const;

function readKey(variable: string): string {
  const key = process.env[variable] ?? "";
  if (key === "") throw new CommandLineError(`${variable} is not set: it has the key of an admin`);
  return key;
}

/** @throws {CommandLineError} If the key would be sent unencrypted beyond this machine */
function readBase(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isLocal = url !== undefined &&
    /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (url?.protocol === "https:" || (url?.protocol === "http:" && isLocal)) return url;
  throw new CommandLineError("--base-url takes an https URL, or an http URL of this machine");
}

/** The answer to a request. A redirect is not followed: it could lead the key to another host. */
async function receive(url: URL, headers: Record<string, string>): Promise<[number, string]> {
  const send = url.protocol === "https:" ? requestHttps : requestHttp;
  const asking = send(url, { headers, agent: false, signal: AbortSignal.timeout(ASK_MS) });
  asking.end();
  const [response]: IncomingMessage[] = await once(asking, "response");
  if (response?.statusCode === undefined) throw new Error("no answer");
  response.setEncoding("utf8");
  return [response.statusCode, await collect(response)];
}

/** Asks for one page. Neither the key nor a text of the answer is part of an error. */
async function ask(url: URL, headers: Record<string, string>): Promise<Entry> {
  const place = `${url.origin}${url.pathname}`;
  let status: number;
  let content: unknown;
  try {
    const [code, text] = await receive(url, headers);
    status = code;
    content = code === OK ? JSON.parse(text) : undefined;
  } catch {
    throw new CommandLineError(`${place} does not answer as it should`);
  }
  if (status !== OK) throw new CommandLineError(`${place} answers ${status}`);
  if (!isObject(content)) throw new CommandLineError(`${place} does not answer with an object`);
  return content;
}

async function askForAll(first: URL, headers: Record<string, string>): Promise<PlacedEntry[]> {
  const pages: Entry[] = [];
  const url = new URL(first);
  for (let count = 0; count < MAX_PAGES; count++) {
    const page = await ask(url, headers);
    pages.push(page);
    if (page.has_more !== true || typeof page.next_page !== "string") break;
    url.searchParams.set("page", page.next_page);
  }
  return joinPages(pages, first.origin + first.pathname);
}

/**
 * Asks for the usage and the costs of a period.
 *
 * @throws {CommandLineError} Without a key, and if the provider refuses
 */
export async function fetchExport(
  name: ExportName,
  period: Period,
  baseUrl: string | undefined,
): Promise<PlacedEntry[]> {
  const { variable, base, paths, headersOf, periodOf } = PROVIDERS[name];
  const origin = readBase(baseUrl ?? base);
  const headers = headersOf(readKey(variable));
  const all: PlacedEntry[] = [];
  for (const path of paths) {
    const url = new URL(path, origin);
    for (const [parameter, value] of Object.entries(periodOf(period))) {
      url.searchParams.set(parameter, value);
    }
    all.push(...await askForAll(url, headers));
  }
  return all;
}
