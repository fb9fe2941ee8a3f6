/** Goals for the gateway with everything on, compared with the bare proxy on the same runtime. */
import type { RuntimeOnMachine } from "../runtimes.ts";
import type { MeasurementName } from "./names.ts";

type Kind = RuntimeOnMachine["kind"];

/** A bound for one figure. */
export interface Goal {
  readonly atLeast?: number;
  readonly atMost?: number;
}

const LARGE_COST = 1.5;
/** The bound for "flat" along a curve. It allows for the noise of a shared machine. */
const FLAT = 0.9;
/** The most processor time that log, metrics and traces together can add to a request. */
const OBSERVERS_COST = 1.08;

/** Goals by the label of a runtime, or by its kind for its newest version. */
type ByRuntime = Readonly<Partial<Record<Kind | "node 20", Goal>>>;

const GOALS: Readonly<Partial<Record<MeasurementName, ByRuntime>>> = {
  plain: {
    bun: { atLeast: 0.6 },
    deno: { atLeast: 0.8 },
    node: { atLeast: 0.9 },
    "node 20": { atLeast: 0.8 },
  },
  streamed: { bun: { atLeast: 0.6 }, deno: { atLeast: 1.3 }, node: { atLeast: 1.25 } },
  single: { bun: { atMost: 60 }, deno: { atMost: 100 }, node: { atMost: 80 } },
  first: { bun: { atMost: 150 }, deno: { atMost: 150 }, node: { atMost: 150 } },
  large: both({ atLeast: 1 / LARGE_COST }),
  conversation: { bun: { atMost: 3.2 }, deno: { atMost: 1.8 }, node: { atMost: 1.2 } },
  paced: { bun: { atMost: 1.3 }, deno: { atMost: 1.45 }, node: { atMost: 0.85 } },
  delay: { bun: { atMost: 1 }, deno: { atMost: 2 }, node: { atMost: 2 } },
  quiet: { bun: { atMost: 15 }, deno: { atMost: 70 }, node: { atMost: 30 } },
  memory: { bun: { atMost: 120 }, deno: { atMost: 150 }, node: { atMost: 150 } },
  keys: both({ atLeast: FLAT }),
  observers: both({ atLeast: 1 / OBSERVERS_COST }),
};

function both(goal: Goal): ByRuntime {
  return { bun: goal, deno: goal, node: goal };
}

/**
 * The goal for a figure.
 *
 * @param name The measurement
 * @param subject Such as `gateway bun` or `gateway node 20`
 */
export function goalFor(name: MeasurementName, subject: string): Goal | undefined {
  const [, label, kind] = /^gateway ((bun|deno|node)(?: \d+)?)/.exec(subject) ?? [];
  const goals = GOALS[name];
  // The pattern matches only these three.
  return label === "node 20" ? goals?.[label] : goals?.[kind as Kind];
}

/** True if a figure is within its goal. */
export function isWithin(value: number, { atLeast = -Infinity, atMost = Infinity }: Goal): boolean {
  return value >= atLeast && value <= atMost;
}

/** A goal as text for people. */
export function toText({ atLeast, atMost }: Goal): string {
  return atLeast === undefined ? `at most ${atMost}` : `at least ${Number(atLeast.toFixed(2))}`;
}
