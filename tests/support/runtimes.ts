/** Which runtime the tests run on. */
import process from "node:process";
import { runtime, type RuntimeName } from "../../src/runtime.ts";

export { runtime };

/** Whether the gateway under test runs in workerd, while the tests themselves run on Node: `--runtime workers`. */
export const isWorkers: boolean = process.env.SALLYPORT_UNDER_TEST === "workers";

/** Why a behaviour is not tested on a runtime. The reason is printed with the skipped test. */
export interface Gap {
  readonly runtimes: readonly RuntimeName[];
  readonly reason: string;
}

/** Names of the behaviours that some runtime lacks. */
export type GapName =
  | "a body in what the listener refuses by itself"
  | "pipelining";

/** Every gap there is. */
export const GAPS: Readonly<Record<GapName, Gap>> = {
  "a body in what the listener refuses by itself": {
    runtimes: ["bun"],
    reason: "Bun.serve answers bytes that are no request itself, with a status and nothing else",
  },
  "pipelining": {
    runtimes: ["bun"],
    reason: "Bun.serve closes a connection on which the next request comes before the answer",
  },
};

/** Whether this runtime lacks a behaviour. */
export function hasGap(name: GapName): boolean {
  return GAPS[name].runtimes.includes(runtime);
}
