/**
 * Finds the operation that a caller asks for, by method and path and nothing else of the URL.
 *
 * @module
 */
import { type IRequestStrict, Router } from "itty-router";
import { GatewayError } from "../errors/gateway_error.ts";
import { CONTROL_CHARACTER, MAX_MODEL_LENGTH } from "./chat_completion.ts";
import { type Operation, OPERATIONS } from "./table.ts";

/** An operation as one request asks for it: its path has no parameters left. */
export interface ResolvedOperation extends Operation {
  /** Id of the model, decoded, where it stands in the path. */
  readonly modelId?: string;
}

/** Segments that a URL parser would resolve or that name nothing. */
const UNSAFE_SEGMENTS = ["", ".", ".."];

/**
 * Puts a model's id into the path of its operation, the only part of a request that reaches the upstream URL. It is
 * decoded, checked and encoded anew.
 */
function resolveModel(operation: Operation, id: string): ResolvedOperation {
  let segments: string[];
  try {
    segments = id.split("/").map(decodeURIComponent);
  } catch {
    throw new GatewayError("not_found");
  }
  const modelId = segments.join("/");
  const isUnsafe = modelId.split(/[/\\]/).some((piece) => UNSAFE_SEGMENTS.includes(piece)) ||
    CONTROL_CHARACTER.test(modelId);
  if (isUnsafe || modelId.length > MAX_MODEL_LENGTH) throw new GatewayError("not_found");
  const encoded = segments.map(encodeURIComponent).join("/");
  return { ...operation, path: operation.path.replace(":model+", encoded), modelId };
}

/** Operations by method and path; one with a parameter in its path is never found here. */
const EXACT = new Map(OPERATIONS.map((operation) => [`${operation.method} /v1${operation.path}`, operation]));
/** A URL whose path a parser would leave as it is. All others go to the router. */
const PLAIN_URL = /^(?:https?:\/\/[\w.:[\]-]+)?(\/v1\/[\w/-]*)(?:\?|$)/;

const router = Router<IRequestStrict>({ base: "/v1" });
for (const operation of OPERATIONS) {
  router[operation.method === "GET" ? "get" : "post"](
    operation.path,
    ({ params }): ResolvedOperation =>
      operation.model === "path" ? resolveModel(operation, params.model ?? "") : operation,
  );
}
for (const { path } of OPERATIONS) {
  const allow = OPERATIONS.filter((other) => other.path === path).map(({ method }) => method).join(", ");
  router.all(path, () => {
    throw new GatewayError("method_not_allowed", { headers: { allow } });
  });
}

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
