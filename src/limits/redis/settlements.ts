/**
 * Settlements of exchanges in Redis. Settlements of the same moment are sent together, and
 * settlements of the same subject in one script. A settlement that certainly had no effect is kept
 * and sent later. A settlement that could have had an effect is never repeated.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { Late, RedisCommand } from "../../storage/redis_command.ts";
import { firstLine, isReply } from "../../storage/redis_deadline.ts";
import { isOfCalls } from "../limit_kinds.ts";
import { type Amounts, unitOf } from "../limiter.ts";
import type { Bill } from "./local_decisions.ts";
import {
  type Change,
  ofLimit,
  type Outcome,
  type Plan,
  type Settled,
  type Taken,
  toWhole,
} from "./plan.ts";
import { SETTLE, type SettleCall } from "./scripts.ts";

/** Maximum number of subjects whose settlements are kept while Redis is away. */
const MAX_OWED = 100_000;
/** Maximum number of scripts that are sent together. */
export const BATCH = 100;
/** Deadline of commands that no caller waits for. Milliseconds. */
export const BACKGROUND_MS = 1000;

/** Settlement of exchanges of one subject: the sums of their changes in Redis. */
export interface SubjectSettlement {
  readonly plan: Plan;
  /** Ids of exchanges that are over. */
  readonly ids: string[];
  /** Sums of changes for each limit and window, and of the excess over the reservations. */
  readonly sums: (Change & { change: number; excess: number })[];
}

type Report = (settlement: SubjectSettlement, outcome: Outcome) => void;

/** Errors of a Redis that cannot run any command now. The same command can succeed later. */
const STATES = new RegExp(
  [
    "READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|OOM|MISCONF|NOREPLICAS",
    "BUSY|NOPERM|NOAUTH|TRYAGAIN|WRONGTYPE",
  ].join("|"),
);

/** Sends settlements. */
export class Settlements {
  readonly #client: RedisClient;
  readonly #settle: RedisCommand<SubjectSettlement, readonly Settled[]>;
  readonly #keptOpen: () => void;
  /** Settlements that will be sent together next. */
  #pending = new Map<string, SubjectSettlement>();
  /** Settlements that could not be sent. */
  readonly #owed = new Map<string, SubjectSettlement>();

  /** @param keptOpen Called if Redis can still count ended exchanges as open */
  constructor(client: RedisClient, keptOpen: () => void) {
    this.#client = client;
    this.#keptOpen = keptOpen;
    this.#settle = client.command({ script: SETTLE, write: toCall, read: readSettled });
  }

