/** Commands that are given to two limiters at once, which have to answer alike; and a limiter that only keeps a log. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { enforce } from "../../src/limits/verdict.ts";
import {
  ASK_AGAIN_MS,
  type Lease,
  type Limiter,
  limitsOf,
  type LimitSubject,
  type Standing,
} from "../../src/limits/limiter.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";

/** What happened to a subject. */
interface Entry {
  readonly at: number;
  readonly wall: number;
  /** 1 for a request, 0 for a charge. */
  readonly requests: number;
  readonly tokens: number;
}

/** A clock that stands still unless it is moved. */
export interface StillClock {
  wall: number;
  passed: number;
}

/**
 * The simple model: it forgets nothing and adds up everything anew each time. What a window is follows from the log:
 * it begins with the first entry that lies in no other.
 */
export class LogLimiter implements Limiter {
  readonly #clock: StillClock;
  readonly #share: () => number;
  readonly #log = new Map<string, Entry[]>();
  readonly #open = new Map<string, number>();

  /** @param share By how many a limit is divided */
  constructor(clock: StillClock, share: () => number) {
    this.#clock = clock;
    this.#share = share;
  }

  // deno-lint-ignore require-await -- a refusal is a rejection
  async acquire(subjects: readonly LimitSubject[]): Promise<Lease> {
    const { observed } = enforce(subjects.flatMap((subject) => this.#standings(subject)));
    for (const { name } of subjects) this.#enter(name, { requests: 1, tokens: 0 }, 1);
    let isHeld = true;
    const release = (tokens: number | undefined) => {
      if (!isHeld) return;
      isHeld = false;
      for (const { name } of subjects) this.#enter(name, { requests: 0, tokens: tokens ?? 0 }, -1);
    };
    return { headers: {}, observed, release };
  }

  status(subject: LimitSubject): Promise<Standing[]> {
    return Promise.resolve(this.#standings(subject));
  }

  #standings(subject: LimitSubject): Standing[] {
    const { requests, tokens, budget } = subject.limits;
    const log = this.#log.get(subject.name) ?? [];
    const charges = log.filter((entry) => entry.tokens > 0 || entry.requests > 0);
    const found = {
      requests: this.#window(log.filter((entry) => entry.requests > 0), "requests", requests?.windowMs ?? 0),
      tokens: this.#window(charges, "tokens", tokens?.windowMs ?? 0),
      budget: this.#period(log, budget?.period ?? "day"),
      concurrency: { used: this.#open.get(subject.name) ?? 0, resetMs: ASK_AGAIN_MS },
    };
    return limitsOf(subject).map(([name, limit]) => ({
      subject,
      name,
      limit: Math.ceil(limit / this.#share()),
      ...found[name],
    }));
  }

  #enter(name: string, entry: Pick<Entry, "requests" | "tokens">, opened: number): void {
    const log = this.#log.get(name) ?? [];
    log.push({ ...entry, at: this.#clock.passed, wall: this.#clock.wall });
    this.#log.set(name, log);
    this.#open.set(name, (this.#open.get(name) ?? 0) + opened);
  }

  #window(log: readonly Entry[], what: "requests" | "tokens", windowMs: number) {
    let [start, used] = [-Infinity, 0];
    for (const entry of log) {
      if (entry.at - start >= windowMs) [start, used] = [entry.at, 0];
      used += entry[what];
    }
    const resetMs = start + windowMs - this.#clock.passed;
    return resetMs > 0 ? { used, resetMs } : { used: 0, resetMs: windowMs };
  }

  #period(log: readonly Entry[], period: "day" | "month") {
    const toText = (wall: number) => new Date(wall).toISOString().slice(0, period === "day" ? 10 : 7);
    const today = toText(this.#clock.wall);
    const used = log.filter(({ wall }) => toText(wall) === today).reduce((sum, { tokens }) => sum + tokens, 0);
    const [year = 0, month = 0, day = 1] = today.split("-").map(Number);
    const end = period === "day" ? Date.UTC(year, month - 1, day + 1) : Date.UTC(year, month, 1);
    return { used, resetMs: end - this.#clock.wall };
  }
}

/** A limiter of the two. */
export interface Side {
  readonly limiter: Limiter;
  pass(ms: number): Promise<void> | void;
}

/** What both are asked. */
export interface Pair {
  readonly model: Side & { leases: Lease[] };
  readonly real: Side & { leases: Lease[] };
}

/** What is asked of them. */
export interface CommandOptions {
  readonly subjects: readonly LimitSubject[];
  /** How far time moves in one step, milliseconds. */
  readonly steps: fc.Arbitrary<number>;
  /** By how much their times may differ, milliseconds; if at all, the ends of days and months are not compared. */
  readonly toleranceMs: number;
  /** Commands in a row at most. */
  readonly length: number;
}

type Command = fc.AsyncCommand<Pair["model"], Pair["real"]>;

function toCommand(name: string, run: (model: Pair["model"], real: Pair["real"]) => Promise<void>): Command {
  return { check: () => true, run, toString: () => name };
}

async function outcomeOf(side: Pair["real"], subjects: readonly LimitSubject[]) {
  try {
    const lease = await side.limiter.acquire(subjects);
    side.leases.push(lease);
    return { code: "taken", observed: lease.observed, retryMs: 0 };
  } catch (error) {
    if (!GatewayError.is(error)) throw error;
    return { code: error.code, observed: undefined, retryMs: error.retryAfterMs ?? 0 };
  }
}

/** Sequences of commands for {@link runPair}. */
export function commandsFor(options: CommandOptions): fc.Arbitrary<Iterable<Command>> {
  const { subjects, steps, toleranceMs, length } = options;
  const assertNear = (real: number, model: number, what: string) =>
    assert.ok(Math.abs(real - model) <= toleranceMs, `${what}: ${real}, but the model says ${model}`);
  const isTimed = (what: string) => toleranceMs === 0 || !what.startsWith("budget");
  const take = fc.subarray([...subjects], { minLength: 1 }).map((taken) =>
    toCommand(`take(${taken.map(({ name }) => name)})`, async (model, real) => {
      const [expected, actual] = [await outcomeOf(model, taken), await outcomeOf(real, taken)];
      if (isTimed(expected.code)) assertNear(actual.retryMs, expected.retryMs, "retry");
      assert.deepEqual({ ...actual, retryMs: 0 }, { ...expected, retryMs: 0 });
    })
  );
  const release = fc.tuple(fc.nat(), fc.option(fc.nat(40), { nil: undefined })).map(([place, tokens]) =>
    toCommand(`release(${place}, ${tokens})`, (model, real) => {
      const index = place % Math.max(1, model.leases.length);
      for (const { leases } of [model, real]) leases[index]?.release(tokens);
      return Promise.resolve();
    })
  );
  const look = fc.constantFrom(...subjects).map((subject) =>
    toCommand(`look(${subject.name})`, async (model, real) => {
      const [expected, actual] = [await model.limiter.status(subject), await real.limiter.status(subject)];
      for (const [index, { resetMs, name }] of expected.entries()) {
        if (isTimed(name)) assertNear(actual[index]?.resetMs ?? NaN, resetMs, `reset of ${name}`);
      }
      const withoutTimes = (standings: readonly Standing[]) => standings.map((one) => ({ ...one, resetMs: 0 }));
      assert.deepEqual(withoutTimes(actual), withoutTimes(expected));
    })
  );
  const pass = steps.map((ms) =>
    toCommand(`pass(${ms})`, async (model, real) => {
      await model.pass(ms);
      await real.pass(ms);
    })
  );
  const all = [take, take, release, release, look, pass];
  return fc.commands(all, { maxCommands: length, size: "max" });
}

/** Gives the commands to both. */
export async function runPair(model: Side, real: Side, commands: Iterable<Command>): Promise<void> {
  await fc.asyncModelRun(
    () => ({ model: { ...model, leases: [] as Lease[] }, real: { ...real, leases: [] as Lease[] } }),
    commands,
  );
}
