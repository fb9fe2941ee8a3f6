/**
 * A call whose usage is stated later.
 *
 * @module
 */
import type { Attribution } from "../config/dimensions.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import type { Amounts, LimitSubject } from "../limits/limiter.ts";
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
  readonly attribution?: Attribution | undefined;
  /** True if a provider key was sent that the gateway holds. */
  readonly usesHeldKey?: boolean | undefined;
  readonly provider: string;
  /** Model as the caller named it; empty if none is named. */
  readonly model: string;
  /** Models that its request names in addition; left out for none, and by earlier versions. */
  readonly otherModels?: readonly string[] | undefined;
  readonly operation: string;
  /** The fields of its request that decide its price. */
  readonly tariff: RequestedTariff;
  /** The estimate in its record; `undefined` if it has none, as for a batch. */
  readonly estimate: TokenUsage | undefined;
  /** The amounts that limits count until then. */
  readonly charged: Amounts;
  /** Id of the run that was charged. */
  readonly run?: string | undefined;
  /** The subjects that were charged. */
  readonly subjects: readonly LimitSubject[];
}
