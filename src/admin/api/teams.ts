/**
 * The route of teams at the admin API, with the schema of its answer.
 *
 * @module
 */
import { LIMIT_NAMES } from "../../limits/limit_kinds.ts";
import type { TeamReports } from "../team_reports.ts";
import type { AdminRoute } from "./route.ts";

const text = { type: "string" };

/** JSON Schema of the use of limits, for the description. */
export const useSchema: Readonly<Record<string, unknown>> = {
  type: "array",
  description: "What is taken of each limit",
  items: {
    type: "object",
    required: ["name", "limit", "used"],
    properties: {
      name: { enum: LIMIT_NAMES },
      limit: {
        type: "number",
        description: "Of spend, which is a budget of money: in the currency",
      },
      used: { type: "number", description: "With what open calls have reserved" },
      currency: { ...text, description: "That of spend" },
      resetsIn: text,
    },
  },
};

/** JSON Schema of the answer, for the description. */
export const teamListSchema: Readonly<Record<string, unknown>> = {
  type: "object",
  required: ["teams"],
  properties: {
    teams: {
      type: "array",
      items: {
        type: "object",
        required: ["name", "limits", "use"],
        properties: {
          name: text,
          limits: { type: "object", description: "As they are configured" },
          use: useSchema,
        },
      },
    },
  },
};

/** The route of teams. */
export const TEAM_ROUTES: readonly AdminRoute<TeamReports>[] = [{
  method: "get",
  path: "/v1/teams",
  operationId: "listTeams",
  summary: "List the configured teams, and what the keys of each have taken of its limits",
  status: 200,
  answers: "TeamList",
  run: async (teams) => ({ teams: await teams.list() }),
}];
