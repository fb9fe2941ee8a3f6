/**
 * Usage that the provider states later. A response in the background is charged by an estimate when
 * it is created, and corrected once, when an answer first states its usage. The correction belongs
 * to the call that created it, even if another key asks.
 *
 * @module
 */
import type { TokenUsage } from "../exchange/billing.ts";
import type { Clock } from "../exchange/clock.ts";
import { dropRejection, type Exchange } from "../exchange/exchange.ts";
import type { RestatedCall } from "../exchange/observer.ts";
import type { Limiter, LimitSubject } from "../limits/limiter.ts";
import type { AwaitedCalls } from "../usage/awaited_calls.ts";
import type { Accounting, CountedCall } from "./accounting.ts";
import type { AwaitedCall } from "./awaited_call.ts";

/** Parts of {@link LaterUsage}. */
export interface LaterUsageParts {
  readonly calls: AwaitedCalls<AwaitedCall>;
  readonly accounting: Accounting;
  readonly limiter: Limiter;
  readonly clock: Clock;
  /** Receives each correction. */
  readonly restated: (call: RestatedCall) => void;
}

/** Corrects estimates of one gateway. */
export class LaterUsage {
  readonly #parts: LaterUsageParts;

  constructor(parts: LaterUsageParts) {
    this.#parts = parts;
  }

  /**
   * Stores a call at its end if its usage was estimated, and its answer has an id.
   *
   * @param subjects The subjects that are charged
   */
  awaitAtEnd(
    { tariff }: CountedCall,
    subjects: readonly LimitSubject[],
    exchange: Exchange,
  ): void {
    exchange.onSettled((record) => {
      const { usage: estimate, keyId, provider, operation, team, plan, model = "" } = record;
      const { startedAt, durationMs, calledMs = 0, isEstimated } = record;
      const { answerId } = exchange;
      if (isEstimated !== true || estimate === undefined || answerId === undefined) return;
      if (keyId === undefined || provider === undefined || operation === undefined) return;
      const names = { keyId, team, plan, provider, model, operation };
      const times = { startedAt, durationMs, reservedAt: startedAt + calledMs };
      const call = { ...names, ...times, tariff, estimate, subjects };
      return this.#parts.calls.put({ provider, answerId }, call);
    });
  }

  /** Corrects the call that created an answer, at the end of the answer, if it states usage. */
  settleAtEnd(answerId: string, exchange: Exchange): void {
    exchange.beforeSettled = () => {
      const { provider, usage } = exchange.facts;
      exchange.facts.usage = undefined; // it is the usage of another call
      if (usage === undefined || provider === undefined) return;
      dropRejection(this.#settle(provider, answerId, usage));
    };
  }

  async #settle(provider: string, answerId: string, usage: TokenUsage): Promise<void> {
    const { calls, accounting, limiter, clock, restated } = this.#parts;
    const call = await calls.take({ provider, answerId });
    if (call === undefined) return;
    const { estimate, subjects, reservedAt } = call;
    const stated = accounting.completeStated(usage, call);
    restated({ ...call, stated });
    if (subjects.length === 0) return;
    limiter.correct?.(subjects, {
      charged: accounting.toAmounts(estimate, call),
      used: accounting.toAmounts(stated, call),
      ageMs: clock.now() - reservedAt,
    });
  }
}
