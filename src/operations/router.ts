/**
 * Finds the requested operation, only from the method and the path.
 *
 * @module
 */
import { type IRequestStrict, Router } from "itty-router";
import { ANTHROPIC } from "../dialects/anthropic.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { OPENAI_CHAT } from "../dialects/openai_chat.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type GatewayRequest, METHODS } from "../http/message.ts";
import { MAX_MODEL_LENGTH } from "./chat_completion.ts";
import { readLeniently, readPath } from "./request_path.ts";
import { type Operation, OPERATIONS, OTHER } from "./table.ts";

/** An operation of one request: its path has no parameters. */
export interface ResolvedOperation extends Operation {
  /** Id of the stored object that the path names with `:id`, such as a response. */
  readonly objectId?: string | undefined;
  /** Id of the model, decoded, if it is in the path. */
  readonly modelId?: string;
  /** Model that the path of an unknown operation names, for its price. */
  readonly pricedModel?: string;
  /** The methods of this path in the table, if the request has another method. */
  readonly allow?: string;
}

/** The matching path of the table, and its parameters. */
interface Match {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}

/** A path of the table, with its rows. */
interface Route {
  readonly rows: readonly Operation[];
  readonly allow: string;
}

/** The longest value of a path's parameter. Characters, decoded. */
const MAX_PARAMETER_LENGTH = 1024;
/** Parts of a path that servers read in different ways, see `request_path.ts`. */
const MISLEADING = /[%;]|\/\//;
/** Repeated prefixes `/v1`. Some servers have their operations with and without the prefix. */
const REPEATED_VERSION = /^(?:\/v1)+(?=\/v1\/)/;

/**
 * Operations without path parameters, by method and path. A look-up needs 0.2 µs, the router 5 µs
 * and a turn of promises (2026-11-26).
 */
const EXACT = new Map(
  OPERATIONS.map((operation) => [`${operation.method} /v1${operation.path}`, operation]),
);
/** A URL with a path that a parser would not change. The router handles all others. */
const PLAIN_URL = /^(?:https?:\/\/[\w.:[\]-]+)?(\/v1\/[\w/-]*)(?:\?|$)/;

const router = Router<IRequestStrict>({ base: "/v1" });

function methodsOf({ method }: Operation): readonly string[] {
  if (method === "*") return METHODS;
  return method === "GET" ? ["GET", "HEAD"] : [method];
}

/** Adds a path to the router, with all of its rows. */
function addRoute(path: string): void {
  const rows = OPERATIONS.filter((operation) => operation.path === path);
  const route: Route = { rows, allow: rows.flatMap(methodsOf).join(", ") };
  router.all(path, ({ params }): Match => ({ route, params }));
}

const paths = Array.from(new Set(OPERATIONS.map(({ path }) => path)));
// Plain paths are first, because `/responses/compact` is not the id of a response.
for (const path of paths.filter((path) => !path.includes(":"))) addRoute(path);
for (const path of paths.filter((path) => path.includes(":"))) addRoute(path);

/**
 * Finds the operation of a method and a path. @throws {GatewayError} `not_found`,
 * `method_not_allowed`
 */
async function match(method: string, path: string): Promise<ResolvedOperation | undefined> {
  // All fields that itty-router reads.
  const found: Match | undefined = await router.fetch(
    { method, url: `http://gateway${path}` } as Request,
  );
  if (found === undefined) return undefined;
  const { route, params } = found;
  const isTooLong = (value: string) => decodeURIComponent(value).length > MAX_PARAMETER_LENGTH;
  if (Object.values(params).some(isTooLong)) return undefined;
  const row = route.rows.find((each) => methodsOf(each).includes(method));
  if (row === undefined) return toOther(method, path, route);
  if (row.method === "*") return toUnlisted(row, method, path);
  // A trailing slash has no meaning in the table.
  const plainPath = path.replace(/\/+$/, "").slice("/v1".length);
  const resolved = { ...row, path: plainPath, objectId: params.id };
  if (params.model === undefined) return resolved;
  const modelId = decodeURIComponent(params.model.replace(/\/+$/, ""));
  return modelId.length > MAX_MODEL_LENGTH ? undefined : { ...resolved, modelId };
}

