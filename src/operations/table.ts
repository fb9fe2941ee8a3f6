/**
 * The table of operations that callers can use, one row each. The pipeline reads the row of a
 * request's operation; it has no code for single operations.
 *
 * @module
 */
import type { OperationGroup } from "../config/operation_groups.ts";
import { ANTHROPIC } from "../dialects/anthropic.ts";
import { STREAM_OPTIONS } from "../dialects/usage_opt_in.ts";
import type { Dialect, UsageOptIn } from "../dialects/dialect.ts";
import { OPAQUE } from "../dialects/opaque.ts";
import { OPENAI_CHAT } from "../dialects/openai_chat.ts";
import { OPENAI_EVENTS } from "../dialects/openai_events.ts";
import { OPENAI_RESPONSES } from "../dialects/openai_responses.ts";
import type { GenAiOperation } from "../exchange/record.ts";

/** An operation of a provider's interface. */
export interface Operation {
  /** Name in logs, metrics and traces. */
  readonly name: string;
  /** Group with which an operator allows it; `undefined` for paths that only `all` allows. */
  readonly group: OperationGroup | undefined;
  /** Method, in upper case; `*` for all methods without a row. A row for `GET` includes `HEAD`. */
  readonly method: "GET" | "POST" | "DELETE" | "*";
  /**
   * Path below `/v1`, and below the provider's base URL: `:id` is one segment, `:model+` is a
   * model's id, slashes included, and `:rest+` is the rest of the path.
   */
  readonly path: string;
  /** Dialect of its answers; `OPAQUE` if several interfaces share the path, or if it is unknown. */
  readonly dialect: Dialect;
  /**
   * Kind of body: `chat_completion` is validated; for `json` the form is checked and the model is
   * read, and multipart bodies state it in a field; `any` is read, and checked if its content type
   * is JSON; `none` is not read.
   */
  readonly body: "chat_completion" | "json" | "multipart" | "any" | "none";
  /**
   * Location of the names of models: the body, which must or can have one, the path, or the answer,
   * which lists them. `none` if there is none, so that keys with restricted models cannot use it.
   */
  readonly model: "body" | "optional" | "path" | "answer" | "none";
  /**
   * Cost of a call: `tokens` and other amounts, as its answer states them; `unstated` if it can cost
   * something that no answer states, such as the work of a batch; `earlier` if it costs nothing, but
   * its answer can state the cost of an earlier call; `none` for all others.
   */
  readonly cost: "tokens" | "unstated" | "earlier" | "none";
  /** Usage that its streams state only on request; left out if they state it always, or never. */
  readonly usageOptIn?: UsageOptIn;
  /** True if the gateway itself answers it. Every key that is allowed to make a call can use it. */
  readonly isOwn?: true;
  /** Kind of a model's work in traces and metrics; `undefined` for operations that use no model. */
  readonly genAi?: GenAiOperation;
}

/** True if a call costs something. */
export const isCharged = ({ cost }: Pick<Operation, "cost">): boolean =>
  cost === "tokens" || cost === "unstated";

type Row = Omit<Operation, "name" | "method" | "path" | "dialect" | "group">;

/** Rows by body, model and cost. */
const CALL: Row = { body: "json", model: "body", cost: "tokens" };
const MODEL_OPTIONAL: Row = { body: "json", model: "optional", cost: "tokens" };
const UPLOAD: Row = { body: "multipart", model: "body", cost: "tokens" };
/** Reads, changes or deletes objects that are stored at the provider. */
const STORED: Row = { body: "none", model: "none", cost: "none" };
const STORED_WITH_BODY: Row = { body: "any", model: "none", cost: "none" };
/** Starts work, or stores data, whose cost no answer states. */
const WORK: Row = { body: "any", model: "none", cost: "unstated" };

