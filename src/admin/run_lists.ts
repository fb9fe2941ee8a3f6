/**
 * Runs of agents for operators: lists and stops them.
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import { formatMoney } from "../config/units.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { Author, Changes } from "./changes.ts";
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

/** The settings that views need. */
type ViewSettings = Pick<Config, "currency" | "runs">;

function toView(run: RunStatus, { currency, runs }: ViewSettings): RunView {
  const { repeats } = runs;
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

/** Parts of {@link RunLists}. */
export interface RunListsParts {
  readonly registry: RunRegistry;
  readonly config: ViewSettings;
  readonly changes: Pick<Changes, "add">;
}

/** Lists and stops runs. */
export class RunLists {
  readonly #parts: RunListsParts;

  constructor(parts: RunListsParts) {
    this.#parts = parts;
  }

  /**
   * Lists runs, the last used first.
   *
   * @param key Id of a gateway key; `undefined` for all
   * @throws {GatewayError} `runs_unavailable`
   */
  async list(key: string | undefined, limit: number): Promise<RunView[]> {
    const { registry, config } = this.#parts;
    return (await registry.list(key, limit)).map((run) => toView(run, config));
  }

  /**
   * Stops a run and all runs below it, at every gateway.
   *
   * @throws {GatewayError} `run_not_found`, `runs_unavailable`
   */
  async stop(key: string, id: string, author: Author): Promise<StoppedRun> {
    const { registry, changes } = this.#parts;
    if (!await registry.stop(key, id)) throw new GatewayError("run_not_found");
    const settings = [{ setting: "key", to: key }];
    await changes.add({ action: "stop", of: "run", id, settings }, author);
    return { id, key };
  }
}