/**
 * Returns the operation of a known path with a method that it does not have; `undefined` for the
 * gateway's own paths.
 */
function toOther(
  method: string,
  path: string,
  { rows, allow }: Route,
): ResolvedOperation | undefined {
  if (rows.every(({ group }) => group === undefined)) return undefined;
  if (!METHODS.includes(method)) {
    throw new GatewayError("method_not_allowed", { headers: { allow } });
  }
  return { ...toUnlisted(OTHER, method, path), allow };
}

/** Methods that read or delete: they cost nothing at any provider. */
const FREE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE"]);
/** Model and action in a path of Gemini's interface (https://ai.google.dev/api/generate-content). */
const MODEL_ACTION = /\/models\/([^/:]+):\w+$/;

/** Returns the operation of a path whose single operations are not in the table. */
function toUnlisted(row: Operation, method: string, path: string): ResolvedOperation {
  const [, pricedModel] = MODEL_ACTION.exec(path) ?? [];
  return {
    ...row,
    path: path.slice("/v1".length),
    ...(FREE_METHODS.has(method) && { cost: "none" }),
    ...(pricedModel !== undefined && { pricedModel }),
  };
}

/** Refuses a path that a server could read as another operation, or as another model. */
async function assertOneMeaning(
  method: string,
  path: string,
  { group, name, modelId }: ResolvedOperation,
) {
  // Case matters only if it could hide an operation of the table.
  const lenient = readLeniently(path, group === undefined);
  const other = lenient === undefined ? undefined : await match(method, lenient);
  if (other?.name !== name || other.modelId !== modelId) throw new GatewayError("ambiguous_path");
  if (lenient === undefined || !REPEATED_VERSION.test(lenient)) return;
  const inner = await match(method, lenient.replace(REPEATED_VERSION, ""));
  if (inner?.group !== undefined) throw new GatewayError("ambiguous_path");
}

/**
 * Finds the operation. Call it only after the check of Host, because the URL is built from its
 * value.
 *
 * @param url Absolute, or the path with its query
 * @throws {GatewayError} `not_found`, `method_not_allowed`, `ambiguous_path`
 */
export function resolveOperation(
  method: string,
  url: string,
): ResolvedOperation | Promise<ResolvedOperation> {
  const operation = EXACT.get(`${method} ${PLAIN_URL.exec(url)?.[1]}`);
  const isFound = operation !== undefined && (url.startsWith("/") || URL.canParse(url));
  return isFound ? operation : route(method, url);
}

async function route(method: string, url: string): Promise<ResolvedOperation> {
  const path = readPath(url);
  const operation = path === undefined ? undefined : await match(method, path);
  if (path === undefined || operation === undefined) throw new GatewayError("not_found");
  const isUnclear = operation.group === undefined || MISLEADING.test(path);
  if (!operation.isOwn && isUnclear) await assertOneMeaning(method, path, operation);
  return operation;
}

/**
 * Makes the error for an operation that only `all` allows, if `all` is not set.
 *
 * @returns `method_not_allowed` for a path of the table, else `not_found`
 */
export function toUnknownError({ allow }: ResolvedOperation): GatewayError {
  return allow === undefined
    ? new GatewayError("not_found")
    : new GatewayError("method_not_allowed", { headers: { allow } });
}

/** A query that needs no encoding: visible ASCII without quotes, angle brackets and a fragment. */
const PLAIN_QUERY = /^[!$-;=?-~]*$/;

/**
 * Returns the query of a URL in a form that is valid in a request line.
 *
 * @param url Absolute, or the path with its query
 * @returns The query with its question mark, unchanged if it was valid; empty if there is none
 */
export function toQuery(url: string): string {
  const at = url.indexOf("?");
  if (at === -1) return "";
  const query = url.slice(at);
  return PLAIN_QUERY.test(query) ? query : new URL(`http://gateway/${query}`).search;
}

/**
 * Returns the dialect in which a caller expects an error if there is no operation: Anthropic's by
 * its version header or the path of messages, else OpenAI's.
 */
export function dialectOfCaller(
  { url, headers }: Pick<GatewayRequest, "url" | "headers">,
): Dialect {
  return headers.get("anthropic-version") !== null || /\/v1\/messages\b/.test(url)
    ? ANTHROPIC
    : OPENAI_CHAT;
}
