/**
 * Independent accounts of a limiter's usage, as a provider would keep them that knows the real
 * usage. They share no code with the limiter.
 */
import assert from "node:assert/strict";
import type { LimitSet } from "../../src/config/limit_set.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import type { Clock } from "../../src/exchange/clock.ts";
import type { LimitName } from "../../src/config/limit_kinds.ts";
import type { Lease, LimitSubject, Reservation } from "../../src/limits/limiter.ts";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";

const NAMES = ["key:k", "team:t", "provider:p"];
const SETTLED = ["tokens", "budget", "spend"] as const;
type Settled = typeof SETTLED[number];

/** A call, as its provider knows it. */
interface Spec {
  readonly type: "call";
  /** Bits of the subjects that the call counts against. */
  readonly who: number;
  readonly expected: number;
  /**
   * `room`: tokens that the caller allows beyond the expected ones. `use`: real usage, in per cent
   * of the maximum.
   */
  readonly room: number;
  readonly use: number;
}
/** A step of a run. */
export type Act =
  | Spec
  | {
    readonly type: "end";
    readonly which: number;
    readonly how: "stated" | "estimated" | "unsent" | "lost";
  }
  | { readonly type: "again"; readonly which: number }
  | { readonly type: "pass"; readonly ms: number }
  | { readonly type: "restart" };

/** One window of one limit. */
interface Window {
  readonly end: number;
  used: number;
  /**
   * Calls that are open, or were open when the last one was admitted, with their usage beyond the
   * reservation.
   */
  readonly beyond: Map<Call, number>;
}

interface Taken {
  readonly name: Settled;
  readonly subject: LimitSubject;
  readonly window: Window;
  readonly reserved: number;
}

interface Call {
  readonly lease: Lease;
  readonly taken: readonly Taken[];
  readonly subjects: readonly LimitSubject[];
  readonly actual: number;
  readonly most: number;
}

/**
 * The gateway's estimate for a call without stated usage: at most its maximum, unless it saw more.
 */
const estimate = ({ actual, most }: Call): number =>
  Math.min(Math.ceil(actual * 1.1), Math.max(most, actual));

interface Ledger {
  open: number;
  readonly windows: Map<Settled | "requests", Window>;
}

/** Limits, and the steps of a run under them. */
export interface World {
  readonly sets: readonly LimitSet[];
  readonly price: number;
  /** True if no call uses more than its caller allowed. A provider should enforce this. */
  readonly isKept: boolean;
  readonly acts: readonly Act[];
}

