/**
 * The routes of durable exchanges at the admin API, with the schemas of their answers.
 *
 * @module
 */
import * as v from "valibot";
import type { RecordingLists } from "../recording_lists.ts";
import type { AdminRoute } from "./route.ts";
import { listLimit, listLimitMeans } from "./list_limit.ts";

const MAX_LISTED = 500;

const ListSchema = v.strictObject({
  limit: listLimit(MAX_LISTED),
});

const text = { type: "string" };
const time = { type: "string", format: "date-time" };

/** JSON Schemas of the answers, for the description. */
export const recordingSchemas: Readonly<
  Record<"RecordingList" | "StoppedRecording", unknown>
> = {
  RecordingList: {
    type: "object",
    required: ["recordings"],
    properties: {
      recordings: {
        type: "array",
        items: {
          type: "object",
          required: ["id", "state", "key", "provider", "operation", "started", "bytes"],
          properties: {
            id: {
              ...text,
              description:
                "The last part of its address; without both keys of its caller of no use",
            },
            state: {
              enum: ["running", "lost", "complete", "broken"],
              description: "lost: its gateway has died, and nobody has read it since",
            },
            key: { ...text, description: "Id of the gateway key" },
            keyName: text,
            provider: text,
            operation: text,
            started: time,
            bytes: { type: "integer", description: "Bytes of the answer that are stored" },
            expires: { ...time, description: "When they are deleted; left out while it runs" },
          },
        },
      },
    },
  },
  StoppedRecording: {
    type: "object",
    required: ["id", "stopped"],
    properties: {
      id: text,
      stopped: { type: "boolean", description: "False if it had ended before" },
    },
  },
};

/** The routes of durable exchanges. */
export const RECORDING_ROUTES: readonly AdminRoute<RecordingLists>[] = [
  {
    method: "get",
    path: "/v1/recordings",
    operationId: "listRecordings",
    summary:
      "List durable exchanges that run or are kept, the newest first: facts, never what was said",
    query: {
      schema: ListSchema,
      means: { limit: listLimitMeans(MAX_LISTED) },
    },
    status: 200,
    answers: "RecordingList",
    async run(lists, { query }) {
      const { limit } = query as v.InferOutput<typeof ListSchema>;
      return { recordings: await lists.list(limit) };
    },
  },
  {
    method: "post",
    path: "/v1/recordings/{id}/stop",
    operationId: "stopRecording",
    summary: "Stop a durable exchange that runs: the provider's call is cancelled, " +
      "and its callers are told",
    status: 200,
    answers: "StoppedRecording",
    run: (lists, { id }) => lists.stop(id),
  },
];
