/** What the gateway is to reach, with everything on, against the bare proxy on the same runtime. */
import type { RuntimeOnMachine } from "../runtimes.ts";
import type { MeasurementName } from "./measurements.ts";

type Kind = RuntimeOnMachine["kind"];

/** A bound for one figure. */
export interface Goal {
  readonly atLeast?: number;
  readonly atMost?: number;
}

const LARGE_COST = 1.5;
/** "Flat" along a curve, in words of numbers: the noise of a machine that others use too. */
const FLAT = 0.9;

/** What log, metrics and traces together may add to the processor time of a request. */
const OBSERVERS_COST = 1.08;

const GOALS: Readonly<Partial<Record<MeasurementName, Readonly<Partial<Record<Kind, Goal>>>>>> = {
  plain: { bun: { atLeast: 0.85 }, deno: { atLeast: 0.9 }, node: { atLeast: 0.75 } },
  streamed: { bun: { atLeast: 0.85 }, deno: { atLeast: 0.8 }, node: { atLeast: 0.75 } },
  single: { bun: { atMost: 60 }, deno: { atMost: 100 }, node: { atMost: 80 } },
  first: { bun: { atMost: 150 }, deno: { atMost: 150 }, node: { atMost: 150 } },
  large: both({ atLeast: 1 / LARGE_COST }),
  "large-many": both({ atLeast: 1 / LARGE_COST }),
  events: { bun: { atMost: 20 } },
  memory: { bun: { atMost: 120 }, deno: { atMost: 150 }, node: { atMost: 150 } },
  keys: both({ atLeast: FLAT }),
  observers: both({ atLeast: 1 / OBSERVERS_COST }),
};

function both(goal: Goal): Readonly<Record<Kind, Goal>> {
  return { bun: goal, deno: goal, node: goal };
}

/**
 * The goal for a figure.
 *
 * @param name The measurement
 * @param subject Such as `gateway bun`
 */
export function goalFor(name: MeasurementName, subject: string): Goal | undefined {
  const kind = /^gateway (bun|deno|node)/.exec(subject)?.[1] as Kind | undefined; // the pattern names all three
  return kind && GOALS[name]?.[kind];
}

/** Whether a figure is within its goal. */
export function isWithin(value: number, { atLeast = -Infinity, atMost = Infinity }: Goal): boolean {
  return value >= atLeast && value <= atMost;
}

/** A goal for people. */
export function toText({ atLeast, atMost }: Goal): string {
  return atLeast === undefined ? `at most ${atMost}` : `at least ${Number(atLeast.toFixed(2))}`;
}