/** The limiter, and its independent accounts. */
export class Bench {
  /** Clocks, milliseconds. */
  wall: number = Date.UTC(2026, 1, 27, 23);
  passed = 0;
  readonly #clock: Clock = {
    now: () => this.wall,
    monotonic: () => this.passed,
    timer: () => () => {},
  };
  readonly #subjects: readonly LimitSubject[];
  readonly #world: World;
  #limiter = new MemoryLimiter(this.#clock);
  #books = new Map<string, Ledger>();
  #open: Call[] = [];
  readonly #ended: Call[] = [];
  /** Calls that were refused. */
  refused = 0;

  /** @param world Its limits */
  constructor(world: World) {
    this.#world = world;
    this.#subjects = world.sets.map((limits, index) => ({ name: NAMES[index] ?? "", limits }));
  }

  /** Runs a step, and checks all accounts. */
  async act(act: Act): Promise<void> {
    if (act.type === "call") await this.#call(act);
    else if (act.type === "end") this.#end(act);
    else if (act.type === "again") {
      this.#ended[act.which % Math.max(1, this.#ended.length)]?.lease.release({
        tokens: 9,
        spend: 9,
      });
    } else if (act.type === "restart") this.#restart();
    else this.wall += act.ms, this.passed += act.ms;
    await this.check();
  }

  /** Ends all calls as their provider states them. The charge is then the real usage. */
  async finish(): Promise<void> {
    while (this.#open.length > 0) await this.act({ type: "end", which: 0, how: "stated" });
  }

  #ledger({ name }: LimitSubject): Ledger {
    const found = this.#books.get(name) ?? { open: 0, windows: new Map() };
    this.#books.set(name, found);
    return found;
  }

  #limit({ limits }: LimitSubject, name: Settled | "requests"): number | undefined {
    return limits[name]?.limit;
  }

  /** The current window if it is not over, or else a new one. */
  #window(subject: LimitSubject, name: Settled | "requests", isBegun: boolean): Window {
    const { windows } = this.#ledger(subject);
    const isRate = name === "tokens" || name === "requests";
    const now = isRate ? this.passed : this.wall;
    const found = windows.get(name);
    if (found !== undefined && found.end > now) return found;
    const window = {
      end: isRate ? now + (subject.limits[name]?.windowMs ?? 0) : this.#periodEnd(subject, name),
      used: 0,
    };
    const made = { ...window, beyond: new Map<Call, number>() };
    if (isBegun) windows.set(name, made);
    return made;
  }

  #periodEnd({ limits }: LimitSubject, name: "budget" | "spend"): number {
    const today = new Date(this.wall);
    const [year, month] = [today.getUTCFullYear(), today.getUTCMonth()];
    const period = limits[name]?.period;
    if (period === "month") return Date.UTC(year, month + 1, 1);
    const daysToMonday = (8 - today.getUTCDay()) % 7 || 7;
    return Date.UTC(year, month, today.getUTCDate() + (period === "week" ? daysToMonday : 1));
  }

  /** The amount that a call uses of a limit. */
  #take(subject: LimitSubject, name: Settled, expected: number, most: number): number {
    const price = name === "spend" ? this.#world.price : 1;
    if (subject.limits.mode === "strict") return most * price;
    return Math.min(expected * price, this.#limit(subject, name) ?? 0);
  }

  #hasRoom(subject: LimitSubject, expected: number, most: number): boolean {
    const { concurrency, mode } = subject.limits;
    if (mode === "observe") return true;
    if (concurrency !== undefined && this.#ledger(subject).open >= concurrency) return false;
    const requests = this.#limit(subject, "requests");
    if (requests !== undefined && this.#window(subject, "requests", false).used >= requests) {
      return false;
    }
    return SETTLED.every((name) => {
      const limit = this.#limit(subject, name);
      if (limit === undefined) return true;
      const { used } = this.#window(subject, name, false);
      return used < limit && used + this.#take(subject, name, expected, most) <= limit;
    });
  }

  async #call({ who, expected, room, use }: Spec): Promise<void> {
    const { price, isKept } = this.#world;
    const subjects = this.#subjects.filter((_, index) => (who >> index) % 2 === 1);
    const most = expected + room;
    const actual = isKept
      ? Math.floor(most * Math.min(use, 100) / 100)
      : Math.floor(most * use / 100);
    const reservation: Reservation = {
      expected: { tokens: expected, spend: expected * price },
      most: { tokens: most, spend: most * price },
    };
    const isWelcome = subjects.every((subject) => this.#hasRoom(subject, expected, most));
    const before = await this.#told();
    let lease: Lease;
    try {
      lease = await this.#limiter.acquire(subjects, reservation);
    } catch (error) {
      assert.ok(
        GatewayError.is(error) && !isWelcome,
        `refused, though there is room: ${String(error)}`,
      );
      assert.deepEqual(await this.#told(), before, "a refused call consumes nothing");
      this.refused++;
      return;
    }
    assert.ok(isWelcome, "admitted, though there is no room");
    const taken = subjects.flatMap((subject) => this.#enter(subject, expected, most));
    const call: Call = { lease, taken, subjects, actual, most };
    for (const { window, subject, name } of taken) {
      for (const past of window.beyond.keys()) {
        if (!this.#open.includes(past)) window.beyond.delete(past);
      }
      window.beyond.set(call, 0);
      const limit = this.#limit(subject, name) ?? 0;
      if (subject.limits.mode !== "observe") {
        assert.ok(window.used <= limit, "settled and reserved are above the limit");
      }
    }
    this.#open.push(call);
  }

  #enter(subject: LimitSubject, expected: number, most: number): Taken[] {
    this.#ledger(subject).open++;
    this.#window(subject, "requests", true).used++;
    return SETTLED.filter((name) => this.#limit(subject, name) !== undefined).map((name) => {
      const reserved = this.#take(subject, name, expected, most);
      const window = this.#window(subject, name, true);
      window.used += reserved;
      return { name, subject, window, reserved };
    });
  }

  #end(
    { which, how }: {
      readonly which: number;
      readonly how: "stated" | "estimated" | "unsent" | "lost";
    },
  ): void {
    const [call] = this.#open.splice(which % Math.max(1, this.#open.length), 1);
    if (call === undefined) return;
    if (how === "lost") return; // gateway lost: stays charged and open
    const used = how === "unsent" ? 0 : how === "estimated" ? estimate(call) : call.actual;
    const spend = used * this.#world.price;
    call.lease.release({ tokens: used, spend });
    this.#ended.push(call);
    for (const subject of call.subjects) this.#ledger(subject).open--;
    for (const { name, subject, window, reserved } of call.taken) {
      const more = (name === "spend" ? spend : used) - reserved;
      const now = this.#window(subject, name, more > 0);
      if (now.end === window.end) now.used += more;
      else if (more > 0) now.used += more;
      if (more > 0) now.beyond.set(call, more);
    }
  }

  /** Starts again with the stored budgets. Open calls are lost. */
  #restart(): void {
    const kept = JSON.parse(JSON.stringify([...this.#limiter.budgets()]));
    this.#limiter = new MemoryLimiter(this.#clock);
    this.#limiter.restoreBudgets(kept);
    this.#open = [];
    this.#ended.length = 0;
    for (const ledger of this.#books.values()) {
      ledger.open = 0;
      ledger.windows.delete("requests");
      ledger.windows.delete("tokens");
    }
  }

  async #told(): Promise<Record<string, number>> {
    const told: Record<string, number> = {};
    for (const subject of this.#subjects) {
      for (const { name, used } of await this.#limiter.status(subject)) {
        told[`${subject.name} ${name}`] = used;
      }
    }
    return told;
  }

  /** Compares the limiter with the accounts, and the accounts with the promises. */
  async check(): Promise<void> {
    const books: Record<string, number> = {};
    for (const subject of this.#subjects) {
      const { limits } = subject;
      for (const name of ["requests", ...SETTLED] as const) {
        const limit = this.#limit(subject, name);
        if (limit === undefined) continue;
        const { used, beyond } = this.#window(subject, name, false);
        books[`${subject.name} ${name}`] = used;
        if (name === "requests" || limits.mode === "observe") continue;
        const bound = limits.mode === "strict" && this.#world.isKept
          ? 0
          : [...beyond.values()].reduce((a, b) => a + b, 0);
        assert.ok(
          used <= limit + bound,
          `${name} of ${subject.name}: ${used} of ${limit}, the bound is ${bound} more`,
        );
      }
      if (limits.concurrency !== undefined) {
        books[`${subject.name} concurrency`] = this.#ledger(subject).open;
      }
    }
    const told: Partial<Record<string, number>> = await this.#told();
    assert.deepEqual(
      told,
      books satisfies Partial<Record<`${string} ${LimitName}`, number>>,
      "the charge is not the truth",
    );
  }
}
