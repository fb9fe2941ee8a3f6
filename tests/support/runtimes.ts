/** Which runtime the tests run on. */
import process from "node:process";
import { runtime } from "../../src/runtime.ts";

export { runtime };

/**
 * Whether the gateway under test runs in workerd, while the tests themselves run on Node:
 * `--runtime workers`.
 */
export const isWorkers: boolean = process.env.SALLYPORT_UNDER_TEST === "workers";
