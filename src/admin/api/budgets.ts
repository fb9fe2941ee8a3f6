/**
 * The route of budgets at the admin API, with the schemas of its query and its answer.
 *
 * @module
 */
import * as v from "valibot";
import { PERIODS } from "../../config/units.ts";
import type {
  BudgetList,
  BudgetParts,
  BudgetQuery,
  BudgetReports,
  BudgetView,
} from "../budget_reports.ts";
import { DEFAULT_LISTED, listLimit } from "./list_limit.ts";
import { type AdminRoute, route } from "./route.ts";
import {
  amount,
  closed,
  count,
  list,
  objectOf,
  oneOf,
  optional,
  orNull,
  record,
  text,
  time,
} from "./schema.ts";

/** Limit of the keys of a page. */
const MAX_LISTED = 1000;

const BudgetQuerySchema: v.GenericSchema<unknown, BudgetQuery> = v.strictObject({
  limit: listLimit(MAX_LISTED),
  after: v.optional(v.string()),
  key: v.optional(v.string()),
  team: v.optional(v.string()),
});

const parts = objectOf<BudgetParts>({
  from: time("Start of the usage: of the period, or of the first day that is kept"),
  stated: amount("What providers stated; money by current prices"),
  estimated: amount("What the gateway estimated, because the provider stated no usage"),
  rest: amount(
    "The used amount that is not in usage: reservations of open calls, and charges that usage does " +
      "not have or prices otherwise, such as amounts without a price",
  ),
  unpriced: optional(record(count(), "Of a budget of money: amounts without a price, by class")),
});

const budget = objectOf<BudgetView>({
  of: oneOf(["key", "team"]),
  id: text("Id of the key or of the caller with an identity token, or name of the team"),
  name: optional(text("Name of the key")),
  team: optional(text("Team of the key")),
  plan: optional(
    text("Plan of the caller with an identity token at its last use"),
  ),
  unit: text("tokens, or the currency"),
  limit: amount(),
  used: amount("Including the reservations of open calls"),
  parts: orNull(
    closed(parts),
    "Parts of the used amount, from stored usage; null if usage can't be read",
  ),
  mode: oneOf(["enforce", "observe", "strict"]),
  period: oneOf(PERIODS),
  renews: time("Start of the next day, week or month, UTC"),
  perDay: orNull(
    amount(),
    "Average daily use over the last 7 days, " +
      "for a daily budget over the last 24 hours, or since the first use in this time, " +
      "at least an hour; null if usage can't be read",
  ),
  paceSince: orNull(
    time(),
    "The time since when the pace is the average; null where nothing was used",
  ),
  runsOut: orNull(
    time(),
    "When it will run out at this pace; " +
      "null where that is not before it renews, or is so already",
  ),
});

/** The route of budgets. */
export const BUDGET_ROUTES: readonly AdminRoute<BudgetReports>[] = [route({
  method: "get",
  path: "/v1/budgets",
  operationId: "listBudgets",
  summary:
    "List the budgets of teams, of keys and of callers with identity tokens that were in use in " +
    "the last 7 days: their use, when they renew, and when they will run out",
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
  response: {
    name: "BudgetList",
    schema: closed(objectOf<BudgetList>({
      budgets: list(closed(budget)),
      next: orNull(text(), "The value of after for the next page"),
    })),
  },
  run: (budgets, { query }) => budgets.list(query),
})];
