/**
 * The table of operations that callers can use, one row each. The pipeline reads the row of a request's operation; it
 * knows no operation by name.
 *
 * @module
 */
import type { Dialect } from "../dialects/dialect.ts";
import { OPENAI_CHAT } from "../dialects/openai_chat.ts";

/** An operation of a provider's interface. */
export interface Operation {
  /** Name in logs, metrics and traces. */
  readonly name: string;
  /** Method, in upper case. */
  readonly method: "GET" | "POST";
  /** Path below `/v1`, and below the provider's base URL; `:model+` stands for a model's id, slashes included. */
  readonly path: string;
  /** Dialect of its answers. */
  readonly dialect: Dialect;
  /** Kind of body: one that is validated, or none that is read. */
  readonly body: "chat_completion" | "none";
  /** Place where models are named: one in the body or in the path, or those that the answer lists. */
  readonly model: "body" | "path" | "answer";
  /** Cost of a call: tokens, which its answer states, or none. */
  readonly cost: "tokens" | "none";
}

/** The operations. */
export const OPERATIONS: readonly Operation[] = [
  {
    name: "chat.completions",
    method: "POST",
    path: "/chat/completions",
    dialect: OPENAI_CHAT,
    body: "chat_completion",
    model: "body",
    cost: "tokens",
  },
  {
    name: "models.list",
    method: "GET",
    path: "/models",
    dialect: OPENAI_CHAT,
    body: "none",
    model: "answer",
    cost: "none",
  },
  {
    name: "models.get",
    method: "GET",
    path: "/models/:model+",
    dialect: OPENAI_CHAT,
    body: "none",
    model: "path",
    cost: "none",
  },
];
