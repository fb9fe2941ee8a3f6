/**
 * Runs of agents for operators: lists and stops them.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { formatMoney } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { RunRegistry, RunStatus } from "../runs/run_registry.ts";

/** A run as administrators see it. Money is exact, as a decimal number of `currency`. */
export interface RunView {
  readonly id: string;
  /** Id of its gateway key. */
  readonly key: string;
  readonly parent?: string | undefined;
  readonly state: "open" | "idle" | "stopped";
  readonly budget?: string | undefined;
  readonly spent: string;
  readonly reserved: string;
  readonly currency: string;
  /** The most calls. */
  readonly callLimit?: number | undefined;
  readonly calls: number;
  readonly openCalls: number;
  /** Number of times in a row that it has sent its last body. */
  readonly repeats?: number | undefined;
  /** The most times that are not reported: `runs.repeats`. */
  readonly repeatLimit?: number | undefined;
  readonly opened: string;
  readonly lastUsed: string;
}

/** A run that an operator has stopped. */
export interface StoppedRun {
  readonly id: string;
  readonly key: string;
}

function toState({ isStopped, open }: RunStatus): RunView["state"] {
  if (isStopped) return "stopped";
  return open > 0 ? "open" : "idle";
}

/** The settings that a view needs. */
interface ViewRules {
  readonly currency: string;
  /** `runs.repeats`. */
  readonly repeats: number | undefined;
}

function toView(run: RunStatus, { currency, repeats }: ViewRules): RunView {
  return {
    id: run.id,
    key: run.keyId,
    parent: run.parent,
    state: toState(run),
    budget: run.budget === undefined ? undefined : formatMoney(run.budget),
    spent: formatMoney(run.spent),
    reserved: formatMoney(run.reserved),
    currency,
    callLimit: run.calls,
    calls: run.called,
    openCalls: run.open,
    ...(repeats !== undefined && { repeats: run.repeats, repeatLimit: repeats }),
    opened: new Date(run.openedAt).toISOString(),
    lastUsed: new Date(run.usedAt).toISOString(),
  };
}

/** Lists and stops runs. */
export class RunLists {
  readonly #registry: RunRegistry;
  readonly #rules: ViewRules;

  /** @param config Its settings */
  constructor(registry: RunRegistry, { currency, runs }: Pick<Config, "currency" | "runs">) {
    this.#registry = registry;
    this.#rules = { currency, repeats: runs.repeats };
  }

  /**
   * Lists runs, the last used first.
   *
   * @param key Id of a gateway key; `undefined` for all
   * @throws {GatewayError} `runs_unavailable`
   */
  async list(key: string | undefined, limit: number): Promise<RunView[]> {
    const found = await this.#registry.list(key, limit);
    return found.map((run) => toView(run, this.#rules));
  }

  /**
   * Stops a run and all runs below it, at every gateway.
   *
   * @throws {GatewayError} `run_not_found`, `runs_unavailable`
   */
  async stop(key: string, id: string): Promise<StoppedRun> {
    if (await this.#registry.stop(key, id)) return { id, key };
    throw new GatewayError("run_not_found");
  }
}
