/**
 * Test cases that know where they make no sense, or are proven once: `it` with `it.notOn` and
 * `it.once`.
 */
import process from "node:process";
import { it as register } from "@std/testing/bdd";
import type { RuntimeName } from "../../src/runtime.ts";
import { isWorkers, runtime } from "./runtimes.ts";

/** Where tests run: a runtime, or a Worker in workerd behind tests on Node. */
export type Place = RuntimeName | "workers";

type Body = () => void | Promise<void>;

/** Whether `npm test` runs the whole file on the newest Node, and here what can differ. */
export const isElsewhere: boolean = process.env.SALLYPORT_TEST_ONCE === "elsewhere";
const isQuick = process.env.SALLYPORT_TEST_QUICK === "1";

/** Registers a case. */
export interface Case {
  (title: string, fn: Body): void;
  /**
   * Leaves the case out in some places; the reason stands in the report, and for Workers in
   * `docs/workers.md`.
   */
  notOn(places: Place | readonly Place[], reason: string, title: string, fn: Body): void;
  /**
   * Leaves the case to the newest Node: it proves something that no runtime has a part in. It is no
   * skipped one.
   */
  once(title: string, fn: Body): void;
  /** Leaves the case out of `npm test -- --quick`: its mass takes seconds of the CPU. */
  large(title: string, fn: Body): void;
  /** Leaves the case out here if there is a reason to. */
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