  /**
   * Adds a settlement, to be sent with the others of this moment.
   *
   * @param id Id of an exchange that is over and was counted as open
   */
  add(plan: Plan, id: string | undefined, changes: readonly Change[]): void {
    if (this.#pending.size === 0) setImmediate(() => void this.flush());
    merge(this.#pending, { plan, ids: id === undefined ? [] : [id], sums: changes.map(toSum) });
  }

  /** Returns whether a settlement of a subject was not sent yet. */
  hasPending(subject: string): boolean {
    return this.#pending.has(subject);
  }

  /** Sends the settlements that were added. */
  async flush(): Promise<void> {
    if (this.#pending.size === 0) return;
    const settlements = Array.from(this.#pending.values());
    this.#pending = new Map();
    const report: Report = (settlement, outcome) => {
      if (outcome === undefined) this.#owe(settlement);
    };
    await Promise.all(settlements.map((settlement) => this.send(settlement, report)));
  }

  /** Sends the settlements that could not be sent before. */
  async payOwed(): Promise<void> {
    const owed = Array.from(this.#owed.values());
    for (let start = 0; start < owed.length; start += BATCH) {
      const batch = owed.slice(start, start + BATCH);
      let refused = 0;
      const report: Report = (settlement, outcome) => {
        if (outcome !== undefined) return;
        refused++;
        this.#owe(settlement);
      };
      for (const { plan } of batch) this.#owed.delete(plan.subject.name);
      await Promise.all(batch.map((settlement) => this.send(settlement, report, BACKGROUND_MS)));
      if (refused === batch.length) return;
    }
  }

  /** Charges the amounts that a gateway has admitted alone. */
  async charge(bills: Iterable<Bill>): Promise<void> {
    const all = Array.from(bills);
    for (let start = 0; start < all.length; start += BATCH) {
      await Promise.all(
        all.slice(start, start + BATCH).map((bill) => {
          const settlement = { plan: bill.plan, ids: [], sums: bill.changes.map(toSum) };
          return this.send(settlement, (_, outcome) => bill.settle(outcome), BACKGROUND_MS);
        }),
      );
    }
  }

  /**
   * Sends a settlement at once.
   *
   * @param deadlineMs Deadline, milliseconds
   */
  async send(settlement: SubjectSettlement, report: Report, deadlineMs?: number): Promise<void> {
    const late = (one: Late<readonly Settled[]>) => report(settlement, this.#outcomeOf(one));
    await this.#settle(settlement, { deadlineMs, late }).then(
      (settled) => report(settlement, settled),
      () => {}, // handled by `late`
    );
  }

  /** Returns the outcome of a settlement that failed. */
  #outcomeOf(late: Late<readonly Settled[]>): Outcome {
    if (late.state === "answered") return late.answer;
    if (late.state === "unknown") return "unknown";
    if (late.state === "unsent") return undefined;
    const { cause } = late;
    if (!isReply(cause) || STATES.test(String(cause))) return undefined;
    this.#keptOpen();
    this.#client.warn(`Redis refuses a settlement (${firstLine(cause)}): it is dropped`);
    return "unknown";
  }

  #owe(settlement: SubjectSettlement): void {
    const { plan, ids, sums } = settlement;
    if (ids.length > 0) this.#keptOpen();
    const hasRoom = this.#owed.has(plan.subject.name) || this.#owed.size < MAX_OWED;
    if (sums.length > 0 && hasRoom) merge(this.#owed, { plan, ids: [], sums });
  }
}

/**
 * Returns the changes at the end of an exchange.
 *
 * @param taken Amounts that were reserved, and the ends of their windows
 */
export function toCorrections(
  { counted }: Plan,
  { ends, reserved }: { readonly ends: readonly number[]; readonly reserved: readonly number[] },
  used: Amounts,
): Change[] {
  const changes: Change[] = [];
  for (let index = 0; index < counted.length; index++) {
    const limit = counted[index];
    if (limit === undefined || isOfCalls(limit.name)) continue;
    const change = used[unitOf(limit.name)] - ofLimit(reserved, index);
    if (change !== 0) changes.push({ limit, ends: ofLimit(ends, index), change });
  }
  return changes;
}

/** Returns the changes that undo the acquired amounts of an exchange. */
export function toUndoing(
  { counted }: Plan,
  { ends, begun }: Taken,
  reserved: readonly number[],
): Change[] {
  return counted.map((limit, index) => {
    return {
      limit,
      ends: ofLimit(ends, index),
      change: -ofLimit(reserved, index),
      isUndone: begun[index] === true,
    };
  });
}

function toCall({ plan, ids, sums }: SubjectSettlement): SettleCall {
  const { countsKey, openKey } = plan;
  const changes = sums.map(({ limit, ends, change, excess, isUndone = false }) => {
    const { field, window } = limit;
    return { field, window, ends, change: toWhole(change), excess: toWhole(excess), isUndone };
  });
  return { countsKey, openKey, ids, changes };
}

const toSum = (change: Change) => ({ ...change, excess: Math.max(0, change.change) });

function merge(all: Map<string, SubjectSettlement>, added: SubjectSettlement): void {
  const { plan, ids, sums } = added;
  const settlement = all.get(plan.subject.name);
  if (settlement === undefined) return void all.set(plan.subject.name, added);
  settlement.ids.push(...ids);
  for (const sum of sums) {
    const same = settlement.sums.find(({ limit, ends, isUndone }) => {
      return limit.name === sum.limit.name && ends === sum.ends && isUndone === sum.isUndone;
    });
    if (same === undefined) settlement.sums.push(sum);
    else {
      same.change += sum.change;
      same.excess += sum.excess;
    }
  }
}

/** Reads the answer of {@link SETTLE}. */
function readSettled(answer: unknown, { sums }: SubjectSettlement): readonly Settled[] {
  const isSound = Array.isArray(answer) && answer.length === 1 + 2 * sums.length &&
    answer.every((value) => typeof value === "number");
  if (!isSound) throw new Error("no settlement");
  const [now = 0, ...counts]: number[] = answer;
  return sums.map((_, index) => {
    const used = ofLimit(counts, 2 * index);
    const ends = ofLimit(counts, 2 * index + 1);
    return { used, ends, resetMs: ends - now };
  });
}
