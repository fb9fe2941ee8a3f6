/**
 * The route of the fleet in the admin API, with the schema of its answer, and the queries that
 * select gateways.
 *
 * @module
 */
import * as v from "valibot";
import type { Fleet } from "../../observe/fleet/fleet.ts";
import type { FleetGateway, FleetReport } from "../../observe/fleet/fleet_report.ts";
import { stateSchema } from "./live_schemas.ts";
import { type AdminRoute, route, type RouteQuery } from "./route.ts";
import { amount, count, flag, list, objectOf, oneOf, orNull, text } from "./schema.ts";

/** The selected gateways: an id, a name or `all`; `undefined` for the called gateway. */
export interface FleetQuery {
  readonly gateway?: string | undefined;
}

const gatewayForm = "expected the id or the name of a gateway, or all";
/** @internal The schema of the selected gateways. */
export const gateway: v.OptionalSchema<v.GenericSchema<string, string>, undefined> = v.optional(
  v.pipe(v.string(gatewayForm), v.nonEmpty(gatewayForm)),
);

/** The query of routes that read data of all gateways. */
export const FLEET_QUERY: RouteQuery<FleetQuery> = {
  schema: v.pipe(
    v.strictObject({
      scope: v.optional(v.picklist(["gateway", "fleet"], 'expected "gateway" or "fleet"')),
      gateway,
    }),
    v.forward(
      v.check(
        ({ scope, gateway }) => scope !== "gateway" || gateway === undefined,
        "expected fleet together with gateway",
      ),
      ["scope"],
    ),
    v.transform(({ scope, gateway }): FleetQuery => ({
      gateway: gateway ?? (scope === "fleet" ? "all" : undefined),
    })),
  ),
  means: {
    scope: "fleet for all gateways that share the Redis, gateway for this one; gateway if left out",
    gateway: "Only the gateway with this id or name; all for all of them",
  },
};

/** The query of the routes that drain and resume gateways. */
export const DRAIN_QUERY: RouteQuery<FleetQuery> = {
  schema: v.strictObject({ gateway }),
  means: { gateway: "The gateway with this id or name, or all; this one if left out" },
};

const gatewaySchema = objectOf<FleetGateway>({
  id: text("Id of its process: a gateway that starts again has another one"),
  name: text("instance of its configuration, or its host and first port"),
  presence: oneOf(
    ["serving", "lost", "left"],
    "left: it ended as it should; lost: it fell silent",
  ),
  silentMs: amount("Since it was last heard of"),
  isSelf: flag("Whether this gateway answers"),
  state: stateSchema,
  version: text(),
  digest: text("Of its configuration; equal for equal ones"),
  startedAt: amount("Milliseconds since 1970"),
  runtime: text(),
  workers: count("Processes that serve"),
  workersWanted: count(),
  openExchanges: count(),
  openStreams: count(),
  rate: amount("Exchanges a second, over the last ten seconds"),
  errorShare: orNull(amount(), "Errors among the exchanges of the last minute"),
  p50: orNull(amount(), "Duration of an exchange, over the last minute, milliseconds"),
  p95: orNull(amount()),
  overhead: orNull(
    amount(),
    "Median of the gateway's own time, milliseconds",
  ),
  memoryBytes: count(),
  isRedisUp: orNull(flag(), "Whether Redis answers it; null without one"),
  localDecisions: count("Limits that it decided without Redis"),
});

/** The route of the fleet. */
export const FLEET_ROUTES: readonly AdminRoute<Fleet>[] = [route({
  method: "get",
  path: "/v1/fleet",
  operationId: "listGateways",
  summary:
    "List the gateways that share the Redis, including gateways that recently left or were lost",
  status: 200,
  response: {
    name: "Fleet",
    schema: objectOf<FleetReport>({
      now: amount("Wall clock, milliseconds since 1970"),
      isShared: flag("Whether there is a Redis, which other gateways can share"),
      isStale: flag("True while Redis does not answer: the others are told as they were"),
      asOf: amount("When the others were last heard of"),
      gateways: list(gatewaySchema),
    }),
  },
  run: (fleet) => fleet.list(),
})];
