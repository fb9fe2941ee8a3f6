/**
 * Handler of the admin listener for operators and load balancers: health, metrics, the console and
 * the admin API.
 *
 * @module
 */
import { Router } from "itty-router";
import { GatewayError } from "../../errors/gateway_error.ts";
import { type GatewayRequest, type GatewayResponse, isDrainable } from "../../http/message.ts";
import { type Handler, toHandler } from "../../http/web.ts";
import { toFleetMetricsText } from "../../observe/fleet/fleet_metrics.ts";
import { PAGE_PATHS, toPageResponse } from "../page.ts";
import { toFailureResponse, toResponse } from "./responses.ts";
import { FLEET_QUERY } from "./fleet.ts";
import { Guard, type GuardParts, NO_OPERATOR } from "./guard.ts";
import { toOpenApi } from "./openapi.ts";
import { OperatorActions, type OperatorParts } from "./operator_actions.ts";
import { readQuery } from "./read_request.ts";
import type { RouteDescription } from "./route.ts";
import { bindRoutes, type BoundRoute, type RouteServices } from "./routes.ts";
import { supervise, type SupervisionParts } from "./supervision.ts";

/** Parts of the admin listener's handler. */
export interface AdminParts
  extends OperatorParts, GuardParts, SupervisionParts, Omit<RouteServices, "actions"> {
  /** Returns the metrics in a format for Prometheus. */
  readonly metrics: (format: "text" | "openmetrics") => Promise<string>;
}

/** Media types of metrics (https://prometheus.io/docs/instrumenting/exposition_formats/). */
const METRICS_TYPES = {
  text: "text/plain; version=0.0.4; charset=utf-8",
  openmetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
} as const;
/**
 * Matches an `Accept` that allows OpenMetrics 1.0.0. Prometheus asks for several versions, with
 * weights.
 */
const OPENMETRICS_ASKED =
  /application\/openmetrics-text(?!\s*;\s*version=(?!1\.0\.0))(?![^,]*;\s*q=0(?:\.0*)?\s*(?:[;,]|$))/i;

/** Answers with the metrics of this gateway, or of the gateways in the query. */
async function toMetricsResponse(
  { metrics, fleet }: AdminParts,
  { headers: asked }: GatewayRequest,
  url: string,
) {
  const format = OPENMETRICS_ASKED.test(asked.get("accept") ?? "") ? "openmetrics" : "text";
  const headers = {
    "content-type": METRICS_TYPES[format],
    "cache-control": "no-store",
    vary: "accept",
  };
  const { gateway } = readQuery(FLEET_QUERY, url);
  const body = gateway === undefined
    ? await metrics(format)
    : toFleetMetricsText(await fleet.metrics(gateway), format);
  return { status: 200, headers, body };
}

/** Decodes an id or a name of the path; empty if it can't be decoded. */
function readName(text = ""): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** The request as itty-router reads it, and the original one for the routes. */
interface Routed {
  readonly method: string;
  readonly url: string;
  readonly params: Readonly<Record<string, string>>;
  readonly inbound: GatewayRequest;
}

/** A route that needs no token and is not part of the admin API. */
interface PublicRoute {
  readonly path: string;
  readonly methods: readonly ("get" | "head")[];
  answer(inbound: GatewayRequest): GatewayResponse | Promise<GatewayResponse | undefined>;
}

function toReadiness(parts: AdminParts, { state }: OperatorActions): GatewayResponse {
  return toResponse(state === "ready" ? 200 : 503, {
    status: state === "leaving" ? "draining" : state,
    openExchanges: parts.gateway.openExchanges,
    ...parts.health(),
  });
}

function listPublicRoutes(parts: AdminParts, actions: OperatorActions): PublicRoute[] {
  const pages = PAGE_PATHS.map((path): PublicRoute => ({
    path,
    methods: ["get"],
    answer: ({ headers }) => toPageResponse(path, headers.get("accept-encoding")),
  }));
  return [
    {
      path: "/livez",
      methods: ["get", "head"],
      answer: () => toResponse(200, { status: "alive" }),
    },
    { path: "/readyz", methods: ["get", "head"], answer: () => toReadiness(parts, actions) },
    {
      path: "/openapi.json",
      methods: ["get"],
      answer: () => toResponse(200, toOpenApi(parts.version)),
    },
    ...pages,
  ];
}

/** Returns the target of a call for the audit: the path's id or name, or the query's gateways. */
function toTarget({ query }: RouteDescription, id: string, url: string): string {
  const namesGateways = query !== undefined && "gateway" in query.means;
  if (id !== "" || !namesGateways) return id;
  return new URL(url).searchParams.get("gateway") ?? "";
}

/** Answers a call of the admin API. */
async function answerCall(
  route: BoundRoute,
  { params, inbound, url }: Routed,
  guard: Guard,
  parts: AdminParts,
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

/** Returns the methods of each path, as the header `Allow` lists them. */
function listAllowed(open: readonly PublicRoute[], routes: readonly RouteDescription[]) {
  const allowed = new Map<string, string>();
  const methods = [
    ...open.flatMap(({ path, methods }) => methods.map((method) => ({ path, method }))),
    ...routes,
  ];
  for (const { path, method } of methods) {
    const before = allowed.get(path);
    const name = method.toUpperCase();
    allowed.set(path, before === undefined ? name : `${before}, ${name}`);
  }
  return allowed;
}

function createRouter(parts: AdminParts, guard: Guard) {
  const actions = new OperatorActions(parts);
  const open = listPublicRoutes(parts, actions);
  const routes = bindRoutes({ ...parts, actions });
  const router = Router<Routed>();
  for (const { path, methods, answer } of open) {
    for (const method of methods) router[method]?.(path, ({ inbound }) => answer(inbound));
  }
  router.get("/metrics", async ({ inbound, url }) => {
    if (guard.isGuarded) await guard.authenticate(inbound);
    return await toMetricsResponse(parts, inbound, url);
  });
  for (const route of routes) {
    router[route.method]?.(
      toPattern(route.path),
      (routed) => answerCall(route, routed, guard, parts),
    );
  }
  for (const [path, allow] of listAllowed(open, routes)) {
    router.all(toPattern(path), () => {
      throw new GatewayError("method_not_allowed", { headers: { allow } });
    });
  }
  return router;
}

/**
 * Creates the admin listener's handler. `GET /livez` answers if the process runs. `GET /readyz`
 * answers 503 while the gateway drains, and until keys can be looked up. `GET /` is the console's
 * page, which asks for the admin token. `GET /openapi.json` describes the other routes, which need
 * the token.
 */
export function createAdminHandler(parts: AdminParts): Handler {
  const guard = new Guard(parts);
  const router = createRouter(parts, guard);
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
