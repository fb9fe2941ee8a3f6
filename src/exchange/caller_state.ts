/**
 * The state of the caller's part in an exchange. It decides what happens to a call when its caller
 * leaves. If only the end of an answer states the cost, the call continues, so that a caller cannot
 * evade a limit by leaving.
 *
 *     state       | meaning                                         | next state
 *     ------------|-------------------------------------------------|---------------------------
 *     `bound`     | the call stops if its caller leaves             | `unbound` by `unbind`
 *     `unbound`   | the call continues if its caller leaves         | `left` by `endCallerPart`,
 *                 |                                                 | `bound` by `bindToCaller`
 *     `left`      | the caller receives no more, and the rest of    | `completed` at the end,
 *                 | the answer is read                              | `bound` by `bindToCaller`
 *     `completed` | the answer reached its end without its caller   | none
 *
 * `Exchange` makes the changes. An exchange begins as `bound`.
 *
 * @module
 */

/** The caller still receives its answer. */
interface PresentCaller {
  readonly name: "bound" | "unbound";
  readonly reason: undefined;
}

/** The caller receives no more of its answer. */
interface AbsentCaller {
  readonly name: "left" | "completed";
  /** The caller has left, or an operator or a deadline has ended its part. */
  readonly reason: Error;
}

export type CallerState = PresentCaller | AbsentCaller;

export const BOUND_CALLER: CallerState = Object.freeze({ name: "bound", reason: undefined });
export const UNBOUND_CALLER: CallerState = Object.freeze({ name: "unbound", reason: undefined });
