/**
 * A call whose usage was estimated, and is stated later.
 *
 * @module
 */
import type { TokenUsage } from "../exchange/billing.ts";
import type { LimitSubject } from "../limits/limiter.ts";
import type { RequestedTariff } from "../operations/requested_tariff.ts";

/** The facts that correct its charge later. JSON, without any content of the call. */
export interface AwaitedCall {
  /** Time when it began, milliseconds since 1970. */
  readonly startedAt: number;
  readonly durationMs: number;
  /** Time when its amounts had been reserved, milliseconds since 1970. */
  readonly reservedAt: number;
  readonly keyId: string;
  readonly team: string | undefined;
  readonly plan: string | undefined;
  readonly provider: string;
  /** Model as the caller named it; empty if none is named. */
  readonly model: string;
  readonly operation: string;
  /** The fields of its request that decide its price. */
  readonly tariff: RequestedTariff;
  /** The usage that was charged. */
  readonly estimate: TokenUsage;
  /** The subjects that were charged. */
  readonly subjects: readonly LimitSubject[];
}
