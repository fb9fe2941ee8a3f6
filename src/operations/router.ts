/**
 * Finds the requested operation, only from the method and the path.
 *
 * @module
 */
import { type IRequestStrict, Router } from "itty-router";
import type { ShapeName } from "../config/shape.ts";
import { ANTHROPIC } from "../dialects/anthropic.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { OPENAI_CHAT } from "../dialects/openai_chat.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { type GatewayRequest, METHODS } from "../http/message.ts";
import { MAX_MODEL_LENGTH } from "./chat_completion.ts";
import { readActionModel } from "./model_actions.ts";
import { readLeniently, readPath } from "./request_path.ts";
import { type Shape, SHAPES } from "./shapes.ts";
import { type Operation, OTHER_OPERATION } from "./table.ts";

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

/** The matching path of a shape, and its parameters. */
interface Match {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}

/** A path of a shape, with its rows. */
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

/** A URL with a path that a parser would not change. The router handles all others. */
const PLAIN_URL = /^(?:https?:\/\/[\w.:[\]-]+)?(\/[\w/-]*)(?:\?|$)/;
/** A colon that follows a parameter within a segment. itty-router would read a parameter there. */
const COLON_IN_SEGMENT = /(?<=:\w+):/g;

function methodsOf({ method }: Operation): readonly string[] {
  if (method === "*") return METHODS;
  return method === "GET" ? ["GET", "HEAD"] : [method];
}

/** Finds the path of a shape that matches; `undefined` if none does. */
type Matcher = (method: string, path: string) => Promise<Match | undefined>;

/** The operations of one shape, prepared for look-ups. */
interface Lookup {
  readonly base: Shape["base"];
  /**
   * Operations without path parameters, by method and path. A look-up needs 0.2 µs, the router 5 µs
   * and a turn of promises (2026-11-26).
   */
  readonly exact: ReadonlyMap<string, Operation>;
  readonly match: Matcher;
}

/** Creates the matcher of a shape's paths. */
function createMatcher({ base, operations }: Shape): Matcher {
  const router = Router<IRequestStrict>({ base });
  const addRoute = (path: string): void => {
    const rows = operations.filter((operation) => operation.path === path);
    const route: Route = { rows, allow: rows.flatMap(methodsOf).join(", ") };
    const pattern = path.replace(COLON_IN_SEGMENT, "[:]");
    router.all(pattern, ({ params }): Match => ({ route, params }));
  };
  const paths = Array.from(new Set(operations.map(({ path }) => path)));
  // Plain paths are first, because `/responses/compact` is not the id of a response.
  for (const path of paths.filter((path) => !path.includes(":"))) addRoute(path);
  for (const path of paths.filter((path) => path.includes(":"))) addRoute(path);
  // All fields that itty-router reads.
  return (method, path) => router.fetch({ method, url: `http://gateway${path}` } as Request);
}

function createLookup(shape: Shape): Lookup {
  const { base, operations } = shape;
  const toEntry = (row: Operation) => [`${row.method} ${base}${row.path}`, row] as const;
  return { base, exact: new Map(operations.map(toEntry)), match: createMatcher(shape) };
}

const LOOKUPS: Readonly<Record<ShapeName, Lookup>> = {
  v1: createLookup(SHAPES.v1),
  gemini: createLookup(SHAPES.gemini),
  azure: createLookup(SHAPES.azure),
  cohere: createLookup(SHAPES.cohere),
  ollama: createLookup(SHAPES.ollama),
  bedrock: createLookup(SHAPES.bedrock),
};

/**
 * Finds the operation of a method and a path. @throws {GatewayError} `not_found`,
 * `method_not_allowed`
 */
async function match(
  method: string,
  path: string,
  lookup: Lookup,
): Promise<ResolvedOperation | undefined> {
  const found = await lookup.match(method, path);
  if (found === undefined) return undefined;
  const { route, params } = found;
  const isTooLong = (value: string) => decodeURIComponent(value).length > MAX_PARAMETER_LENGTH;
  if (Object.values(params).some(isTooLong)) return undefined;
  const row = route.rows.find((each) => methodsOf(each).includes(method));
  const below = path.slice(lookup.base.length);
  if (row === undefined) return toOther(method, below, route);
  if (row.method === "*") return toUnlisted(row, method, below);
  // A trailing slash has no meaning in the table.
  const resolved = { ...row, path: below.replace(/\/+$/, ""), objectId: params.id };
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
  return { ...toUnlisted(OTHER_OPERATION, method, path), allow };
}

/** Methods that read or delete: they cost nothing at any provider. */
const FREE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE"]);

/** Returns the operation of a path whose single operations are not in the table. */
function toUnlisted(row: Operation, method: string, path: string): ResolvedOperation {
  const pricedModel = readActionModel(path);
  return {
    ...row,
    path,
    ...(FREE_METHODS.has(method) && { cost: "none" }),
    ...(pricedModel !== undefined && { pricedModel }),
  };
}

/** Refuses a path that a server could read as another operation, or as another model. */
async function assertOneMeaning(
  method: string,
  path: string,
  operation: ResolvedOperation,
  lookup: Lookup,
) {
  await assertMeaning(method, readLeniently(path, false), operation, lookup);
  // Case matters only if it could hide an operation of the table.
  if (operation.group === undefined) {
    await assertMeaning(method, readLeniently(path, true), operation, lookup);
  }
}

/** Refuses a path if its lenient reading is another operation or model. */
async function assertMeaning(
  method: string,
  lenient: string | undefined,
  { name, modelId }: ResolvedOperation,
  lookup: Lookup,
) {
  const other = lenient === undefined ? undefined : await match(method, lenient, lookup);
  const isSame = other?.name === name && other.modelId === modelId;
  if (lenient === undefined || !isSame) throw new GatewayError("ambiguous_path");
  const isRepeated = lookup.base === "/v1" && REPEATED_VERSION.test(lenient);
  if (!isRepeated) return;
  const inner = await match(method, lenient.replace(REPEATED_VERSION, ""), lookup);
  if (inner?.group !== undefined) throw new GatewayError("ambiguous_path");
}

/**
 * Finds the operation. Call it only after the check of Host, because the URL is built from its
 * value.
 *
 * @param url Absolute, or the path with its query
 * @param shape Shape of the address at which it arrived
 * @throws {GatewayError} `not_found`, `method_not_allowed`, `ambiguous_path`
 */
export function resolveOperation(
  method: string,
  url: string,
  shape: ShapeName = "v1",
): ResolvedOperation | Promise<ResolvedOperation> {
  const lookup = LOOKUPS[shape];
  const operation = lookup.exact.get(`${method} ${PLAIN_URL.exec(url)?.[1]}`);
  const isFound = operation !== undefined && (url.startsWith("/") || URL.canParse(url));
  return isFound ? operation : route(method, url, lookup);
}

async function route(method: string, url: string, lookup: Lookup): Promise<ResolvedOperation> {
  const path = readPath(url);
  const operation = path === undefined ? undefined : await match(method, path, lookup);
  if (path === undefined || operation === undefined) throw new GatewayError("not_found");
  const isUnclear = operation.group === undefined || MISLEADING.test(path);
  if (!operation.isOfGateway && isUnclear) await assertOneMeaning(method, path, operation, lookup);
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
