/**
 * The conformance tests of the durable-streams protocol, run by Vitest; an environment variable
 * contains the server's address.
 */
import process from "node:process";
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL ?? "", longPollTimeoutMs: 2000 });
