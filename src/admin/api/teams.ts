/**
 * The route of teams at the admin API, with the schema of its answer.
 *
 * @module
 */
import * as v from "valibot";
import type { WrittenLimits } from "../../config/limit_set.ts";
import { LIMIT_NAMES } from "../../limits/limit_kinds.ts";
import type { LimitUse } from "../limit_use.ts";
import type { TeamReports, TeamView } from "../team_reports.ts";
import { type AdminRoute, route } from "./route.ts";
import { anyObject, list, objectOf, oneOf, optional, text } from "./schema.ts";

/** Schema of the use of limits. */
export const useSchema: v.GenericSchema<readonly LimitUse[]> = list(
  objectOf<LimitUse>({
    name: oneOf(LIMIT_NAMES),
    limit: v.pipe(
      v.number(),
      v.description("Of spend, which is a budget of money: in the currency"),
    ),
    used: v.pipe(v.number(), v.description("Including the reservations of open calls")),
    currency: optional(text("Currency of spend")),
    resetsIn: optional(text()),
  }),
  "The use of each limit",
);

/** Schema of limits, whose form the configuration describes. */
export const limitsSchema: v.GenericSchema<WrittenLimits> = anyObject("As they are configured");

/** The answer about teams. */
export interface TeamList {
  readonly teams: readonly TeamView[];
}

/** The route of teams. */
export const TEAM_ROUTES: readonly AdminRoute<TeamReports>[] = [route({
  method: "get",
  path: "/v1/teams",
  operationId: "listTeams",
  summary: "List the configured teams, and how much the keys of each have used of its limits",
  status: 200,
  answers: {
    name: "TeamList",
    schema: objectOf<TeamList>({
      teams: list(objectOf<TeamView>({ name: text(), limits: limitsSchema, use: useSchema })),
    }),
  },
  run: async (teams) => ({ teams: await teams.list() }),
})];