const chat = { group: "chat", dialect: OPENAI_CHAT } as const;
const responses = { group: "responses", dialect: OPENAI_RESPONSES } as const;
const images = {
  group: "images",
  dialect: OPENAI_EVENTS,
  cost: "tokens",
  genAi: "generate_content",
} as const;
const audio = {
  group: "audio",
  dialect: OPENAI_EVENTS,
  cost: "tokens",
  genAi: "generate_content",
} as const;
const messages = { group: "messages", dialect: ANTHROPIC } as const;
/**
 * Anthropic's batches cost tokens that their answers do not state, so they are off like all other
 * batches.
 */
const messageBatches = { group: "batches", dialect: ANTHROPIC } as const;
const models = { group: "models", dialect: OPAQUE, body: "none", cost: "none" } as const;

/** Access to the answer of a durable exchange. */
const recorded = { ...STORED, group: undefined, dialect: OPAQUE, isOwn: true } as const;

const NAMED: readonly Operation[] = [
  {
    ...chat,
    name: "chat.completions",
    method: "POST",
    path: "/chat/completions",
    body: "chat_completion",
    model: "body",
    cost: "tokens",
    usageOptIn: STREAM_OPTIONS,
    genAi: "chat",
  },
  { ...chat, ...STORED, name: "chat.completions.list", method: "GET", path: "/chat/completions" },
  {
    ...chat,
    ...STORED,
    name: "chat.completions.get",
    method: "GET",
    path: "/chat/completions/:id",
  },
  {
    ...chat,
    ...STORED_WITH_BODY,
    name: "chat.completions.update",
    method: "POST",
    path: "/chat/completions/:id",
  },
  {
    ...chat,
    ...STORED,
    name: "chat.completions.delete",
    method: "DELETE",
    path: "/chat/completions/:id",
  },
  {
    ...chat,
    ...STORED,
    name: "chat.completions.messages",
    method: "GET",
    path: "/chat/completions/:id/messages",
  },

  {
    ...responses,
    ...MODEL_OPTIONAL,
    name: "responses",
    method: "POST",
    path: "/responses",
    genAi: "chat",
  },
  {
    ...responses,
    ...STORED,
    name: "responses.get",
    method: "GET",
    path: "/responses/:id",
    cost: "earlier",
    genAi: "fetch_response",
  },
  { ...responses, ...STORED, name: "responses.delete", method: "DELETE", path: "/responses/:id" },
  {
    ...responses,
    ...STORED_WITH_BODY,
    name: "responses.cancel",
    method: "POST",
    path: "/responses/:id/cancel",
    cost: "earlier",
  },
  {
    ...responses,
    ...STORED,
    name: "responses.input_items",
    method: "GET",
    path: "/responses/:id/input_items",
  },
  {
    ...responses,
    ...MODEL_OPTIONAL,
    name: "responses.input_tokens",
    method: "POST",
    path: "/responses/input_tokens",
    cost: "none",
  },
  {
    ...responses,
    ...CALL,
    name: "responses.compact",
    method: "POST",
    path: "/responses/compact",
    genAi: "chat",
  },

  {
    ...CALL,
    group: "completions",
    dialect: OPENAI_CHAT,
    name: "completions",
    method: "POST",
    path: "/completions",
    usageOptIn: STREAM_OPTIONS,
    genAi: "text_completion",
  },
  {
    ...CALL,
    group: "embeddings",
    dialect: OPENAI_CHAT,
    name: "embeddings",
    method: "POST",
    path: "/embeddings",
    genAi: "embeddings",
  },
  {
    ...MODEL_OPTIONAL,
    group: "moderations",
    dialect: OPENAI_CHAT,
    name: "moderations",
    method: "POST",
    path: "/moderations",
    cost: "none",
  },

  {
    ...images,
    body: "json",
    model: "optional",
    name: "images",
    method: "POST",
    path: "/images/generations",
  },
  {
    ...images,
    body: "multipart",
    model: "optional",
    name: "images.edits",
    method: "POST",
    path: "/images/edits",
  },
  {
    ...images,
    body: "multipart",
    model: "optional",
    name: "images.variations",
    method: "POST",
    path: "/images/variations",
  },

  { ...audio, ...CALL, name: "audio.speech", method: "POST", path: "/audio/speech" },
  {
    ...audio,
    ...UPLOAD,
    name: "audio.transcriptions",
    method: "POST",
    path: "/audio/transcriptions",
  },
  { ...audio, ...UPLOAD, name: "audio.translations", method: "POST", path: "/audio/translations" },

  { ...messages, ...CALL, name: "messages", method: "POST", path: "/messages", genAi: "chat" },
  {
    ...messages,
    ...CALL,
    name: "messages.count_tokens",
    method: "POST",
    path: "/messages/count_tokens",
    cost: "none",
  },
  {
    ...messageBatches,
    ...WORK,
    name: "messages.batches",
    method: "POST",
    path: "/messages/batches",
  },
  {
    ...messageBatches,
    ...STORED,
    name: "messages.batches.list",
    method: "GET",
    path: "/messages/batches",
  },
  {
    ...messageBatches,
    ...STORED,
    name: "messages.batches.get",
    method: "GET",
    path: "/messages/batches/:id",
  },
  {
    ...messageBatches,
    ...STORED,
    name: "messages.batches.delete",
    method: "DELETE",
    path: "/messages/batches/:id",
  },
  {
    ...messageBatches,
    ...STORED,
    name: "messages.batches.results",
    method: "GET",
    path: "/messages/batches/:id/results",
  },
  {
    ...messageBatches,
    ...STORED_WITH_BODY,
    name: "messages.batches.cancel",
    method: "POST",
    path: "/messages/batches/:id/cancel",
  },

  { ...models, model: "answer", name: "models.list", method: "GET", path: "/models" },
  { ...models, model: "path", name: "models.get", method: "GET", path: "/models/:model+" },
  {
    ...models,
    group: "fine_tuning",
    model: "path",
    name: "models.delete",
    method: "DELETE",
    path: "/models/:model+",
  },

  { ...recorded, name: "exchange.attach", method: "GET", path: "/exchanges/:id" },
  { ...recorded, name: "exchange.stop", method: "DELETE", path: "/exchanges/:id" },
];

