/**
 * The Durable Object that counts limits.
 *
 * @module
 */
import { DurableObject } from "cloudflare:workers";
import { LeaseBook, type Stand, type Taken } from "../limits/shared_limiter.ts";
import type { LimitSubject } from "../limits/limiter.ts";
import type { WindowCounts } from "../limits/memory_limiter.ts";
import type { ObjectState } from "./bindings.ts";

/**
 * The time after the end of a window at which its counts are deleted, with all others that have ended. Milliseconds.
 */
const CLEAR_AFTER_MS = 60_000;

const endOf = ({ requests, tokens, budget }: WindowCounts): number =>
  Math.max(requests.until, tokens.until, budget.until);

/** Counts the limits of one gateway key, or of all; see `bookOf` in `bindings.ts`. */
export class SallyportLimits extends DurableObject {
  readonly #book: LeaseBook;
  #alarmAt = 0;

  /**
   * @param ctx State of the object, given by the runtime
   * @param env Not used
   */
  constructor(ctx: ObjectState, env: unknown) {
    super(ctx, env);
    const { kv } = ctx.storage;
    this.#book = new LeaseBook(Date.now, {
      get: (subject) => kv.get<WindowCounts>(subject),
      put: (subject, counts) => {
        kv.put(subject, counts);
        this.#clearLater(endOf(counts));
      },
    });
  }

  /** Admits an exchange. See {@link LeaseBook.take}. */
  take(id: string, subjects: readonly LimitSubject[]): Taken {
    return this.#book.take(id, subjects);
  }

  /** Releases what an exchange held. See {@link LeaseBook.release}. */
  release(id: string, subjects: readonly LimitSubject[], tokens: number | undefined): void {
    this.#book.release(id, subjects, tokens);
  }

  /** Renews the lease of an open exchange. See {@link LeaseBook.renew}. */
  renew(id: string, subjects: readonly LimitSubject[]): void {
    this.#book.renew(id, subjects);
  }

  /** Returns the state of the limits of a subject. See {@link LeaseBook.standing}. */
  standing(subject: LimitSubject): Stand[] {
    return this.#book.standing(subject);
  }

  /** Deletes counts of windows that have ended, so that a removed key leaves nothing behind. */
  alarm(): void {
    const { kv } = this.ctx.storage;
    this.#alarmAt = 0;
    let next = 0;
    for (const [subject, counts] of Array.from(kv.list<WindowCounts>())) {
      const end = endOf(counts);
      if (end <= Date.now()) kv.delete(subject);
      else next = Math.max(next, end);
    }
    if (next > 0) this.#clearLater(next);
  }

  #clearLater(end: number): void {
    if (this.#alarmAt >= end) return;
    this.#alarmAt = end + CLEAR_AFTER_MS;
    this.ctx.storage.setAlarm(this.#alarmAt);
  }
}
