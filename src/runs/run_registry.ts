/**
 * Port: the registry of runs. A run is the work of one agent, which its caller names. All calls of a
 * run and of the runs below it together have a budget of money and a number of calls. A run belongs
 * to one gateway key, and can only narrow what that key is allowed.
 *
 * @module
 */
import type { ErrorCode } from "../errors/codes.ts";
import { GatewayError } from "../errors/gateway_error.ts";

/** Limits of a run. A limit that is left out does not apply. */
export interface RunLimits {
  /** The most money, in whole units of 10^-9 of the currency. */
  readonly budget?: number | undefined;
  /** The most calls. */
  readonly calls?: number | undefined;
}

/** A run, as its caller states it. */
export interface StatedRun {
  /** Its id, which its caller chose: 1 to 128 visible ASCII characters, not `.` or `..`. */
  readonly id: string;
  /** Id of the run above it, under the same gateway key. */
  readonly parent?: string | undefined;
  /** Name of the client's header that states it, for its errors. Default: `Gateway-Run`. */
  readonly header?: string | undefined;
  /** The limits that its caller and the configuration state. */
  readonly limits: RunLimits;
}

/** The amounts that a call reserves in its run. */
export interface RunReservation {
  /** Money, in whole units of 10^-9 of the currency. */
  readonly spend: number;
  /**
   * Code of the refusal under a budget, because the cost of the call is unknown, or has no bound under
   * a strict limit; `undefined` if it can be reserved.
   */
  readonly unpriced?: ErrorCode | undefined;
  /** True for a call that costs nothing. It counts as no call, and only a stopped run refuses it. */
  readonly isFree: boolean;
  /** True if `spend` is the most that the call can cost, also if it is more than a whole budget. */
  readonly isStrict: boolean;
}

/** Bounds of the remembered runs. */
export interface RunBounds {
  /** Time after its last use until a run is forgotten. Milliseconds. */
  readonly idleMs: number;
  /** The most runs of one key. */
  readonly maxPerKey: number;
}

/** The body of a call, from which loops of a run are found. */
export interface RunBody {
  /** Digest of its bytes, its provider and its path. Only compared, and never shown. */
  readonly digest: string;
  /** The most times in a row that a run can send it; `undefined` for any. */
  readonly most?: number | undefined;
  /** True if a client library sends a failed call again. It is not counted. */
  readonly isRetry: boolean;
}

/** A call of a run. */
export interface RunCall {
  /** Id of the gateway key. */
  readonly keyId: string;
  /** Its run. */
  readonly run: StatedRun;
  /** The amounts that it reserves. */
  readonly reservation: RunReservation;
  /** Bounds of the remembered runs of the key. */
  readonly bounds: RunBounds;
  /** Limits of a parent that is opened with the call: those of the configuration. Default: none. */
  readonly defaults?: RunLimits | undefined;
  /** Its body. If it is left out, the call is not counted as a repeat, and ends none. */
  readonly body?: RunBody | undefined;
}

/** Lease of an admitted call of a run. */
export interface RunLease {
  /**
   * Number of times in a row that the run has sent the body, with this call. `undefined` if it was
   * not counted.
   */
  readonly repeats?: number | undefined;
  /**
   * Ends the lease, and charges the used money instead of the reserved one. Only the first call has
   * an effect.
   *
   * @param spend Whole units of 10^-9 of the currency
   * @param isUndone True if no call was made after all. It then counts as no call
   */
  release(spend: number, isUndone: boolean): void;
}

/** A run that the registry remembers. Money is in whole units of 10^-9 of the currency. */
export interface RunStatus extends RunLimits {
  /** Id of the gateway key. */
  readonly keyId: string;
  /** Its id. */
  readonly id: string;
  /** Id of the run above it. */
  readonly parent?: string | undefined;
  /** Money that ended calls were charged, also in runs below it. */
  readonly spent: number;
  /** Money that open calls have reserved. */
  readonly reserved: number;
  /** Number of calls, also in runs below it. */
  readonly called: number;
  /** Number of open calls, as far as they are known. */
  readonly open: number;
  /** Time of its first call, milliseconds since 1970. */
  readonly openedAt: number;
  /** Time of its last call, or of its stop, milliseconds since 1970. */
  readonly usedAt: number;
  /** True if the run, or a run above it, was stopped. */
  readonly isStopped: boolean;
  /** Times in a row that it has sent its last body; `undefined` if bodies were not counted. */
  readonly repeats?: number | undefined;
}

/** A correction of a call that was charged at its end. */
export interface RunCorrection {
  /** Id of the gateway key. */
  readonly keyId: string;
  /** Id of the run. */
  readonly id: string;
  /** The used money less the charged money, in whole units of 10^-9 of the currency. */
  readonly change: number;
}

/**
 * Port: the registry of runs.
 *
 * @example Count the calls of each run, without any limit
 * ```ts
 * import { createGateway, parseConfig, type RunRegistry } from "sallyport";
 *
 * const calls = new Map<string, number>();
 * const runs: RunRegistry = {
 *   admit({ keyId, run }) {
 *     const name = `${keyId} ${run.id}`;
 *     calls.set(name, (calls.get(name) ?? 0) + 1);
 *     return { release() {} };
 *   },
 *   correct() {},
 *   list: () => Promise.resolve([]),
 *   stop: () => Promise.resolve(false),
 * };
 * const keys = [{ id: "me", key: "a-key-of-your-own" }];
 * const gateway = createGateway(parseConfig({ providers: { a: { upstream: "openai" } }, keys }), { runs });
 * ```
 */
