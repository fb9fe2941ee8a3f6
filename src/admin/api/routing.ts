/**
 * Routing of requests to the routes of the admin API.
 *
 * @module
 */
import type { RouterType } from "itty-router";
import { GatewayError } from "../../errors/gateway_error.ts";
import { type GatewayRequest, type GatewayResponse, isDrainable } from "../../http/message.ts";
import { type Handler, toHandler } from "../../http/web.ts";
import type { BoundRoute } from "./bound_route.ts";
import { type Guard, NO_OPERATOR } from "./guard.ts";
import { readQuery } from "./read_request.ts";
import { toFailureResponse } from "./responses.ts";
import type { RouteDescription } from "./route.ts";
import { supervise, type SupervisionParts } from "./supervision.ts";

/** Decodes an id or a name of the path; empty if it can't be decoded. */
function readName(text = ""): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** The request as itty-router reads it, and the original one for the routes. */
export interface Routed {
  readonly method: string;
  readonly url: string;
  readonly params: Readonly<Record<string, string>>;
  readonly inbound: GatewayRequest;
}

/** Returns the target of a call for the audit: the path's id or name, or the query's gateways. */
function toTarget({ query }: RouteDescription, id: string, url: string): string {
  const namesGateways = query !== undefined && "gateway" in query.means;
  if (id !== "" || !namesGateways) return id;
  return new URL(url).searchParams.get("gateway") ?? "";
}

/** Responds to a request of the admin API. */
async function respond(
  route: BoundRoute,
  { params, inbound, url }: Routed,
  guard: Guard,
  parts: SupervisionParts,
): Promise<GatewayResponse> {
  const id = readName(Object.values(params)[0]);
  if (route.isPublic === true) {
    const answered = await route.answer({ id, operator: NO_OPERATOR, query: undefined, inbound });
    return answered.response;
  }
  const operator = await guard.authenticate(inbound, route.tokenIn);
  const call = { ...route, target: toTarget(route, id, url) };
  return await supervise(call, operator, parts, async () => {
    const query = route.query && readQuery(route.query, url);
    return await route.answer({ id, operator, query, inbound });
  });
}

const toPattern = (path: string): string => path.replace(/\{(\w+)\}/, ":$1");

/** A router of the admin API. */
export type AdminRouter = RouterType<Routed>;

/** Adds routes with their services. */
export function addRoutes(
  router: AdminRouter,
  routes: readonly BoundRoute[],
  guard: Guard,
  parts: SupervisionParts,
): void {
  for (const route of routes) {
    router[route.method]?.(
      toPattern(route.path),
      (routed) => respond(route, routed, guard, parts),
    );
  }
}

/** Refuses other methods of the paths of these routes. They have to be added before. */
export function refuseOtherMethods(
  router: AdminRouter,
  routes: readonly { readonly path: string; readonly method: string }[],
): void {
  const allowed = new Map<string, string>();
  for (const { path, method } of routes) {
    const before = allowed.get(path);
    const name = method.toUpperCase();
    allowed.set(path, before === undefined ? name : `${before}, ${name}`);
  }
  for (const [path, allow] of allowed) {
    router.all(toPattern(path), () => {
      throw new GatewayError("method_not_allowed", { headers: { allow } });
    });
  }
}

/** Creates a handler of a router's routes. */
export function toAdminHandler(router: AdminRouter, guard: Guard): Handler {
  return toHandler(async (inbound) => {
    // The caller's Host is not used further: the URL is built from the path.
    const url = `http://admin${inbound.url.replace(/^https?:\/\/[^/]*/i, "")}`;
    const { method } = inbound;
    try {
      guard.assertLocal(inbound);
      const answer: GatewayResponse | undefined = URL.canParse(url)
        ? await router.fetch({ method, url, inbound } as unknown as Routed)
        : undefined;
      if (answer !== undefined) return answer;
      throw new GatewayError("unknown_admin_path");
    } catch (thrown) {
      const refusal = toFailureResponse(thrown);
      if (!isDrainable(inbound)) refusal.headers.connection = "close";
      return refusal;
    }
  });
}
