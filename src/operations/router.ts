/**
 * Finds the operation that a caller asks for, by method and path and nothing else of the URL.
 *
 * @module
 */
import { type IRequestStrict, Router } from "itty-router";
import { ANTHROPIC } from "../dialects/anthropic.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { OPENAI_CHAT } from "../dialects/openai_chat.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type GatewayRequest, METHODS } from "../http/message.ts";
import { CONTROL_CHARACTER, MAX_MODEL_LENGTH } from "./chat_completion.ts";
import { type Operation, OPERATIONS } from "./table.ts";

/** An operation as one request asks for it: its path has no parameters left. */
export interface ResolvedOperation extends Operation {
  /** Id of the model, decoded, where it stands in the path. */
  readonly modelId?: string;
}

/** The longest value of a path's parameter. Characters, decoded. */
const MAX_PARAMETER_LENGTH = 1024;
/** Segments that a URL parser would resolve or that name nothing. */
const UNSAFE_SEGMENTS = ["", ".", ".."];
/** Characters that a segment may hold as they are, although `encodeURIComponent` encodes them (RFC 3986 §3.3). */
const PLAIN_IN_SEGMENTS = /%(?:3A|40|24|26|2B|2C|3B|3D)/g;

/** Decodes and checks a parameter. @throws {GatewayError} `not_found` for one that could lead elsewhere */
function decode(raw: string): string {
  let value: string;
  try {
    value = raw.split("/").map(decodeURIComponent).join("/");
  } catch {
    throw new GatewayError("not_found");
  }
  const isUnsafe = value.split(/[/\\]/).some((piece) => UNSAFE_SEGMENTS.includes(piece)) ||
    CONTROL_CHARACTER.test(value);
  if (isUnsafe || value.length > MAX_PARAMETER_LENGTH) throw new GatewayError("not_found");
  return value;
}

const encode = (raw: string): string =>
  raw.split("/")
    .map((segment) => encodeURIComponent(decodeURIComponent(segment)).replace(PLAIN_IN_SEGMENTS, decodeURIComponent))
    .join("/");

/**
 * Puts the parameters into the path of an operation, the only part of a request's path that reaches the upstream. They
 * are decoded, checked and encoded anew.
 */
function resolve(operation: Operation, params: Readonly<Record<string, string>>): ResolvedOperation {
  let { path } = operation;
  let modelId: string | undefined;
  for (const [name, raw] of Object.entries(params)) {
    const value = decode(raw);
    if (name === "model") modelId = value;
    path = path.replace(new RegExp(`:${name}\\+?(?=/|$)`), () => encode(raw));
  }
  if ((modelId?.length ?? 0) > MAX_MODEL_LENGTH) throw new GatewayError("not_found");
  return { ...operation, path, ...(modelId !== undefined && { modelId }) };
}

/** Operations by method and path; one with a parameter in its path is never found here. */
const EXACT = new Map(OPERATIONS.map((operation) => [`${operation.method} /v1${operation.path}`, operation]));
/** A URL whose path a parser would leave as it is. All others go to the router. */
const PLAIN_URL = /^(?:https?:\/\/[\w.:[\]-]+)?(\/v1\/[\w/-]*)(?:\?|$)/;

const router = Router<IRequestStrict>({ base: "/v1" });

/** Adds a path to the router, with all of its rows. */
function addRoute(path: string): void {
  const rows = OPERATIONS.filter((operation) => operation.path === path);
  const methodsOf = ({ method }: Operation) => method === "*" ? METHODS : method === "GET" ? ["GET", "HEAD"] : [method];
  const allow = rows.flatMap(methodsOf).join(", ");
  router.all(path, ({ method, params }): ResolvedOperation => {
    const row = rows.find((each) => methodsOf(each).includes(method));
    if (row !== undefined) return resolve(row, params);
    // Of a path that is in no row nothing is known, not even its methods.
    const isKnown = rows.some(({ group }) => group !== undefined);
    throw isKnown ? new GatewayError("method_not_allowed", { headers: { allow } }) : new GatewayError("not_found");
  });
}

const paths = Array.from(new Set(OPERATIONS.map(({ path }) => path)));
// Plain paths first: `/responses/compact` is no response by that id.
for (const path of paths.filter((path) => !path.includes(":"))) addRoute(path);
for (const path of paths.filter((path) => path.includes(":"))) addRoute(path);

/**
 * Finds the operation. Call it only after the Host was checked: a URL is built from what the caller wrote there.
 *
 * @param method As sent
 * @param url Absolute, or the path with its query
 * @returns The operation
 * @throws {GatewayError} `not_found`, `method_not_allowed`
 */
export function resolveOperation(method: string, url: string): ResolvedOperation | Promise<ResolvedOperation> {
  const operation = EXACT.get(`${method} ${PLAIN_URL.exec(url)?.[1]}`);
  if (operation !== undefined && (url.startsWith("/") || URL.canParse(url))) return operation;
  return route(method, url);
}

async function route(method: string, url: string): Promise<ResolvedOperation> {
  const absolute = /^https?:/i.test(url) ? url : url.startsWith("/") ? `http://gateway${url}` : "http://gateway/";
  const operation: ResolvedOperation | undefined = URL.canParse(absolute)
    ? await router.fetch({ method, url: absolute } as Request) // all that itty-router looks at
    : undefined;
  if (operation === undefined) throw new GatewayError("not_found");
  return operation;
}

/** A query that needs no encoding: visible ASCII without quotes, angle brackets and a fragment. */
const PLAIN_QUERY = /^[!$-;=?-~]*$/;

/**
 * Returns the query of a URL as it can stand in a request line.
 *
 * @param url Absolute, or the path with its query
 * @returns The query with its question mark, unchanged where it was written as it should; empty where there is none
 */
export function toQuery(url: string): string {
  const at = url.indexOf("?");
  if (at === -1) return "";
  const query = url.slice(at);
  return PLAIN_QUERY.test(query) ? query : new URL(`http://gateway/${query}`).search;
}

/**
 * Returns the dialect in which a caller expects an error where no operation tells it: Anthropic's by its version header
 * or the path of messages, else OpenAI's.
 *
 * @param request The request
 * @returns The dialect
 */
export function dialectOfCaller({ url, headers }: Pick<GatewayRequest, "url" | "headers">): Dialect {
  return headers.get("anthropic-version") !== null || /\/v1\/messages\b/.test(url) ? ANTHROPIC : OPENAI_CHAT;
}