export interface RunRegistry {
  /**
   * Admits a call to its run and to all runs above it, or to none. An unknown run is opened with the
   * stated limits, and an unknown parent with {@link RunCall.defaults}. Of a known run, stated
   * limits can only narrow the limits, and a parent can be added, but not changed.
   *
   * A body is counted in the call's own run only, and also if the call is refused. So a run that
   * repeats a body too often is refused until it sends another one.
   *
   * @param onStopped Called once if the run, or one above it, is stopped before the lease ends
   * @throws {GatewayError} `run_budget_exceeded`, `run_stopped`, `run_repeats`, `invalid_run`,
   * `too_many_runs`, `runs_unavailable`, or the code of {@link RunReservation.unpriced}
   */
  admit(call: RunCall, onStopped: () => void): RunLease | Promise<RunLease>;
  /** Corrects the charge of an ended call in its run and in the runs above it, if they exist. */
  correct(correction: RunCorrection): void | Promise<void>;
  /**
   * Lists runs, the last used first, and each after the runs above it.
   *
   * @param keyId Id of a gateway key; `undefined` for all
   * @param limit The most runs to list
   * @throws {GatewayError} `runs_unavailable`
   */
  list(keyId: string | undefined, limit: number): Promise<readonly RunStatus[]>;
  /**
   * Stops a run and all runs below it: their open calls end, and further calls are refused. A stop
   * counts as a use. Runs below a stopped run are not forgotten before it.
   *
   * @returns False if there is no such run
   * @throws {GatewayError} `runs_unavailable`
   */
  stop(keyId: string, id: string): Promise<boolean>;
}

/** The most runs above a run. */
export const MAX_ANCESTORS = 8;
/**
 * Time for which a run must be unused before it can make room for another one. A run that is
 * forgotten begins with its whole budget if it is used again. Milliseconds.
 */
export const MIN_UNUSED_MS = 60_000;
/**
 * Longest time until an open call of a stopped run ends, at gateways that ask for stopped runs at
 * intervals: they ask twice in it. Milliseconds.
 */
export const STOP_MS = 1000;

/** Reason why a run refuses a call. */
export type RunRefusal =
  | "budget"
  | "calls"
  | "stopped"
  | "parent"
  | "cycle"
  | "depth"
  | "full"
  | "unpriced"
  | "repeats";

/** Refusal of a call. */
export interface RefusedRun {
  readonly refusal: RunRefusal;
  /** True if a run above the caller's run refuses it. */
  readonly isAbove: boolean;
  /** Number of times in a row that the run has sent the body, if that is the reason. */
  readonly repeats?: number | undefined;
}

/** The parts of a call that its refusal names. */
type RunReasons = Pick<RunCall, "run" | "reservation" | "body">;

/** The error of a kind of refusal. */
interface RefusalError {
  readonly code: ErrorCode;
  /** The refusing limit. */
  readonly limit?: string;
  /** Says more than the code does. */
  readonly describe?: (refused: RefusedRun, call: RunReasons) => string;
}

const nameOf = ({ isAbove }: RefusedRun): string => isAbove ? "a run above it" : "the run";

const REFUSALS: Readonly<Record<RunRefusal, RefusalError>> = {
  budget: {
    code: "run_budget_exceeded",
    limit: "run-budget",
    describe: (refused) => `${nameOf(refused)} has no money left for this call`,
  },
  calls: {
    code: "run_budget_exceeded",
    limit: "run-calls",
    describe: (refused) => `${nameOf(refused)} has made all of its calls`,
  },
  stopped: { code: "run_stopped" },
  parent: { code: "invalid_run", describe: () => "the run already has another parent" },
  cycle: { code: "invalid_run", describe: () => "its parent is the run, or is below it" },
  depth: {
    code: "invalid_run",
    describe: () => `expected at most ${MAX_ANCESTORS} runs above it`,
  },
  full: { code: "too_many_runs" },
  unpriced: {
    code: "model_not_priced",
    describe(refused, { reservation }) {
      const hasBudget = `${nameOf(refused)} has a budget of money`;
      return reservation.unpriced === "request_exceeds_limit"
        ? `${hasBudget}, and nothing limits the cost of this call`
        : hasBudget;
    },
  },
  repeats: {
    code: "run_repeats",
    describe: ({ repeats }, { body }) =>
      `the run sent it ${repeats} times in a row, and ${body?.most} are allowed`,
  },
};

/** Makes the error of a refusal of a call. */
export function toRunError(refused: RefusedRun, call: RunReasons): GatewayError {
  const { refusal, repeats } = refused;
  const { code, limit, describe } = REFUSALS[refusal];
  const isUnpriced = refusal === "unpriced";
  // A missing price is the fault of the model or the operation, not of the header.
  const param = isUnpriced ? undefined : call.run.header;
  const detail = describe?.(refused, call);
  return new GatewayError(isUnpriced ? call.reservation.unpriced ?? code : code, {
    ...(param !== undefined && { param }),
    ...(detail !== undefined && { detail }),
    ...(limit !== undefined && { limit }),
    repeats,
  });
}

/** Returns the narrower of two limits. Either can be unset. */
export function narrower(one: number | undefined, other: number | undefined): number | undefined {
  return one === undefined || other === undefined ? one ?? other : Math.min(one, other);
}

/** Returns the money that a call reserves in a run. */
export function reservedInRun(
  { spend, isStrict }: RunReservation,
  budget: number = Infinity,
): number {
  return isStrict ? spend : Math.min(spend, budget);
}
