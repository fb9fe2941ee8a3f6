/** The runtime on which the tests run. */
import process from "node:process";
import { runtime } from "../../src/runtime.ts";

export { runtime };

/** True if the gateway under test runs in workerd, with the tests on Node: `--runtime workers`. */
export const isWorkers: boolean = process.env.SALLYPORT_UNDER_TEST === "workers";
