/**
 * The routes of durable exchanges at the admin API, with the schemas of their answers.
 *
 * @module
 */
import * as v from "valibot";
import type { RecordingLists, RecordingView, StoppedRecording } from "../recording_lists.ts";
import { listLimit, listLimitMeans } from "./list_limit.ts";
import { type AdminRoute, route } from "./route.ts";
import { flag, list, objectOf, oneOf, optional, text, time } from "./schema.ts";

const MAX_LISTED = 500;

const ListSchema = v.strictObject({
  limit: listLimit(MAX_LISTED),
});

const recording = objectOf<RecordingView>({
  id: text("The last part of its address; without both keys of its caller of no use"),
  state: oneOf(
    ["running", "lost", "complete", "broken"],
    "lost: its gateway has died, and it has had no reader since",
  ),
  key: text("Id of the gateway key"),
  keyName: optional(text()),
  provider: text(),
  operation: text(),
  started: time(),
  bytes: v.pipe(
    v.number(),
    v.integer(),
    v.description("Bytes of the answer that are stored"),
  ),
  expires: optional(time("When they are deleted; left out while it runs")),
});

/** The response about durable exchanges. */
export interface RecordingList {
  readonly recordings: readonly RecordingView[];
}

/** The routes of durable exchanges. */
export const RECORDING_ROUTES: readonly AdminRoute<RecordingLists>[] = [
  route({
    method: "get",
    path: "/v1/recordings",
    operationId: "listRecordings",
    summary:
      "List durable exchanges that run or are kept, the newest first: only facts, never content",
    query: {
      schema: ListSchema,
      means: { limit: listLimitMeans(MAX_LISTED) },
    },
    status: 200,
    response: {
      name: "RecordingList",
      schema: objectOf<RecordingList>({ recordings: list(recording) }),
    },
    run: async (lists, { query }) => ({ recordings: await lists.list(query.limit) }),
  }),
  route({
    method: "post",
    path: "/v1/recordings/{id}/stop",
    operationId: "stopRecording",
    summary: "Stop a durable exchange that runs: the provider's call is cancelled, " +
      "and its callers are told",
    status: 200,
    response: {
      name: "StoppedRecording",
      schema: objectOf<StoppedRecording>({
        id: text(),
        stopped: flag("False if it had ended before"),
      }),
    },
    run: (lists, { id }) => lists.stop(id),
  }),
];
