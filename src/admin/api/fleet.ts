/**
 * The route of the fleet at the admin API, with the schema of its answer, and the queries that name
 * a gateway.
 *
 * @module
 */
import * as v from "valibot";
import type { Fleet } from "../../observe/fleet/fleet.ts";
import type { AdminRoute, RouteQuery } from "./route.ts";
import { state } from "./live_schemas.ts";

/**
 * Gateways that a call is about: an id, a name or `all`; `undefined` for the called one.
 */
export interface FleetQuery {
  readonly gateway?: string | undefined;
}

const gatewayForm = "expected the id or the name of a gateway, or all";
/** @internal The schema of the gateways that a call is about. */
export const gateway: v.OptionalSchema<v.GenericSchema<string, string>, undefined> = v.optional(
  v.pipe(v.string(gatewayForm), v.nonEmpty(gatewayForm)),
);

/** The query of what can be seen of all gateways. */
export const FLEET_QUERY: RouteQuery = {
  schema: v.pipe(
    v.strictObject({
      scope: v.optional(v.picklist(["gateway", "fleet"], 'expected "gateway" or "fleet"')),
      gateway,
    }),
    v.forward(
      v.check(
        ({ scope, gateway }) => scope !== "gateway" || gateway === undefined,
        "expected fleet beside gateway",
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

/** The query of what can be done to all gateways. */
export const TURN_QUERY: RouteQuery = {
  schema: v.strictObject({ gateway }),
  means: { gateway: "The gateway with this id or name, or all; this one if left out" },
};

const text = { type: "string" };
const count = { type: "integer", minimum: 0 };
const ms = { type: "number", minimum: 0 };
const maybe = { type: ["number", "null"], minimum: 0 };
const is = { type: "boolean" };

const gatewayProperties = {
  id: { ...text, description: "That of its process: a gateway that starts again has another one" },
  name: { ...text, description: "instance of its configuration, or its host and first port" },
  presence: {
    enum: ["serving", "lost", "left"],
    description: "left: it ended as it should; lost: it fell silent",
  },
  silentMs: { ...ms, description: "Since it was last heard of" },
  isSelf: { ...is, description: "Whether it is the one that answers" },
  state,
  version: text,
  digest: { ...text, description: "Of its configuration; equal for equal ones" },
  startedAt: { ...ms, description: "Milliseconds since 1970" },
  runtime: text,
  workers: { ...count, description: "Processes that serve" },
  workersWanted: count,
  openExchanges: count,
  openStreams: count,
  rate: {
    type: "number",
    minimum: 0,
    description: "Exchanges a second, over the last ten seconds",
  },
  errorShare: { ...maybe, description: "Errors among the exchanges of the last minute" },
  p50: { ...maybe, description: "Duration of an exchange, over the last minute, milliseconds" },
  p95: maybe,
  overhead: {
    ...maybe,
    description: "Half of all take less of the gateway's own time, milliseconds",
  },
  memoryBytes: count,
  isRedisUp: {
    type: ["boolean", "null"],
    description: "Whether Redis answers it; null without one",
  },
  localDecisions: { ...count, description: "Limits that it decided without Redis" },
};

/** JSON Schema of the answer, for the description. */
export const fleetSchema: Readonly<Record<string, unknown>> = {
  type: "object",
  required: ["now", "isShared", "isStale", "asOf", "gateways"],
  properties: {
    now: { ...ms, description: "Wall clock, milliseconds since 1970" },
    isShared: { ...is, description: "Whether there is a Redis, which other gateways can share" },
    isStale: {
      ...is,
      description: "True while Redis does not answer: the others are told as they were",
    },
    asOf: { ...ms, description: "When the others were last heard of" },
    gateways: {
      type: "array",
      items: {
        type: "object",
        required: Object.keys(gatewayProperties),
        properties: gatewayProperties,
      },
    },
  },
};

/** The route of the fleet. */
export const FLEET_ROUTES: readonly AdminRoute<Fleet>[] = [{
  method: "get",
  path: "/v1/fleet",
  operationId: "listGateways",
  summary:
    "List the gateways that share the Redis, side by side, and those that left or were lost lately",
  status: 200,
  answers: "Fleet",
  run: (fleet) => fleet.list(),
}];
