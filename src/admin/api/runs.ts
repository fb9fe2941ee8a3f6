/**
 * The routes of runs at the admin API, with the schemas of their answers.
 *
 * @module
 */
import * as v from "valibot";
import type { RunLists, RunView, StoppedRun } from "../run_lists.ts";
import { authorOf, REASON_ENTRIES, REASON_MEANS } from "./changes.ts";
import { listLimit, listLimitMeans } from "./list_limit.ts";
import { type AdminRoute, route } from "./route.ts";
import { count, list, objectOf, oneOf, optional, text, time } from "./schema.ts";

const MAX_LISTED = 1000;
const MAX_TEXT = 256;

const keyForm = "expected the id of a gateway key";
const key = v.pipe(
  v.string(keyForm),
  v.nonEmpty(keyForm),
  v.maxLength(MAX_TEXT, keyForm),
);

const run = objectOf<RunView>({
  id: text("The id that its caller chose; unique under its gateway key"),
  key: text("Id of the gateway key"),
  parent: optional(text("Id of the run above it")),
  state: oneOf(
    ["open", "idle", "stopped"],
    "open: it has open calls; stopped: it or a run above it was stopped",
  ),
  budget: optional(text("The most money; left out for any")),
  spent: text("Money of its calls that have ended, with those of the runs below it"),
  reserved: text("Money that is reserved for its open calls"),
  currency: text(),
  callLimit: optional(count("The most calls; left out for any")),
  calls: count("Its calls, with those of the runs below it"),
  openCalls: count(),
  repeats: optional(
    count("How many times in a row it has sent its last body; left out if bodies are not counted"),
  ),
  repeatLimit: optional(
    count("runs.repeats: more repeats than this are reported, and refused if so configured"),
  ),
  opened: time(),
  lastUsed: time(),
});

/** The response about runs. */
export interface RunList {
  readonly runs: readonly RunView[];
}

/** The routes of runs. */
export const RUN_ROUTES: readonly AdminRoute<RunLists>[] = [
  route({
    method: "get",
    path: "/v1/runs",
    operationId: "listRuns",
    summary: "List the runs of agents that are remembered, the last used first",
    query: {
      schema: v.strictObject({ key: v.optional(key), limit: listLimit(MAX_LISTED) }),
      means: {
        key: "Only of the gateway key with this id",
        limit: listLimitMeans(MAX_LISTED),
      },
    },
    status: 200,
    response: { name: "RunList", schema: objectOf<RunList>({ runs: list(run) }) },
    run: async (lists, { query }) => ({ runs: await lists.list(query.key, query.limit) }),
  }),
  route({
    method: "delete",
    path: "/v1/runs/{id}",
    operationId: "stopRun",
    summary: "Stop a run and all runs below it: their open calls end with run_stopped, " +
      "and further calls are refused",
    query: {
      schema: v.strictObject({ key, ...REASON_ENTRIES }),
      means: { key: "The id of the gateway key that the run belongs to", ...REASON_MEANS },
    },
    status: 200,
    response: {
      name: "StoppedRun",
      schema: objectOf<StoppedRun>({ id: text(), key: text() }),
    },
    run: (lists, call) => lists.stop(call.query.key, call.id, authorOf(call)),
  }),
];
