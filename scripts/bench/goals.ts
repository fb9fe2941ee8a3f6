/** Goals for the gateway with everything on, compared with the bare proxy on the same runtime. */
import type { RuntimeOnMachine } from "../runtimes.ts";
import type { MeasurementName } from "./names.ts";

type Kind = RuntimeOnMachine["kind"];

/** A bound for one figure. */
export interface Goal {
  readonly atLeast?: number;
  readonly atMost?: number;
  /** A peer that must have the higher value, if it was measured. */
  readonly below?: string;
}

const LARGE_COST = 1.5;
/** The bound for "flat" along a curve. It allows for the noise of a shared machine. */
const FLAT = 0.9;
/** The most processor time that log, metrics and traces together can add to a request. */
const OBSERVERS_COST = 1.08;

/** The peer whose processor time is the bound over TLS. */
const CADDY = "caddy";

/** Goals by the label of a runtime, or by its kind for its newest version. */
type ByRuntime = Readonly<Partial<Record<Kind | "node 20", Goal>>>;

/** By the measurement, or by the measurement and a point of its curve, such as `delay 5000`. */
const GOALS: Readonly<
  Partial<Record<MeasurementName | `${MeasurementName} ${number}`, ByRuntime>>
> = {
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
  "paced-setup": { bun: { atMost: 1.4 }, deno: { atMost: 1.45 }, node: { atMost: 0.85 } },
  delay: { bun: { atMost: 1 }, deno: { atMost: 2 }, node: { atMost: 2 } },
  "delay 5000": { bun: { atMost: 2 }, deno: { atMost: 3 }, node: { atMost: 3 } },
  "connections 1000": { bun: { atLeast: 0.9 }, deno: { atLeast: 0.8 }, node: { atLeast: 0.9 } },
  tls: {
    bun: { atMost: 1.6, below: CADDY },
    deno: { below: CADDY },
    node: { atMost: 0.9 },
  },
  "tls-streamed": {
    bun: { atMost: 1.8, below: CADDY },
    deno: { below: CADDY },
    node: { atMost: 1.1 },
  },
  // More processes need more than two cores: on a machine with two, the load's side takes one.
  "workers 2": both({ atLeast: 1.5 }),
  "workers 64": both({ atLeast: 1.8 }),
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
 * @param at The point of a curve
 */
export function goalFor(name: MeasurementName, subject: string, at?: number): Goal | undefined {
  const [, label, kind] = /^gateway ((bun|deno|node)(?: \d+)?)/.exec(subject) ?? [];
  const goals = (at === undefined ? undefined : GOALS[`${name} ${at}`]) ?? GOALS[name];
  // The pattern matches only these three.
  return label === "node 20" ? goals?.[label] : goals?.[kind as Kind];
}

/** The figures of a subject that a goal is about. */
export interface Reached {
  /** The subject compared with its base, or its own value if it has none. */
  readonly value: number;
  /** The subject's own value. */
  readonly own?: number;
  /** The value of the peer of `below`, if it was measured. */
  readonly peer?: number | undefined;
}

/** True if a figure is within its goal. */
export function isWithin({ value, own, peer }: Reached, goal: Goal): boolean {
  const { atLeast = -Infinity, atMost = Infinity } = goal;
  const isBelow = goal.below === undefined || own === undefined || peer === undefined || own < peer;
  return value >= atLeast && value <= atMost && isBelow;
}

/** A goal as text for people. */
export function toText({ atLeast, atMost, below }: Goal): string {
  const parts = [
    ...(atLeast === undefined ? [] : [`at least ${Number(atLeast.toFixed(2))}`]),
    ...(atMost === undefined ? [] : [`at most ${atMost}`]),
    ...(below === undefined ? [] : [`below ${below}`]),
  ];
  return parts.join(", ");
}
