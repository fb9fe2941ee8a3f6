/** Which runtime the tests run on, and what is known not to work there. */
import process from "node:process";
import { runtime, type RuntimeName } from "../../src/serve/assemble.ts";

export { runtime };

/** Whether the gateway under test runs in workerd, while the tests themselves run on Node: `--runtime workers`. */
export const isWorkers: boolean = process.env.SALLYPORT_UNDER_TEST === "workers";

/** Why a behaviour is not tested on a runtime. The reason is printed with the skipped test. */
export interface Gap {
  readonly runtimes: readonly RuntimeName[];
  readonly reason: string;
}

/** Names of the behaviours that some runtime lacks. */
export type GapName = "headers before the first event";

/** Every gap there is. */
export const GAPS: Readonly<Record<GapName, Gap>> = {
  "headers before the first event": {
    runtimes: ["bun"],
    reason: "Bun.serve finishes the header block with the first chunk of a body",
  },
};

/** Whether this runtime lacks a behaviour. */
export function hasGap(name: GapName): boolean {
  return GAPS[name].runtimes.includes(runtime);
}
