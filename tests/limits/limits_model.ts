/**
 * Commands for two limiters at once, which must answer alike, and a limiter that only keeps a log.
 */
import type { Budget } from "../../src/config/units.ts";
import assert from "node:assert/strict";
import fc from "fast-check";
import { enforce } from "../../src/limits/verdict.ts";
import type { SettledLimit } from "../../src/config/limit_kinds.ts";
import {
  type Amounts,
  ASK_AGAIN_MS,
  type Lease,
  type Limiter,
  limitsOf,
  type LimitStatus,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
  reservedOf,
  unitOf,
} from "../../src/limits/limiter.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";

type Counted = Record<SettledLimit, number>;

/** An event of a subject. */
interface Entry {
  readonly at: number;
  readonly wall: number;
  /** 1 for a request, 0 for a charge. */
  readonly requests: number;
  /**
   * The amount that counts against each limit. For a request: its reservation, or its usage at the
   * end.
   */
  readonly counted: Counted;
}

const NOTHING: Counted = { tokens: 0, budget: 0, spend: 0 };

/** A window of tokens begins with a request, or with a charge. */
const takesTokens = ({ requests, counted }: Entry): boolean => requests > 0 || counted.tokens > 0;

/** A clock that stands still unless it is moved. */
export interface StillClock {
  wall: number;
  passed: number;
}

/**
 * The simple model. It forgets nothing and adds up everything each time. Windows follow from the
 * log: a window begins with the first entry outside all others.
 */
export class LogLimiter implements Limiter {
  readonly #clock: StillClock;
  readonly #log = new Map<string, Entry[]>();
  readonly #open = new Map<string, number>();

  constructor(clock: StillClock) {
    this.#clock = clock;
  }

  // deno-lint-ignore require-await -- a refusal is a rejection
  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    const { observed } = enforce(
      subjects.flatMap((subject) => this.#statuses(subject)),
      reservation,
    );
    const entries = subjects.map((subject) => {
      const counted = { ...NOTHING };
      for (const status of this.#statuses(subject)) {
        if (status.name in counted) {
          counted[status.name as SettledLimit] = reservedOf(status, reservation);
        }
      }
      return { subject, entry: this.#enter(subject.name, { requests: 1, counted }, 1) };
    });
    let isHeld = true;
    const release = (used: Amounts) => {
      if (!isHeld) return;
      isHeld = false;
      for (const { subject, entry } of entries) this.#correct(subject, entry, used);
    };
    return { headers: {}, observed, release };
  }

  status(subject: LimitSubject): Promise<LimitStatus[]> {
    return Promise.resolve(this.#statuses(subject));
  }

  #statuses(subject: LimitSubject): LimitStatus[] {
    const { requests, tokens, budget, spend } = subject.limits;
    const log = this.#log.get(subject.name) ?? [];
    const found = {
      requests: this.#window(
        log.filter((entry) => entry.requests > 0),
        requests?.windowMs ?? 0,
        (entry) => entry.requests,
      ),
      tokens: this.#window(
        log.filter(takesTokens),
        tokens?.windowMs ?? 0,
        ({ counted }) => counted.tokens,
      ),
      budget: this.#period(log, budget?.period ?? "day", "budget"),
      spend: this.#period(log, spend?.period ?? "day", "spend"),
      concurrency: { used: this.#open.get(subject.name) ?? 0, resetMs: ASK_AGAIN_MS },
    };
    return limitsOf(subject).map(([name, limit]) => ({
      subject,
      name,
      limit,
      used: found[name].used,
      resetMs: found[name].resetMs,
    }));
  }

  /**
   * Replaces a reservation whose window is still open. Otherwise adds the usage beyond the
   * reservation as another charge.
   */
  #correct({ name, limits }: LimitSubject, entry: Entry, used: Amounts): void {
    const log = this.#log.get(name) ?? [];
    const late = { ...NOTHING };
    const { start } = this.#window(log.filter(takesTokens), limits.tokens?.windowMs ?? 0, () => 0);
    for (const limit of ["tokens", "budget", "spend"] as const) {
      if (limits[limit] === undefined) continue;
      const isSame = limit === "tokens"
        ? entry.at >= start && this.#clock.passed < start + (limits.tokens?.windowMs ?? 0)
        : toPeriod(entry.wall, limits[limit]?.period) ===
          toPeriod(this.#clock.wall, limits[limit]?.period);
      if (isSame) entry.counted[limit] = used[unitOf(limit)];
      else late[limit] = Math.max(0, used[unitOf(limit)] - entry.counted[limit]);
    }
    this.#open.set(name, (this.#open.get(name) ?? 0) - 1);
    if (late.tokens + late.budget + late.spend > 0) {
      this.#enter(name, { requests: 0, counted: late }, 0);
    }
  }

  #enter(name: string, entry: Pick<Entry, "requests" | "counted">, opened: number): Entry {
    const log = this.#log.get(name) ?? [];
    const entered = { ...entry, at: this.#clock.passed, wall: this.#clock.wall };
    log.push(entered);
    this.#log.set(name, log);
    this.#open.set(name, (this.#open.get(name) ?? 0) + opened);
    return entered;
  }

