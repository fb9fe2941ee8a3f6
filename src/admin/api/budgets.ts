/**
 * The route of budgets at the admin API, with the schemas of its query and its answer.
 *
 * @module
 */
import * as v from "valibot";
import type { BudgetQuery, BudgetReports } from "../budget_reports.ts";
import type { AdminRoute } from "./route.ts";
import { DEFAULT_LISTED, listLimit } from "./list_limit.ts";

/** Limit of the keys of a page. */
const MAX_LISTED = 1000;

const BudgetQuerySchema: v.GenericSchema<unknown, BudgetQuery> = v.strictObject({
  limit: listLimit(MAX_LISTED),
  after: v.optional(v.string()),
  key: v.optional(v.string()),
  team: v.optional(v.string()),
});

const text = { type: "string" };
const time = { type: ["string", "null"], format: "date-time" };
const amount = { type: "number", minimum: 0 };

const properties = {
  of: { enum: ["key", "team"] },
  id: {
    ...text,
    description: "Id of the key or of the caller with an identity token, or name of the team",
  },
  name: { ...text, description: "That of the key" },
  team: { ...text, description: "That of the key" },
  plan: {
    ...text,
    description: "That of the caller with an identity token, when it was last in use",
  },
  unit: { ...text, description: "tokens, or the currency" },
  limit: amount,
  used: { ...amount, description: "With what open calls have reserved" },
  mode: { enum: ["enforce", "observe", "strict"] },
  period: { enum: ["day", "month"] },
  renews: { ...text, format: "date-time", description: "Start of the next day or month, UTC" },
  perDay: {
    type: ["number", "null"],
    minimum: 0,
    description: "Use in a day at the pace of late: the average of the last 7 days, " +
      "of a budget for a day that of the last 24 hours, or since the first use in them, " +
      "at least an hour; null where usage can't be read",
  },
  paceSince: {
    ...time,
    description: "The time since when the pace is the average; null where nothing was used",
  },
  runsOut: {
    ...time,
    description: "When it will be used up at this pace; " +
      "null where that is not before it renews, or is so already",
  },
};

/** JSON Schema of the answer, for the description. */
export const budgetListSchema: Readonly<Record<string, unknown>> = {
  type: "object",
  required: ["budgets", "next"],
  additionalProperties: false,
  properties: {
    budgets: {
      type: "array",
      items: {
        type: "object",
        required: Object.keys(properties).filter((name) =>
          !["name", "team", "plan"].includes(name)
        ),
        additionalProperties: false,
        properties,
      },
    },
    next: { type: ["string", "null"], description: "What to give as after for the next page" },
  },
};

/** The route of budgets. */
export const BUDGET_ROUTES: readonly AdminRoute<BudgetReports>[] = [{
  method: "get",
  path: "/v1/budgets",
  operationId: "listBudgets",
  summary:
    "List the budgets of teams, of keys and of callers with identity tokens that were in use in " +
    "the last 7 days: what is used, when they renew, and when they will be used up",
  query: {
    schema: BudgetQuerySchema,
    means: {
      limit: `How many keys and callers with a budget at most, up to ${MAX_LISTED}; ` +
        `${DEFAULT_LISTED} if left out. A page ends after 1000 keys in any case; ` +
        "the first one has the teams too",
      after: "The next of the page before",
      key: "Only the budgets of the key or caller with this id",
      team: "Only the budgets of this team",
    },
  },
  status: 200,
  answers: "BudgetList",
  run: (budgets, { query }) => budgets.list(query as BudgetQuery),
}];
