/**
 * Finds the operation of the provider's interface that the caller asked for, by method and path and nothing else of the
 * URL.
 *
 * @module
 */
import { type IRequestStrict, Router } from "itty-router";
import { GatewayError } from "../errors/gateway_error.ts";
import { CONTROL_CHARACTER, MAX_MODEL_LENGTH } from "./chat_completion.ts";

/** An operation that the gateway forwards. */
export interface Operation {
  readonly name: "chat.completions" | "models.list" | "models.get";
  /** Path below the provider's base URL. */
  readonly path: string;
  /** Id of the model, decoded; for `models.get` only. */
  readonly model?: string;
}

/** Segments that a URL parser would resolve or that name nothing. */
const UNSAFE_SEGMENTS = ["", ".", ".."];

/**
 * Makes the operation for a model's id, the only part of a request that reaches the upstream URL. It is decoded,
 * checked and encoded anew.
 */
function modelOperation(id: string): Operation {
  let segments: string[];
  try {
    segments = id.split("/").map(decodeURIComponent);
  } catch {
    throw new GatewayError("not_found");
  }
  const model = segments.join("/");
  const isUnsafe = model.split(/[/\\]/).some((piece) => UNSAFE_SEGMENTS.includes(piece)) ||
    CONTROL_CHARACTER.test(model);
  if (isUnsafe || model.length > MAX_MODEL_LENGTH) throw new GatewayError("not_found");
  return { name: "models.get", path: `/models/${segments.map(encodeURIComponent).join("/")}`, model };
}

const notAllowed = (allow: string) => () => {
  throw new GatewayError("method_not_allowed", { headers: { allow } });
};

const CHAT_COMPLETIONS: Operation = { name: "chat.completions", path: "/chat/completions" };
/** The URL of nearly every request, matched without the router, which handles all others. */
const CHAT_COMPLETIONS_URL = /^(?:https?:\/\/[\w.:[\]-]+)?\/v1\/chat\/completions(?:\?|$)/;

const router = Router<IRequestStrict>()
  .post("/v1/chat/completions", () => CHAT_COMPLETIONS)
  .all("/v1/chat/completions", notAllowed("POST"))
  .get("/v1/models", (): Operation => ({ name: "models.list", path: "/models" }))
  .get("/v1/models/:id+", ({ params }): Operation => modelOperation(params.id ?? ""))
  .all("/v1/models/*", notAllowed("GET"));

/**
 * Finds the operation. Call it only after the Host was checked: a URL is built from what the caller wrote there.
 *
 * @param method As sent
 * @param url Absolute, or the path with its query
 * @returns The operation
 * @throws {GatewayError} `not_found`, `method_not_allowed`
 */
export function resolveOperation(method: string, url: string): Operation | Promise<Operation> {
  if (method === "POST" && CHAT_COMPLETIONS_URL.test(url) && (url.startsWith("/") || URL.canParse(url))) {
    return CHAT_COMPLETIONS;
  }
  return route(method, url);
}

async function route(method: string, url: string): Promise<Operation> {
  const absolute = /^https?:/i.test(url) ? url : url.startsWith("/") ? `http://gateway${url}` : "http://gateway/";
  const operation: Operation | undefined = URL.canParse(absolute)
    ? await router.fetch({ method, url: absolute } as Request) // all that itty-router looks at
    : undefined;
  if (operation === undefined) throw new GatewayError("not_found");
  return operation;
}
