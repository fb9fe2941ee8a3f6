/**
 * The routes of teams at the admin API, with the schemas of their answers.
 *
 * @module
 */
import * as v from "valibot";
import type { WrittenLimits } from "../../config/limit_set.ts";
import { LIMIT_NAMES } from "../../config/limit_kinds.ts";
import type { LimitUse } from "../limit_use.ts";
import { NewTeamSchema, TeamPatchSchema } from "../../config/team.ts";
import type { TeamAdministration, TeamView } from "../team_administration.ts";
import { authorOf, REASON, REASON_ENTRIES, REASON_MEANS } from "./changes.ts";
import { type AdminRoute, route } from "./route.ts";
import { anyObject, flag, list, type Named, objectOf, oneOf, optional, text } from "./schema.ts";

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

const teamSchema = objectOf<TeamView>({
  name: text(),
  source: oneOf(["configuration", "store"], "Only stored teams can be changed"),
  limits: limitsSchema,
  heldKeys: optional(flag("True if its callers can use provider keys that the gateway holds")),
  unreadable: optional(
    text("The part of its record that this version does not understand: its keys are refused"),
  ),
  use: useSchema,
});
const TEAM: Named<TeamView> = { name: "Team", schema: teamSchema };

/** The response about teams. */
export interface TeamList {
  readonly teams: readonly TeamView[];
  /** True if keys are in the configuration, so that no team can be created. */
  readonly readOnly: boolean;
}

const FORCE = {
  schema: v.strictObject({
    ...REASON_ENTRIES,
    force: v.optional(v.picklist(["true", "false"], 'expected "true" or "false"'), "false"),
  }),
  means: {
    ...REASON_MEANS,
    force: "With true, also while keys use it: their calls are then refused",
  },
};

/** The routes of teams. */
export const TEAM_ROUTES: readonly AdminRoute<TeamAdministration>[] = [
  route({
    method: "get",
    path: "/v1/teams",
    operationId: "listTeams",
    summary: "List the teams, and how much the keys of each have used of its limits",
    status: 200,
    response: {
      name: "TeamList",
      schema: objectOf<TeamList>({
        teams: list(teamSchema),
        readOnly: flag("True if keys are in the configuration: no team can be created"),
      }),
    },
    run: async (teams) => ({ teams: await teams.list(), readOnly: teams.isReadOnly }),
  }),
  route({
    method: "post",
    path: "/v1/teams",
    operationId: "createTeam",
    summary: "Create a team, which works at once in all gateways",
    query: REASON,
    body: { name: "NewTeam", schema: NewTeamSchema },
    status: 201,
    response: TEAM,
    run(teams, { body, ...call }) {
      const { name, ...policy } = body;
      return teams.create(name, policy, authorOf(call));
    },
  }),
  route({
    method: "get",
    path: "/v1/teams/{name}",
    operationId: "showTeam",
    summary: "Show a team and the use of its limits",
    status: 200,
    response: TEAM,
    run: (teams, { id }) => teams.show(id),
  }),
  route({
    method: "patch",
    path: "/v1/teams/{name}",
    operationId: "updateTeam",
    summary: "Change the settings of a stored team; null removes a setting or one of its limits",
    query: REASON,
    body: { name: "TeamPatch", schema: TeamPatchSchema },
    status: 200,
    response: TEAM,
    run: (teams, { id, body, ...call }) => teams.update(id, body, authorOf(call)),
  }),
  route({
    method: "delete",
    path: "/v1/teams/{name}",
    operationId: "deleteTeam",
    summary: "Delete a stored team. Refused while keys use it",
    query: FORCE,
    status: 200,
    response: TEAM,
    run: (teams, call) => teams.delete(call.id, call.query.force === "true", authorOf(call)),
  }),
];
