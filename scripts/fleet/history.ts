/**
 * The checker of histories: the merged decisions of several gateways, compared with a provider that
 * knows the true usage. It does not know how limits are counted, only their guarantees.
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
  /** Tokens that the provider has read and generated for it; 0 if it was never called. */
  readonly actual: number;
  /** Bounds of the gateway's reservation for it. Tokens. */
  readonly reserved: { readonly least: number; readonly most: number };
}

/** A limit that stayed the same during the run. */
export interface HistoricLimit {
  readonly key: string;
  readonly tokens: number;
  readonly isStrict: boolean;
  /**
   * Tokens in excess of the limit that a fault explains: lost counts, and shares that gateways
   * decided alone.
   */
  readonly excused: number;
}

/** The sums of a history. */
export interface HistoryReport {
  readonly passed: number;
  /** Tokens in excess of the limit. */
  readonly beyond: number;
  /** The most tokens that concurrent calls can use in excess of it. */
  readonly bound: number;
  /** Guarantees that were broken. */
  readonly violations: readonly string[];
}

/**
 * Returns the largest sum of usage in excess of reservations over all calls that were open at one
 * time.
 */
function boundOf(calls: readonly HistoricCall[]): number {
  const steps = calls.flatMap(({ begunAt, endedAt, actual, reserved }) => {
    const beyond = Math.max(0, actual - reserved.least);
    return [{ at: begunAt, change: beyond }, { at: endedAt, change: -beyond }];
  });
  // A call that starts at the moment in which another ends counts as concurrent.
  steps.sort((one, other) => one.at - other.at || other.change - one.change);
  let [open, most] = [0, 0];
  for (const { change } of steps) most = Math.max(most, open += change);
  return most;
}

/**
 * Counts refusals although there was certainly room: for all tokens used until then, and for the
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
 * @param canRefuseEarly True if gateways counted alone, each against its share
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
