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
export type GapName =
  | "headers before the first event"
  | "a listener that closes without resetting anybody"
  | "a body in what the listener refuses by itself"
  | "pipelining";

/** Every gap there is. */
export const GAPS: Readonly<Record<GapName, Gap>> = {
  "headers before the first event": {
    runtimes: ["bun"],
    reason: "Bun.serve finishes the header block with the first chunk of a body",
  },
  "a listener that closes without resetting anybody": {
    runtimes: ["bun", "deno"],
    reason: "Linux resets what it has queued for one of several sockets on a port (SO_REUSEPORT) when that one closes",
  },
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
