/**
 * The limiter of a worker: it asks its supervisor, which counts for all workers.
 *
 * Most of the cost of a message is the same for one exchange or for twenty, so the limiter sends as
 * few messages as latency allows. A message is sent at the end of a turn of the event loop, with
 * all exchanges of that turn. None is sent while another waits for its reply. On Node 26 and 64
 * connections the supervisor spends 0.24 of the CPU of one message per exchange, on Bun 0.5
 * (2026-11-22).
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { GatewayError } from "../../../errors/gateway_error.ts";
import {
  type Correction,
  countsAtEnd,
  isCountedByFirstLease,
  type Lease,
  type Limiter,
  limitsOf,
  type LimitStatus,
  type LimitSubject,
  NO_RESERVATION,
  type Reservation,
} from "../../../limits/limiter.ts";
import { enforce, toLease } from "../../../limits/verdict.ts";
import type { LimitBatch, LimitReplies } from "../limit_messages.ts";

/** Number of subjects that have a number at the supervisor before the numbers are reset. */
const MAX_NUMBERS = 10_000;

/** A question that waits for its reply. */
interface Waiting {
  readonly subjects: readonly LimitSubject[];
  readonly resolve: (statuses: LimitStatus[]) => void;
  readonly reject: (error: unknown) => void;
}

/** An unsent batch, and its questions. */
interface Draft {
  readonly batch: { -readonly [Name in keyof LimitBatch]: LimitBatch[Name][number][] };
  readonly waiting: Waiting[];
}

/** Limiter of a worker. */
export class LimiterClient implements Limiter {
  readonly #send: (batch: LimitBatch) => void;
  #draft: Draft | undefined;
  /** The questions of each sent batch. The supervisor answers in order. */
  readonly #sent: Waiting[][] = [];
  readonly #numbers = new Map<
    string,
    { readonly number: number; readonly limits: LimitSubject["limits"] }
  >();
  #leases = 0;
  #isClosed = false;

  constructor(send: (batch: LimitBatch) => void) {
    this.#send = send;
  }

  async acquire(subjects: readonly LimitSubject[], reservation: Reservation): Promise<Lease> {
    const lease = ++this.#leases;
    const terms = enforce(await this.#ask(lease, subjects, reservation), reservation);
    let isOpen = true;
    return toLease(terms, ({ tokens, spend }, isUndone = false) => {
      if (!isOpen) return;
      isOpen = false;
      // Amounts of another lease must not be returned by this one.
      const undone = isUndone
        ? this.#toNumbers(
          subjects.filter((subject) => !isCountedByFirstLease(subject, reservation)),
        )
        : undefined;
      const mustSend = isUndone || countsAtEnd(subjects);
      if (mustSend) this.#currentDraft().batch.releases.push({ lease, tokens, spend, undone });
      // The caller must not learn of its refusal before the other workers can use its slot.
      if (isUndone) this.flush();
    });
  }

  status(subject: LimitSubject): Promise<LimitStatus[]> {
    return this.#ask(0, [subject], NO_RESERVATION);
  }

  correct(subjects: readonly LimitSubject[], correction: Correction): void {
    const numbers = this.#toNumbers(subjects);
    this.#currentDraft().batch.corrections.push({ subjects: numbers, ...correction });
  }

  /** Handles the replies to the oldest unanswered batch. */
  receive(replies: LimitReplies): void {
    let read = 0;
    const waiting = this.#sent.shift() ?? [];
    this.flush();
    for (const { subjects, resolve, reject } of waiting) {
      const statuses: LimitStatus[] = [];
      for (const subject of subjects) {
        for (const [name, limit] of limitsOf(subject)) {
          const [used = NaN, resetMs = NaN] = [replies[read], replies[read + 1]];
          statuses.push({ subject, name, limit, used, resetMs });
          read += 2;
        }
      }
      if (read <= replies.length) resolve(statuses);
      else reject(new Error("Cannot count: the supervisor does not know a limit"));
    }
  }

  /** Sends the batch now, not at the end of this turn. */
  flush(): void {
    if (this.#draft === undefined) return;
    const { batch, waiting } = this.#draft;
    this.#draft = undefined;
    if (waiting.length > 0) this.#sent.push(waiting);
    this.#send(batch);
  }

  /**
   * Refuses waiting and later exchanges as at a shutdown, because the supervisor no longer answers.
   */
  close(): void {
    this.#isClosed = true;
    this.flush();
    for (const { reject } of this.#sent.splice(0).flat()) {
      reject(new GatewayError("gateway_draining"));
    }
  }

  async #ask(
    lease: number,
    subjects: readonly LimitSubject[],
    reservation: Reservation,
  ): Promise<LimitStatus[]> {
    if (this.#isClosed) throw new GatewayError("gateway_draining");
    const numbers = this.#toNumbers(subjects);
    const { expected, most, firstLeaseSubject, isFree } = reservation;
    const { batch, waiting } = this.#currentDraft();
    batch.questions.push({
      lease,
      subjects: numbers,
      expectedTokens: expected.tokens,
      expectedSpend: expected.spend,
      mostTokens: most.tokens,
      mostSpend: most.spend,
      firstLeaseSubject,
      isFree,
    });
    return await new Promise((resolve, reject) => waiting.push({ subjects, resolve, reject }));
  }

  /** Returns the next batch to send. */
  #currentDraft(): Draft {
    if (this.#draft === undefined) {
      this.#draft = {
        batch: { subjects: [], releases: [], corrections: [], questions: [] },
        waiting: [],
      };
      setImmediate(() => this.#endTurn());
    }
    return this.#draft;
  }

  /**
   * Sends the batch, unless a reply is awaited, which will send it. If no question waits for the
   * batch, it is sent one turn later.
   */
  #endTurn(isSecond = false): void {
    if (this.#draft === undefined || this.#sent.length > 0) return;
    if (this.#draft.waiting.length > 0 || isSecond) this.flush();
    else setImmediate(() => this.#endTurn(true));
  }

  /** Returns the numbers of subjects. Adds new and changed subjects to the batch. */
  #toNumbers(subjects: readonly LimitSubject[]): number[] {
    if (this.#numbers.size + subjects.length > MAX_NUMBERS) {
      this.flush(); // its questions use the old numbers
      this.#numbers.clear();
    }
    return subjects.map((subject) => {
      const { name, limits } = subject;
      const known = this.#numbers.get(name);
      if (known?.limits === limits) return known.number;
      const number = known?.number ?? this.#numbers.size;
      this.#numbers.set(name, { number, limits });
      this.#currentDraft().batch.subjects.push({ number, subject });
      return number;
    });
  }
}
