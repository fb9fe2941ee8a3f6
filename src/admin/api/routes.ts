/**
 * All routes of the admin API with a description. `handler.ts` serves the others: the probes,
 * `/openapi.json`, `/metrics` and the page.
 *
 * @module
 */
import type { Fleet } from "../../observe/fleet/fleet.ts";
import type { HistoryReports } from "../../usage/history/report.ts";
import type { UsageReports } from "../../usage/report.ts";
import type { BudgetReports } from "../budget_reports.ts";
import type { Changes } from "../changes.ts";
import type { Credits } from "../credits.ts";
import type { KeyAdministration } from "../key_administration.ts";
import type { ProviderReports } from "../provider_reports.ts";
import type { RecordingLists } from "../recording_lists.ts";
import type { RunLists } from "../run_lists.ts";
import type { TeamAdministration } from "../team_administration.ts";
import type { TokenAdministration } from "../token_administration.ts";
import { bindRoute, type BoundRoute } from "./bound_route.ts";
import { BUDGET_ROUTES } from "./budgets.ts";
import { CHANGE_ROUTES } from "./changes.ts";
import { CREDIT_ROUTES } from "./credits.ts";
import { EXCHANGE_ROUTES, type FindExchanges } from "./exchanges.ts";
import { FLEET_ROUTES } from "./fleet.ts";
import { HISTORY_ROUTES } from "./history.ts";
import { KEY_ROUTES } from "./keys.ts";
import { OPERATOR_ROUTES, type OperatorActions } from "./operator_actions.ts";
import { PROVIDER_ROUTES } from "./providers.ts";
import { RECORDING_ROUTES } from "./recordings.ts";
import type { AdminRoute, RouteDescription } from "./route.ts";
import { RUN_ROUTES } from "./runs.ts";
import { SIGN_IN_ROUTES, type SignIns } from "./sign_in.ts";
import { TEAM_ROUTES } from "./teams.ts";
import { TOKEN_ROUTES } from "./tokens.ts";
import { USAGE_ROUTES } from "./usage.ts";

/** The services that routes call. */
export interface RouteServices {
  readonly keys: KeyAdministration;
  readonly tokens: TokenAdministration;
  readonly signIns: SignIns;
  readonly teams: TeamAdministration;
  readonly providerReports: ProviderReports;
  readonly credits: Credits;
  readonly changes: Changes;
  readonly budgets: BudgetReports;
  readonly usage: UsageReports;
  readonly history: HistoryReports;
  readonly exchanges: FindExchanges;
  readonly recordings: RecordingLists;
  readonly runs: RunLists;
  readonly fleet: Fleet;
  readonly actions: OperatorActions;
}

type RouteTable = {
  readonly [Name in keyof RouteServices]: readonly AdminRoute<RouteServices[Name]>[];
};

/** The routes of each service, in the order of the description. */
const ROUTES: RouteTable = {
  keys: KEY_ROUTES,
  tokens: TOKEN_ROUTES,
  signIns: SIGN_IN_ROUTES,
  teams: TEAM_ROUTES,
  providerReports: PROVIDER_ROUTES,
  credits: CREDIT_ROUTES,
  changes: CHANGE_ROUTES,
  budgets: BUDGET_ROUTES,
  usage: USAGE_ROUTES,
  history: HISTORY_ROUTES,
  exchanges: EXCHANGE_ROUTES,
  recordings: RECORDING_ROUTES,
  runs: RUN_ROUTES,
  fleet: FLEET_ROUTES,
  actions: OPERATOR_ROUTES,
};

/** All routes, in the order of the description. */
export const ADMIN_ROUTES: readonly RouteDescription[] = Object.values(ROUTES).flat();

/** Binds all routes to their services. */
export function bindRoutes(services: RouteServices): BoundRoute[] {
  const bind = <Name extends keyof RouteServices>(name: Name): BoundRoute[] => {
    const routes: readonly AdminRoute<RouteServices[Name]>[] = ROUTES[name];
    return routes.map((route) => bindRoute(route, services[name]));
  };
  return (Object.keys(ROUTES) as (keyof RouteServices)[]).flatMap((name) => bind(name));
}
