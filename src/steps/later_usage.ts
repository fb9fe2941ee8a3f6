/**
 * Usage that the provider states later. A response in the background is charged by an estimate when
 * it is created, and a batch by the operator's price of a call. The charge is corrected once, when
 * an answer first states the usage. The correction belongs to the call that created the response or
 * the batch, even if another key asks.
 *
 * A batch and its results have different ids. The completed batch names its results, so the usage of
 * results is found only if the batch was read before. Otherwise the charge stays the operator's
 * price: the results do not name their batch, and they can be read again, so charging unknown results
 * could count them twice.
 *
 * @module
 */
import { isPlausible, partsOf, type TokenUsage } from "../exchange/billing.ts";
import type { Clock } from "../exchange/clock.ts";
import { dropRejection, type Exchange } from "../exchange/exchange.ts";
import type { RestatedCall } from "../exchange/observer.ts";
import type { ExchangeRecord } from "../exchange/record.ts";
import type { Amounts, Limiter, LimitSubject } from "../limits/limiter.ts";
import type { AwaitedCalls, AwaitedName } from "../usage/awaited_calls.ts";
import type { RunRegistry } from "../runs/run_registry.ts";
import type { RequestedTariff } from "../operations/requested_tariff.ts";
import type { Accounting } from "./accounting.ts";
import type { AwaitedCall } from "./awaited_call.ts";
import { moneyOf } from "./call_price.ts";
import { addRequestFacts } from "./request_usage.ts";

/** Status of an answer with a part of a file (RFC 9110 §15.3.7). */
const PARTIAL = 206;

/** Parts of {@link LaterUsage}. */
export interface LaterUsageParts {
  readonly calls: AwaitedCalls<AwaitedCall>;
  readonly accounting: Accounting;
  readonly limiter: Limiter;
  readonly runs: RunRegistry;
  readonly clock: Clock;
  /** Receives each correction. */
  readonly restated: (call: RestatedCall) => void;
}

/** Facts of a call, which its correction needs. */
export interface LaterFacts {
  /** The fields of its request that decide its price. */
  readonly tariff: RequestedTariff;
  /** Models that its request names in addition to the first. */
  readonly otherModels: readonly string[] | undefined;
  /** The subjects that are charged. */
  readonly subjects: readonly LimitSubject[];
  /** Returns the amounts that limits count without an estimate: the operator's price of a call. */
  readonly toFixed: () => Amounts;
}

/** An answer that states the usage of an earlier call. */
interface LaterAnswer {
  readonly usage: TokenUsage;
  /** The model that it names. */
  readonly model: string | undefined;
}

/** Corrects the charges of one gateway. */
export class LaterUsage {
  readonly #parts: LaterUsageParts;

  constructor(parts: LaterUsageParts) {
    this.#parts = parts;
  }

  /** Stores a call at its end if it was answered without its usage, and its answer has an id. */
  awaitAtEnd(facts: LaterFacts, exchange: Exchange): void {
    exchange.onSettled((record) => {
      const { laterId } = exchange;
      const isStated = record.usage !== undefined && record.isEstimated !== true;
      if (isStated || laterId === undefined) return;
      const call = toAwaitedCall(record, facts, this.#parts.accounting);
      if (call === undefined) return;
      return this.#parts.calls.put({ provider: call.provider, laterId }, call, call.keyId);
    });
  }

  /**
   * Corrects the call that created an answer, at the end of the answer, if it states usage.
   *
   * @param laterId The id in the path of the request
   */
  correctAtEnd(laterId: string, exchange: Exchange): void {
    exchange.beforeSettled = ({ outcome }) => {
      const { provider, keyId, usage } = exchange.facts;
      exchange.facts.usage = undefined; // it is the usage of another call
      const isWhole = exchange.isAnswerComplete(outcome);
      // A part of a file states only a part of the usage.
      if (!isWhole || exchange.answeredStatus === PARTIAL) return;
      if (provider === undefined || keyId === undefined) return;
      const name = { provider, laterId };
      const nextId = exchange.laterId;
      // An absurd statement must not use up a limit that others share. The charge stays.
      if (usage !== undefined && !isPlausible(usage)) return;
      const { answeringModel: model } = exchange;
      if (usage !== undefined) dropRejection(this.#correct(name, { usage, model }, keyId));
      else if (nextId !== undefined && nextId !== laterId) {
        dropRejection(this.#rename(name, { provider, laterId: nextId }, keyId));
      }
    };
  }

  async #correct(name: AwaitedName, answer: LaterAnswer, askingKeyId: string): Promise<void> {
    const { calls, accounting, limiter, runs, clock, restated } = this.#parts;
    const call = await calls.take(name, askingKeyId);
    if (call === undefined) return;
    const { charged, subjects, reservedAt, keyId, run } = call;
    const facts = {
      isEstimated: false,
      isUnstated: false,
      isRefused: false,
      answeringModel: answer.model,
    };
    const stated = addRequestFacts(answer.usage, call, facts, accounting);
    restated({ ...call, stated });
    if (subjects.length === 0 && run === undefined) return;
    const used = toLaterAmounts(stated, call, charged.spend, accounting);
    if (run !== undefined) {
      dropRejection(runs.correct({ keyId, id: run, change: used.spend - charged.spend }));
    }
    if (subjects.length === 0) return;
    await limiter.correct?.(subjects, { charged, used, ageMs: clock.now() - reservedAt });
  }

  /** Awaits the usage of a call in another answer, such as the file with the results of a batch. */
  async #rename(from: AwaitedName, to: AwaitedName, keyId: string): Promise<void> {
    const { calls } = this.#parts;
    const call = await calls.take(from, keyId);
    if (call !== undefined) await calls.put(to, call, call.keyId);
  }
}

/** Makes the call to store; `undefined` if its record does not name its key and operation. */
function toAwaitedCall(
  record: ExchangeRecord,
  { tariff, otherModels, subjects, toFixed }: LaterFacts,
  accounting: Accounting,
): AwaitedCall | undefined {
  const { keyId, provider, operation, startedAt, usage: estimate } = record;
  if (keyId === undefined || provider === undefined || operation === undefined) return undefined;
  const call = {
    startedAt,
    durationMs: record.durationMs,
    reservedAt: startedAt + (record.calledMs ?? 0),
    keyId,
    team: record.team,
    plan: record.plan,
    attribution: record.attribution,
    usesHeldKey: record.usesHeldKey,
    provider,
    model: record.model ?? "",
    otherModels,
    operation,
    tariff,
    estimate,
    run: record.run,
    subjects,
  };
  const charged = estimate === undefined
    ? toFixed()
    : toLaterAmounts(estimate, call, 0, accounting);
  return { ...call, charged };
}

/**
 * Returns the amounts that limits count for the usage of a call whose request is over.
 *
 * @param unpriced Money to count if there is no price for it now
 */
function toLaterAmounts(
  usage: TokenUsage,
  { provider, model, startedAt, subjects, run }: Omit<AwaitedCall, "charged">,
  unpriced: number,
  { config, book }: Accounting,
): Amounts {
  const settings = config.providers[provider];
  // A batch names no model, but its results do.
  const models = [model, ...partsOf(usage).map((part) => part.model ?? model)];
  const price = models.map((each) => book.find({ provider, model: each }))
    .find((each) => each !== undefined);
  const isSpent = run !== undefined ||
    subjects.some(({ limits }) => limits.spend?.currency === config.currency);
  const spend = settings !== undefined && price !== undefined && isSpent
    ? moneyOf(usage, { book, provider, settings, price, at: startedAt })
    : unpriced;
  return { tokens: usage.total, spend };
}
