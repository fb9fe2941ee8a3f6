/**
 * The conformance tests of the durable-streams protocol, as Vitest runs them: the server's address
 * is given to it.
 */
import process from "node:process";
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL ?? "", longPollTimeoutMs: 2000 });
