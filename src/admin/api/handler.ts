/**
 * Handler of the admin listener for operators and load balancers: health, metrics, the console and
 * the admin API.
 *
 * @module
 */
import { Router } from "itty-router";
import type { GatewayRequest, GatewayResponse } from "../../http/message.ts";
import type { Handler } from "../../http/web.ts";
import { toFleetMetricsText } from "../../observe/fleet/fleet_metrics.ts";
import { PAGE_PATHS, toPageResponse } from "../page.ts";
import { toResponse } from "./responses.ts";
import { FLEET_QUERY } from "./fleet.ts";
import { Guard, type GuardParts } from "./guard.ts";
import { toOpenApi } from "./openapi.ts";
import { OperatorActions, type OperatorParts } from "./operator_actions.ts";
import { readQuery } from "./read_request.ts";
import { bindRoutes, type RouteServices } from "./routes.ts";
import {
  addRoutes,
  type AdminRouter,
  refuseOtherMethods,
  type Routed,
  toAdminHandler,
} from "./routing.ts";
import type { SupervisionParts } from "./supervision.ts";

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

function createRouter(parts: AdminParts, guard: Guard): AdminRouter {
  const actions = new OperatorActions(parts);
  const publicRoutes = listPublicRoutes(parts, actions);
  const routes = bindRoutes({ ...parts, actions });
  const router = Router<Routed>();
  for (const { path, methods, answer } of publicRoutes) {
    for (const method of methods) router[method]?.(path, ({ inbound }) => answer(inbound));
  }
  router.get("/metrics", async ({ inbound, url }) => {
    if (guard.isGuarded) await guard.authenticate(inbound);
    return await toMetricsResponse(parts, inbound, url);
  });
  addRoutes(router, routes, guard, parts);
  refuseOtherMethods(router, [
    ...publicRoutes.flatMap(({ path, methods }) => methods.map((method) => ({ path, method }))),
    ...routes,
  ]);
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
  return toAdminHandler(createRouter(parts, guard), guard);
}
