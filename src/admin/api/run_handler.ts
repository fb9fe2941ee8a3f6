/**
 * Handler for operators with the routes of runs alone, for runtimes without an admin listener.
 *
 * @module
 */
import { Router } from "itty-router";
import type { Handler } from "../../http/web.ts";
import type { RunLists } from "../run_lists.ts";
import { bindRoute } from "./bound_route.ts";
import { Guard, type GuardParts } from "./guard.ts";
import { addRoutes, refuseOtherMethods, type Routed, toAdminHandler } from "./routing.ts";
import { RUN_ROUTES } from "./runs.ts";
import type { SupervisionParts } from "./supervision.ts";

/** Parts of the handler of runs. */
export interface RunHandlerParts extends GuardParts, SupervisionParts {
  readonly runs: RunLists;
}

/** Creates the handler of runs. Its routes need the admin token. */
export function createRunHandler(parts: RunHandlerParts): Handler {
  const guard = new Guard(parts);
  const router = Router<Routed>();
  addRoutes(router, RUN_ROUTES.map((route) => bindRoute(route, parts.runs)), guard, parts);
  refuseOtherMethods(router, RUN_ROUTES);
  return toAdminHandler(router, guard);
}
