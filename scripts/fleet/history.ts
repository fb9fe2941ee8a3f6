/**
 * The checker of histories: what several gateways decided, merged, against a provider that knows
 * the truth. It knows nothing of how limits are counted, only what is promised of them.
 */

/** A call as its caller and its provider saw it. Times in milliseconds of one clock. */
export interface HistoricCall {
  readonly gateway: string;
  /** Id of the gateway key. */
  readonly key: string;
  readonly begunAt: number;
  readonly endedAt: number;
  /** The status that the caller saw, with the error's code if there is one. */
  readonly answer: string;
  /** True if a limit refused it. */
  readonly isRefused: boolean;
  /** Tokens that the provider has read and made for it; 0 if it was never called. */
  readonly actual: number;
  /** Bounds of what the gateway can have reserved for it. Tokens. */
  readonly reserved: { readonly least: number; readonly most: number };
}

/** A limit that was the same all the time. */
export interface HistoricLimit {
  readonly key: string;
  readonly tokens: number;
  readonly isStrict: boolean;
  /**
   * Tokens beyond the limit that a fault explains: counts that were lost, shares that gateways
   * decided by themselves.
   */
  readonly excused: number;
}

/** A history, in sums. */
export interface HistoryReport {
  readonly passed: number;
  /** Tokens beyond the limit. */
  readonly beyond: number;
  /** Tokens by which the calls that were open at once may have gone beyond it. */
  readonly bound: number;
  /** Promises that were not kept. */
  readonly violations: readonly string[];
}

/** Returns the largest sum of what calls that were open at once used beyond their reservations. */
function boundOf(calls: readonly HistoricCall[]): number {
  const steps = calls.flatMap(({ begunAt, endedAt, actual, reserved }) => {
    const beyond = Math.max(0, actual - reserved.least);
    return [{ at: begunAt, change: beyond }, { at: endedAt, change: -beyond }];
  });
  // What begins in the moment in which another ends counts beside it.
  steps.sort((one, other) => one.at - other.at || other.change - one.change);
  let [open, most] = [0, 0];
  for (const { change } of steps) most = Math.max(most, open += change);
  return most;
}

/**
 * Finds refusals while there was certainly room: for all that was taken until then, and for the
 * call itself.
 */
function countUnjust(calls: readonly HistoricCall[], limit: HistoricLimit): number {
  const admitted = calls.filter(({ isRefused }) => !isRefused).sort((one, other) =>
    one.begunAt - other.begunAt
  );
  let unjust = 0;
  for (const refused of calls) {
    if (!refused.isRefused) continue;
    let most = 0;
    for (const { begunAt, actual, reserved } of admitted) {
      if (begunAt > refused.endedAt) break;
      most += Math.max(actual, reserved.most);
    }
    if (most + refused.reserved.most <= limit.tokens) unjust++;
  }
  return unjust;
}

/**
 * Checks the calls of one key.
 *
 * @param calls The merged history of all gateways
 * @param limit The limit of the key
 * @param canRefuseEarly True if gateways had to count alone, each against its share
 */
export function checkHistory(
  calls: readonly HistoricCall[],
  limit: HistoricLimit,
  canRefuseEarly = false,
): HistoryReport {
  const own = calls.filter(({ key }) => key === limit.key);
  const passed = own.reduce((sum, { actual }) => sum + actual, 0);
  const bound = limit.isStrict ? 0 : boundOf(own);
  const beyond = Math.max(0, passed - limit.tokens);
  const violations: string[] = [];
  if (beyond > bound + limit.excused) {
    violations.push(
      `${passed} tokens passed a limit of ${limit.tokens}; the bound is ${bound} more`,
    );
  }
  const reached = own.filter(({ isRefused, actual }) => isRefused && actual > 0).length;
  if (reached > 0) violations.push(`${reached} refused calls reached the provider`);
  const unknown = own.filter(({ answer }) => answer.startsWith("401")).length;
  if (unknown > 0) violations.push(`${unknown} calls with a good key were called unknown`);
  const unjust = canRefuseEarly ? 0 : countUnjust(own, limit);
  if (unjust > 0) violations.push(`${unjust} calls were refused while there was room`);
  return { passed, beyond, bound, violations };
}
