/**
 * The states of the supervisor and of a worker from the supervisor's view, and the transitions
 * between them. README.md draws them.
 *
 * @module
 */
import type { Source } from "../../prepare.ts";

/** A change of the configuration that a worker was asked to prepare. */
export interface AskedChange {
  /** Number of the question. The worker's reply repeats it. */
  readonly question: number;
  readonly source: Source;
}

/** State of a worker. `source` is the configuration that it was last asked to use. */
export type WorkerState =
  /** The process starts. It has no configuration. */
  | { readonly name: "starting" }
  /** It opens the addresses of its first configuration. */
  | { readonly name: "opening"; readonly source: Source }
  | { readonly name: "serving"; readonly source: Source }
  /** It serves, and prepares another configuration. */
  | { readonly name: "preparing"; readonly source: Source; readonly change: AskedChange }
  /** It serves, and waits until the other configuration is applied or abandoned. */
  | { readonly name: "prepared"; readonly source: Source; readonly change: AskedChange }
  /** It accepts nothing more and finishes its open exchanges. */
  | { readonly name: "draining" }
  /** The process has ended, or could not be started. */
  | { readonly name: "ended" };

/** Cause of a transition of a worker. */
export type WorkerEvent =
  | { readonly type: "configured"; readonly source: Source }
  | { readonly type: "listening" }
  | { readonly type: "asked"; readonly change: AskedChange }
  | { readonly type: "prepared"; readonly question: number }
  /** It can't use the configuration, or did not answer in time. */
  | { readonly type: "refused"; readonly question: number }
  | { readonly type: "applied" }
  | { readonly type: "abandoned" }
  | { readonly type: "drained" }
  | { readonly type: "ended" };

/** State of the supervisor. */
export type SupervisorState =
  /** No worker has served yet. The configuration can be unusable. */
  | "starting"
  /** Ended workers are replaced. */
  | "serving"
  | "closing";

/**
 * Returns the next state of a worker. Returns the same object for an event that does not fit the
 * state, such as a late reply.
 */
export function nextWorkerState(state: WorkerState, event: WorkerEvent): WorkerState {
  const { name } = state;
  if (name === "ended") return state;
  switch (event.type) {
    case "configured":
      return name === "starting" ? { name: "opening", source: event.source } : state;
    case "listening":
      return name === "opening" ? { name: "serving", source: state.source } : state;
    case "asked":
      return name === "serving"
        ? { name: "preparing", source: state.source, change: event.change }
        : state;
    case "prepared":
      return name === "preparing" && state.change.question === event.question
        ? { ...state, name: "prepared" }
        : state;
    case "refused":
      return name === "preparing" && state.change.question === event.question
        ? { name: "serving", source: state.source }
        : state;
    case "applied":
      return name === "prepared" ? { name: "serving", source: state.change.source } : state;
    case "abandoned":
      return name === "preparing" || name === "prepared"
        ? { name: "serving", source: state.source }
        : state;
    case "drained":
      return name === "draining" ? state : { name: "draining" };
    case "ended":
      return { name: "ended" };
    default:
      return event satisfies never;
  }
}

/**
 * Returns the next state of the supervisor.
 *
 * @param event A worker serves for the first time, or a signal ends the supervisor
 */
export function nextSupervisorState(
  state: SupervisorState,
  event: "served" | "closed",
): SupervisorState {
  switch (event) {
    case "served":
      return state === "starting" ? "serving" : state;
    case "closed":
      return "closing";
    default:
      return event satisfies never;
  }
}

/** True if a worker accepts callers. */
export function acceptsCallers({ name }: WorkerState): boolean {
  switch (name) {
    case "serving":
    case "preparing":
    case "prepared":
      return true;
    case "starting":
    case "opening":
    case "draining":
    case "ended":
      return false;
    default:
      return name satisfies never;
  }
}
