/** Messages about recordings between a worker and its supervisor: an unreadable one fails alone. */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { MemoryRecordings } from "../../src/durable/recording_store_memory.ts";
import { RecordingServer } from "../../src/durable/recording_server.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import type {
  RecordingQuestions,
  RecordingReplies,
} from "../../src/serve/workers/recording_messages.ts";
import { RecordingsClient } from "../../src/serve/workers/worker/recordings_client.ts";
import { WorkerRecordings } from "../../src/serve/workers/supervisor/worker_recordings.ts";
import { until } from "../support/until.ts";

describe("an unreadable message about recordings", () => {
  it("fails at the supervisor, which answers the others", async () => {
    const store = new MemoryRecordings({ clock: systemClock, maxBytes: 10_000 });
    const answers: RecordingReplies[number][] = [];
    const recordings = new WorkerRecordings(
      new RecordingServer(store, systemClock),
      "1",
      (some) => {
        answers.push(...some);
      },
    );
    const bad = [{ type: "append", id: "x", epoch: 1 }, { type: "nonsense" }, null];
    const calls = [...bad, { type: "list", limit: 1 }].map((message, call) => [call, message]);
    recordings.handle(calls as unknown as RecordingQuestions);
    await until(() => answers.length === calls.length, "all answers");
    const byCall = new Map(answers);
    assert.deepEqual([byCall.get(0), byCall.get(1), byCall.get(2)], [
      null,
      { failure: "lost" },
      null,
    ]);
    assert.deepEqual(byCall.get(3), { recordings: [] });
  });

  it("fails at the worker, whose other calls continue", async () => {
    const sent: RecordingQuestions[number][] = [];
    const recordings = new RecordingsClient((calls) => void sent.push(...calls));
    const failed = assert.rejects(recordings.store.list(1));
    const listed = recordings.store.list(1);
    await until(() => sent.length === 2, "both calls");
    const [[first], [second]] = sent as [RecordingQuestions[number], RecordingQuestions[number]];
    recordings.receive(
      [[first, { recordings: [{ head: {} }] }], [second, { recordings: [] }]] as never,
    );
    await failed;
    assert.deepEqual(await listed, []);
    recordings.close();
  });
});
