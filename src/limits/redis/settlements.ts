/**
 * Settlements of exchanges in Redis. Settlements of the same moment are sent together, and
 * settlements of the same subject in one script. A settlement that certainly had no effect is kept
 * and sent later. A settlement that could have had an effect is never repeated.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import type { RedisClient } from "../../storage/redis_client.ts";
import type { FailedCallOutcome, RedisCommand } from "../../storage/redis_command.ts";
import { firstLine, isReply } from "../../storage/redis_deadline.ts";
import { isOfCalls } from "../../config/limit_kinds.ts";
import { type Amounts, unitOf } from "../limiter.ts";
import type { SubjectVerdict } from "./acquire.ts";
import { type CountedLimit, itemAt, type SubjectLayout, toWholeCount } from "./subject_layout.ts";
import { SETTLE_LIMITS, type SettleCall } from "./scripts.ts";

/** Maximum number of subjects whose settlements are kept while Redis is away. */
const MAX_UNSENT = 100_000;
/** Maximum number of scripts that are sent together. */
export const BATCH = 100;
/** Deadline of commands that no caller waits for. Milliseconds. */
export const BACKGROUND_MS = 1000;

/**
 * End of a change in the current window of Redis, whichever that is. A window that this gateway has
 * begun without Redis has this end too.
 */
export const CURRENT_WINDOW = 0;
/**
 * End of a change in no current window: 1 ms after 1970. Redis then counts only the use beyond the
 * reservation.
 */
export const OVER_WINDOW = 1;

/** Change of one count. */
export interface AmountChange {
  readonly limit: CountedLimit;
  /** End of the window in which the amount was reserved, or {@link CURRENT_WINDOW}. */
  readonly ends: number;
  /** Used - reserved. */
  readonly change: number;
  /**
   * True if the exchange that returns its amount had begun the window. It ends with it, unless other
   * exchanges have used it.
   */
  readonly endsWindow?: boolean;
}

/** Status of a window after a settlement. */
export interface WindowStatus {
  /** Amount that all gateways have used. */
  readonly used: number;
  /** End by the clock of Redis. */
  readonly ends: number;
  /** Time left until then. Milliseconds. */
  readonly resetMs: number;
}

/**
 * Result of a settlement: the status of each window. `"unknown"` if it must not be repeated,
 * because its effect in Redis is unknown or Redis refuses its content; `undefined` if it certainly
 * had no effect.
 */
export type SettleResult = readonly WindowStatus[] | "unknown" | undefined;

/** Settlement of exchanges of one subject: the sums of their changes in Redis. */
export interface SubjectSettlement {
  readonly layout: SubjectLayout;
  /** Ids of exchanges that are over. */
  readonly ids: string[];
  /** Sums of changes for each limit and window, and of the excess over the reservations. */
  readonly sums: (AmountChange & { change: number; excess: number })[];
}

/** Unsynced amounts of a subject, in windows that are not over. */
export interface SubjectSync {
  readonly layout: SubjectLayout;
  readonly changes: readonly AmountChange[];
  /** Receives the result in Redis. */
  done(result: SettleResult): void;
}

type OnResult = (settlement: SubjectSettlement, result: SettleResult) => void;

/** Errors of a Redis that cannot run any command now. The same command can succeed later. */
const TEMPORARY_ERRORS = new RegExp(
  [
    "READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|OOM|MISCONF|NOREPLICAS",
    "BUSY|NOPERM|NOAUTH|TRYAGAIN|WRONGTYPE",
  ].join("|"),
);

/** Sends settlements. */
export class Settlements {
  readonly #client: RedisClient;
  readonly #settle: RedisCommand<SubjectSettlement, readonly WindowStatus[]>;
  readonly #onUnfreed: () => void;
  /** Settlements that will be sent together next. */
  #queued = new Map<string, SubjectSettlement>();
  /** Settlements that could not be sent. */
  readonly #unsent = new Map<string, SubjectSettlement>();

  /** @param onUnfreed Called if Redis can still count ended exchanges as open */
  constructor(client: RedisClient, onUnfreed: () => void) {
    this.#client = client;
    this.#onUnfreed = onUnfreed;
    this.#settle = client.command({ script: SETTLE_LIMITS, write: toCall, read: readSettled });
  }

