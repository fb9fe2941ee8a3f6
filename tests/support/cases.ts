/**
 * Test cases that do not run everywhere: `it` with `it.notOn` for places where they make no sense,
 * and `it.once` for cases that one runtime proves.
 */
import process from "node:process";
import { it as register } from "@std/testing/bdd";
import type { RuntimeName } from "../../src/runtime.ts";
import { isWorkers, runtime } from "./runtimes.ts";

/** A place where tests run: a runtime, or a Worker in workerd with the tests on Node. */
export type Place = RuntimeName | "workers";

type Body = () => void | Promise<void>;

/**
 * True if `npm test` runs the whole file on the newest Node, and here only the cases that can
 * differ.
 */
export const isElsewhere: boolean = process.env.SALLYPORT_TEST_ONCE === "elsewhere";
const isQuick = process.env.SALLYPORT_TEST_QUICK === "1";

/** Registers a case. */
export interface Case {
  (title: string, fn: Body): void;
  /**
   * Leaves the case out in some places. The report contains the reason, and for Workers
   * `docs/workers.md` does too.
   */
  notOn(places: Place | readonly Place[], reason: string, title: string, fn: Body): void;
  /**
   * Runs the case only on the newest Node: it proves something that does not depend on the runtime.
   * It does not count as skipped elsewhere.
   */
  once(title: string, fn: Body): void;
  /** Leaves the case out of `npm test -- --quick`: it needs seconds of CPU time. */
  large(title: string, fn: Body): void;
  /** Leaves the case out if there is a reason. */
  unless(reason: string | undefined, title: string, fn: Body): void;
}

/** A case of the tests. */
export const it: Case = Object.assign((title: string, fn: Body) => register(title, fn), {
  notOn(places: Place | readonly Place[], reason: string, title: string, fn: Body) {
    const isHere = [places].flat().includes(isWorkers ? "workers" : runtime);
    it.unless(isHere ? reason : undefined, title, fn);
  },
  once(title: string, fn: Body) {
    if (!isElsewhere) register(title, fn);
  },
  large(title: string, fn: Body) {
    it.unless(isQuick ? "it takes seconds, and --quick none" : undefined, title, fn);
  },
  unless(reason: string | undefined, title: string, fn: Body) {
    if (reason === undefined) register(title, fn);
    else register.skip(`${title} (skipped: ${reason})`, fn);
  },
});