  #window(log: readonly Entry[], windowMs: number, countOf: (entry: Entry) => number) {
    let [start, used] = [-Infinity, 0];
    for (const entry of log) {
      if (entry.at - start >= windowMs) [start, used] = [entry.at, 0];
      used += countOf(entry);
    }
    const resetMs = start + windowMs - this.#clock.passed;
    return resetMs > 0 ? { start, used, resetMs } : { start, used: 0, resetMs: windowMs };
  }

  #period(log: readonly Entry[], period: Budget["period"], name: "budget" | "spend") {
    const today = toPeriod(this.#clock.wall, period);
    const used = log.filter(({ wall }) => toPeriod(wall, period) === today)
      .reduce((sum, { counted }) => sum + counted[name], 0);
    const [year = 0, month = 0, day = 1] = today.split("-").map(Number);
    const days = period === "week" ? 7 : 1;
    const end = period === "month"
      ? Date.UTC(year, month, 1)
      : Date.UTC(year, month - 1, day + days);
    return { used, resetMs: end - this.#clock.wall };
  }
}

/** The day, the Monday or the month of a time. */
function toPeriod(wall: number, period: Budget["period"] = "day"): string {
  const date = new Date(wall);
  if (period === "week") date.setUTCDate(date.getUTCDate() - (date.getUTCDay() + 6) % 7);
  return date.toISOString().slice(0, period === "month" ? 7 : 10);
}

/** One of the two limiters. */
export interface Side {
  readonly limiter: Limiter;
  pass(ms: number): Promise<void> | void;
}

/** The model and the limiter, with their leases. */
export interface Pair {
  readonly model: Side & { leases: Lease[] };
  readonly real: Side & { leases: Lease[] };
}

/** Options of the generated commands. */
export interface CommandOptions {
  readonly subjects: readonly LimitSubject[];
  /** The longest step of time, milliseconds. */
  readonly steps: fc.Arbitrary<number>;
  /**
   * The largest difference between their times, milliseconds. If it is not 0, the ends of days and
   * months are not compared.
   */
  readonly toleranceMs: number;
  /** Most commands in a row. */
  readonly length: number;
}

type Command = fc.AsyncCommand<Pair["model"], Pair["real"]>;

function toCommand(
  name: string,
  run: (model: Pair["model"], real: Pair["real"]) => Promise<void>,
): Command {
  return { check: () => true, run, toString: () => name };
}

async function outcomeOf(
  side: Pair["real"],
  subjects: readonly LimitSubject[],
  reservation: Reservation,
) {
  try {
    const lease = await side.limiter.acquire(subjects, reservation);
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
    assert.ok(
      Math.abs(real - model) <= toleranceMs,
      `${what}: ${real}, but the model says ${model}`,
    );
  const isTimed = (what: string) => toleranceMs === 0 || !/^(?:budget|spend)/.test(what);
  const amounts = (max: number) => fc.record({ tokens: fc.nat(max), spend: fc.nat(max) });
  const reservation = fc.oneof(
    fc.constant(NO_RESERVATION),
    fc.record({ expected: amounts(30), most: amounts(60) }),
  );
  const take = fc.tuple(fc.subarray([...subjects], { minLength: 1 }), reservation).map((
    [taken, reserved],
  ) =>
    toCommand(
      `take(${taken.map(({ name }) => name)}, ${JSON.stringify(reserved)})`,
      async (model, real) => {
        const [expected, actual] = [
          await outcomeOf(model, taken, reserved),
          await outcomeOf(real, taken, reserved),
        ];
        if (isTimed(expected.code)) assertNear(actual.retryMs, expected.retryMs, "retry");
        assert.deepEqual({ ...actual, retryMs: 0 }, { ...expected, retryMs: 0 });
      },
    )
  );
  const release = fc.tuple(fc.nat(), amounts(40)).map(([place, used]) =>
    toCommand(`release(${place}, ${JSON.stringify(used)})`, (model, real) => {
      const index = place % Math.max(1, model.leases.length);
      for (const { leases } of [model, real]) leases[index]?.release(used);
      return Promise.resolve();
    })
  );
  const look = fc.constantFrom(...subjects).map((subject) =>
    toCommand(`look(${subject.name})`, async (model, real) => {
      const [expected, actual] = [
        await model.limiter.status(subject),
        await real.limiter.status(subject),
      ];
      for (const [index, { resetMs, name }] of expected.entries()) {
        if (isTimed(name)) assertNear(actual[index]?.resetMs ?? NaN, resetMs, `reset of ${name}`);
      }
      const withoutTimes = (statuses: readonly LimitStatus[]) =>
        statuses.map((one) => ({ ...one, resetMs: 0 }));
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

/** Runs the commands on both. */
export async function runPair(model: Side, real: Side, commands: Iterable<Command>): Promise<void> {
  await fc.asyncModelRun(
    () => ({
      model: { ...model, leases: [] as Lease[] },
      real: { ...real, leases: [] as Lease[] },
    }),
    commands,
  );
}
