/**
 * The conformance tests of the durable-streams protocol, for the part that recorded answers
 * support: reads.
 */
// runtimes: once
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "@std/testing/bdd";
import { startDurableStreamsServer } from "../support/durable_streams_server.ts";

/** Groups of the suite that run, by a part of their names. */
const READS = [
  "Read Operations",
  "Long-Poll",
  "Offset Validation",
  "SSE Mode",
  "HEAD Metadata",
  "Caching and ETag",
  "Browser Security",
  "Chunking",
  "Read-Your-Writes",
  "Byte-Exactness",
  "HEAD with Stream Closure",
  "Read Closed Streams",
  "Long-poll with",
  "SSE with",
  "offset-now-on-closed-stream",
  "delete-closed-stream",
];

/** Tests in these groups that do not run, and the reasons. */
const NOT_OURS: Readonly<Record<string, string>> = {
  "should return TTL metadata if configured":
    "callers set no TTL: the operator's durable.keep holds",
  "should return Expires-At metadata if configured": "the same",
  "JSON SSE catch-up pairs every data event":
    "an answer of JSON is one message: no other is appended",
  "should wrap JSON data in arrays for SSE":
    "the message is there when the answer has ended; this stream never does",
  "should handle JSON payloads with embedded newlines safely": "the same",
};
// These groups do not run, because a recorded answer has one writer, the provider, which does not
// use the protocol for appending: Basic Stream Operations, Append Operations, HTTP Protocol, TTL
// and Expiry, Case-Insensitivity, Content-Type Validation, Protocol Edge Cases, JSON Mode,
// Operation Sequence, Immutability, Sequence Ordering, Concurrent Writer, State Hash, Idempotent
// Producer, Create with Stream-Closed, Close Operations, Fork and subscriptions.

interface Report {
  readonly numTotalTests: number;
  readonly testResults: readonly {
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages: readonly string[] | null;
    }[];
  }[];
}

/** Runs the suite. */
async function runSuite(url: string, directory: string): Promise<Report> {
  const quote = (names: readonly string[]) =>
    names.map((name) => name.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  const names = `^(?!.*(?:${quote(Object.keys(NOT_OURS))})).*(?:${quote(READS)})`;
  const file = join(directory, "report.json");
  const child = spawn(process.execPath, [
    "node_modules/vitest/vitest.mjs",
    "run",
    "--config=tests/support/durable_streams_vitest.ts",
    "--reporter=json",
    `--outputFile=${file}`,
    `--testNamePattern=${names}`,
  ], { stdio: "ignore", env: { ...process.env, CONFORMANCE_TEST_URL: url } });
  await new Promise((resolve) => child.on("close", resolve));
  return JSON.parse(readFileSync(file, "utf8"));
}

describe("the durable-streams protocol", () => {
  it("is followed by reads of recorded answers", async () => {
    const server = await startDurableStreamsServer();
    const directory = mkdtempSync(join(tmpdir(), "sallyport-"));
    try {
      const report = await runSuite(server.url, directory);
      const all = report.testResults.flatMap(({ assertionResults }) => assertionResults);
      const run = all.filter(({ status }) => status === "passed" || status === "failed");
      const failed = run.filter(({ status }) => status === "failed");
      const messages = failed.map((each) => [each.fullName, each.failureMessages?.[0]]);
      assert.deepEqual({ failed: messages, errors: server.errors }, { failed: [], errors: [] });
      assert.equal(run.length, 96, "so many tests of version 0.3.6");
    } finally {
      rmSync(directory, { recursive: true });
      await server.close();
    }
  });
});
