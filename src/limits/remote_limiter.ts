/**
 * Limits that are counted elsewhere, in a {@link LeaseBook} that is reached by a remote call.
 *
 * While the book can't be reached, each gateway counts alone. The usage of an exchange is charged once, and is lost if
 * the book can't be reached at that moment.
 *
 * @module
 */
import type { Clock } from "../exchange/clock.ts";
import { LEASE_MS, type LeaseBook, type Stand } from "./shared_limiter.ts";
import { judge } from "./verdict.ts";
import type { Lease, Limiter, LimitSubject, Standing } from "./limiter.ts";
import { toRateLimitHeaders } from "./rate_limit_headers.ts";
import { MemoryLimiter } from "./memory_limiter.ts";

/** A {@link LeaseBook}, remote or local. */
export type RemoteBook = {
  readonly [Verb in "take" | "release" | "renew" | "standing"]: (
    ...given: Parameters<LeaseBook[Verb]>
  ) => ReturnType<LeaseBook[Verb]> | Promise<ReturnType<LeaseBook[Verb]>>;
};

/** Interval at which an exchange renews its lease; two renewals may get lost. Milliseconds. */
const RENEW_MS = LEASE_MS / 3;
/** Longest wait for a decision: a book that was never asked before may start on another continent. Milliseconds. */
const DEADLINE_MS = 2000;

/** Dependencies of {@link LeasedLimiter}. */
export interface LeasedLimiterParts {
  /** Returns the book in which these subjects are counted, always the same one. */
  readonly bookOf: (subjects: readonly LimitSubject[]) => RemoteBook;
  readonly clock: Clock;
  /** Takes work that has to be finished even when its exchange is over. */
  readonly keepAlive: (work: Promise<unknown>) => void;
}

function toStandings(
  subjects: readonly LimitSubject[],
  before: readonly (readonly Stand[])[],
  added: number,
): Standing[] {
  return subjects.flatMap((subject, index) =>
    (before[index] ?? []).map(({ name, limit, used, resetMs }) => {
      const isCounted = name === "requests" || name === "concurrency";
      return { subject, name, limit, used: isCounted ? used + added : used, resetMs };
    })
  );
}

/** Limiter that counts in a {@link RemoteBook}. */
export class LeasedLimiter implements Limiter {
  readonly #parts: LeasedLimiterParts;
  readonly #local: MemoryLimiter;

  /** @param parts Its dependencies */
  constructor(parts: LeasedLimiterParts) {
    this.#parts = parts;
    this.#local = new MemoryLimiter(parts.clock);
  }

  async take(subjects: readonly LimitSubject[]): Promise<Lease> {
    const id = crypto.randomUUID();
    let taken: Awaited<ReturnType<RemoteBook["take"]>>;
    try {
      taken = await this.#inTime(this.#parts.bookOf(subjects).take(id, subjects));
    } catch {
      return this.#hold(id, subjects, this.#local.take(subjects));
    }
    const { before, isTaken } = taken;
    const standings = toStandings(subjects, before, 0);
    const observed = judge(standings.filter(({ limit, used }) => used >= limit), standings);
    // Refused, and no limit is reached: nonsense.
    if (!isTaken) return this.#hold(id, subjects, this.#local.take(subjects));
    const headers = toRateLimitHeaders(toStandings(subjects, before, 1));
    return this.#hold(id, subjects, { headers, observed, release: () => {} });
  }

  async standing(subject: LimitSubject): Promise<Standing[]> {
    try {
      return toStandings([subject], [await this.#inTime(this.#parts.bookOf([subject]).standing(subject))], 0);
    } catch {
      return this.#local.standing(subject);
    }
  }

  #hold(id: string, subjects: readonly LimitSubject[], { headers, observed, release }: Lease): Lease {
    const { clock, bookOf, keepAlive } = this.#parts;
    const tell = (verb: (book: RemoteBook) => unknown) =>
      keepAlive((async () => await verb(bookOf(subjects)))().catch(() => {}));
    const isRenewed = subjects.some(({ limits }) => limits.concurrency !== undefined);
    // Requests alone were counted when they came.
    const isToldOfEnd = isRenewed ||
      subjects.some(({ limits }) => limits.tokens !== undefined || limits.budget !== undefined);
    let cancel = (): void => {};
    const renew = () => {
      tell((book) => book.renew(id, subjects));
      cancel = clock.timer(RENEW_MS, renew);
    };
    if (isRenewed) cancel = clock.timer(RENEW_MS, renew);
    let isHeld = true;
    return {
      headers,
      observed,
      release: (tokens) => {
        if (!isHeld) return;
        isHeld = false;
        cancel();
        release(tokens);
        if (isToldOfEnd) tell((book) => book.release(id, subjects, tokens));
      },
    };
  }

  /**
   * Rejects if an answer takes longer than {@link DEADLINE_MS}. An exchange that is taken later is released at its end.
   */
  #inTime<T>(answer: T | Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const cancel = this.#parts.clock.timer(DEADLINE_MS, () => reject(new Error("too late")));
      Promise.resolve(answer).then(resolve, reject).finally(cancel);
    });
  }
}