  /**
   * Adds a settlement, to be sent with the others of this moment.
   *
   * @param id Id of an exchange that is over and was counted as open
   */
  add(layout: SubjectLayout, id: string | undefined, changes: readonly AmountChange[]): void {
    if (this.#queued.size === 0) setImmediate(() => void this.flush());
    merge(this.#queued, { layout, ids: id === undefined ? [] : [id], sums: changes.map(toSum) });
  }

  /** Returns whether a settlement of a subject was not sent yet. */
  hasQueued(subject: string): boolean {
    return this.#queued.has(subject);
  }

  /** Sends the settlements that were added. */
  async flush(): Promise<void> {
    if (this.#queued.size === 0) return;
    const settlements = Array.from(this.#queued.values());
    this.#queued = new Map();
    const onResult: OnResult = (settlement, result) => {
      if (result === undefined) this.#keepUnsent(settlement);
    };
    await Promise.all(settlements.map((settlement) => this.send(settlement, onResult)));
  }

  /** Sends the settlements that could not be sent before. */
  async retryUnsent(): Promise<void> {
    const unsent = Array.from(this.#unsent.values());
    for (let start = 0; start < unsent.length; start += BATCH) {
      const batch = unsent.slice(start, start + BATCH);
      let stillUnsent = 0;
      const onResult: OnResult = (settlement, result) => {
        if (result !== undefined) return;
        stillUnsent++;
        this.#keepUnsent(settlement);
      };
      for (const { layout } of batch) this.#unsent.delete(layout.subject.name);
      await Promise.all(batch.map((settlement) => this.send(settlement, onResult, BACKGROUND_MS)));
      if (stillUnsent === batch.length) return;
    }
  }

  /** Sends the amounts that only this gateway has counted. */
  async sync(subjects: Iterable<SubjectSync>): Promise<void> {
    const all = Array.from(subjects);
    for (let start = 0; start < all.length; start += BATCH) {
      await Promise.all(
        all.slice(start, start + BATCH).map((one) => {
          const settlement = { layout: one.layout, ids: [], sums: one.changes.map(toSum) };
          return this.send(settlement, (_, result) => one.done(result), BACKGROUND_MS);
        }),
      );
    }
  }

  /**
   * Sends a settlement at once.
   *
   * @param deadlineMs Deadline, milliseconds
   */
  async send(
    settlement: SubjectSettlement,
    onResult: OnResult,
    deadlineMs?: number,
  ): Promise<void> {
    // A command that fails has its result later, when its effect is known or certainly unknown.
    const onOutcome = (outcome: FailedCallOutcome<readonly WindowStatus[]>) =>
      onResult(settlement, this.#resultOf(outcome));
    await this.#settle(settlement, { deadlineMs, onOutcome }).then(
      (settled) => onResult(settlement, settled),
      () => {}, // its result is late
    );
  }

  /** Returns the result of a settlement that failed. */
  #resultOf(outcome: FailedCallOutcome<readonly WindowStatus[]>): SettleResult {
    if (outcome.state === "replied") return outcome.reply;
    if (outcome.state === "unknown") return "unknown";
    if (outcome.state === "unsent") return undefined;
    const { cause } = outcome;
    if (!isReply(cause) || TEMPORARY_ERRORS.test(String(cause))) return undefined;
    this.#onUnfreed();
    this.#client.warn(`Redis refuses a settlement (${firstLine(cause)}): it is dropped`);
    return "unknown";
  }

  #keepUnsent(settlement: SubjectSettlement): void {
    const { layout, ids, sums } = settlement;
    if (ids.length > 0) this.#onUnfreed();
    const hasRoom = this.#unsent.has(layout.subject.name) || this.#unsent.size < MAX_UNSENT;
    if (sums.length > 0 && hasRoom) merge(this.#unsent, { layout, ids: [], sums });
  }
}

/**
 * Returns the changes at the end of an exchange.
 *
 * @param verdict Amounts that were reserved, and the ends of their windows
 */
export function toCorrections(
  { counted }: SubjectLayout,
  { ends, reserved }: { readonly ends: readonly number[]; readonly reserved: readonly number[] },
  used: Amounts,
): AmountChange[] {
  const changes: AmountChange[] = [];
  for (let index = 0; index < counted.length; index++) {
    const limit = counted[index];
    if (limit === undefined || isOfCalls(limit.name)) continue;
    const change = used[unitOf(limit.name)] - itemAt(reserved, index);
    if (change !== 0) changes.push({ limit, ends: itemAt(ends, index), change });
  }
  return changes;
}

/** Returns the changes that undo the acquired amounts of an exchange. */
export function toUndoing(
  { counted }: SubjectLayout,
  { ends, begun }: SubjectVerdict,
  reserved: readonly number[],
): AmountChange[] {
  return counted.map((limit, index) => {
    return {
      limit,
      ends: itemAt(ends, index),
      change: -itemAt(reserved, index),
      endsWindow: begun[index] === true,
    };
  });
}

function toCall({ layout, ids, sums }: SubjectSettlement): SettleCall {
  const { countsKey, openKey } = layout;
  const changes = sums.map(({ limit, ends, change, excess, endsWindow = false }) => {
    const { field, window } = limit;
    return {
      field,
      window,
      ends,
      change: toWholeCount(change),
      excess: toWholeCount(excess),
      endsWindow,
    };
  });
  return { countsKey, openKey, ids, changes };
}

const toSum = (change: AmountChange) => ({ ...change, excess: Math.max(0, change.change) });

function merge(all: Map<string, SubjectSettlement>, added: SubjectSettlement): void {
  const { layout, ids, sums } = added;
  const settlement = all.get(layout.subject.name);
  if (settlement === undefined) return void all.set(layout.subject.name, added);
  settlement.ids.push(...ids);
  for (const sum of sums) {
    const same = settlement.sums.find(({ limit, ends, endsWindow }) => {
      return limit.name === sum.limit.name && ends === sum.ends && endsWindow === sum.endsWindow;
    });
    if (same === undefined) settlement.sums.push(sum);
    else {
      same.change += sum.change;
      same.excess += sum.excess;
    }
  }
}

/** Reads the reply of {@link SETTLE_LIMITS}. */
function readSettled(reply: unknown, { sums }: SubjectSettlement): readonly WindowStatus[] {
  const isSound = Array.isArray(reply) && reply.length === 1 + 2 * sums.length &&
    reply.every((value) => typeof value === "number");
  if (!isSound) throw new Error("no settlement");
  const [now = 0, ...counts]: number[] = reply;
  return sums.map((_, index) => {
    const used = itemAt(counts, 2 * index);
    const ends = itemAt(counts, 2 * index + 1);
    return { used, ends, resetMs: ends - now };
  });
}