/** Paths whose operations are allowed together, with all paths below them, and their cost. */
const FAMILIES: readonly (readonly [OperationGroup, path: string, cost: Operation["cost"]])[] = [
  ["files", "/files", "unstated"],
  ["uploads", "/uploads", "unstated"],
  ["batches", "/batches", "unstated"],
  ["fine_tuning", "/fine_tuning", "unstated"],
  ["vector_stores", "/vector_stores", "unstated"],
  ["conversations", "/conversations", "none"],
  ["containers", "/containers", "unstated"],
  ["evals", "/evals", "unstated"],
  ["videos", "/videos", "tokens"],
  ["assistants", "/assistants", "unstated"],
  ["assistants", "/threads", "unstated"],
  ["realtime", "/realtime", "unstated"],
  ["skills", "/skills", "unstated"],
  ["chatkit", "/chatkit", "unstated"],
  ["admin", "/organization", "none"],
  ["admin", "/projects", "none"], // roles of an organization's projects
];

function toFamily([group, path, cost]: (typeof FAMILIES)[number]): Operation[] {
  const row = { ...WORK, cost, name: path.slice(1), group, method: "*", dialect: OPAQUE } as const;
  return [{ ...row, path }, { ...row, path: `${path}/:rest+` }];
}

/**
 * Operation for all paths that are not in the table. What its answer states is charged, and
 * otherwise an estimate.
 */
export const OTHER: Operation = {
  ...STORED_WITH_BODY,
  cost: "tokens",
  name: "other",
  group: undefined,
  method: "*",
  path: "/:rest+",
  dialect: OPAQUE,
};

/**
 * The operations. A path without parameters has precedence over paths with parameters. Of these,
 * the first match is used.
 */
export const OPERATIONS: readonly Operation[] = [
  ...NAMED,
  ...FAMILIES.flatMap(toFamily),
  OTHER,
];
