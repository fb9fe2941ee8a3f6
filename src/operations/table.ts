/**
 * The table of operations that callers can use, one row each. The pipeline reads the row of a
 * request's operation; it has no code for single operations.
 *
 * @module
 */
import type { OperationGroup } from "../config/operation_groups.ts";
import { ANTHROPIC } from "../dialects/anthropic.ts";
import { BATCHES, MESSAGE_BATCHES, MESSAGE_RESULTS, RESULTS_FILE } from "../dialects/batches.ts";
import { STREAM_OPTIONS } from "../dialects/usage_opt_in.ts";
import type { Dialect, UsageOptIn } from "../dialects/dialect.ts";
import { OPAQUE } from "../dialects/opaque.ts";
import { OPENAI_CHAT } from "../dialects/openai_chat.ts";
import { OPENAI_MEDIA } from "../dialects/openai_media.ts";
import { OPENAI_RESPONSES } from "../dialects/openai_responses.ts";
import type { BillingClass } from "../exchange/billing.ts";
import type { GenAiOperation } from "../exchange/record.ts";

/**
 * Locations of facts in a request: fields of its body, or fields of objects such as
 * `options.num_predict`. If a body has several of them, the largest value counts.
 */
export interface FactLocations {
  readonly maxOutput: readonly string[];
  readonly answers?: readonly string[];
  /** Of embeddings: lists of inputs, each of which can be as long as the provider allows. */
  readonly inputs?: readonly string[];
  /** Header that requests a tier, in lower case. */
  readonly tierHeader?: string;
}

/** Billing classes that answers state in place of tokens. */
export interface StatedUnits {
  /** The price of a model needs one of them under a budget of money. */
  readonly anyOf: readonly BillingClass[];
  /** Fields of the requests with such answers; left out if every request can have one. */
  readonly fields?: readonly string[];
}

/** An operation of a provider's interface. */
export interface Operation {
  /** Name in logs, metrics and traces. */
  readonly name: string;
  /** Group with which an operator allows it; `undefined` for paths that only `all` allows. */
  readonly group: OperationGroup | undefined;
  /** Method, in upper case; `*` for all methods without a row. A row for `GET` includes `HEAD`. */
  readonly method: "GET" | "POST" | "DELETE" | "*";
  /**
   * Path below the base of its shape (`/v1`), and below the provider's base URL: `:id` is one
   * segment, `:model+` is a model's id, slashes included, and `:rest+` is the rest of the path. A
   * colon after a parameter is a colon, such as in `:model:generateContent`.
   */
  readonly path: string;
  /** Dialect of its answers; `OPAQUE` if several interfaces share the path, or if it is unknown. */
  readonly dialect: Dialect;
  /**
   * Kind of body: `chat_completion` is validated; for `json` the form is checked and the model is
   * read, and multipart bodies state it in a field; `untyped_json` is JSON with any content type, as
   * AWS's clients send it; `any` is read, and checked if its content type is JSON; `none` is not
   * read.
   */
  readonly body: "chat_completion" | "json" | "untyped_json" | "multipart" | "any" | "none";
  /**
   * Location of the names of models: the body, which must or can have one, the path, or the answer,
   * which lists them. `none` if there is none, so that keys with restricted models cannot use it.
   */
  readonly model: "body" | "optional" | "path" | "answer" | "none";
  /**
   * Cost of a call: `tokens` and other amounts, as its answer states them; `unstated` if it can cost
   * something that no answer states, such as the work of fine-tuning; `later` if a later answer
   * states it, such as the results of a batch; `earlier` if it costs nothing, but its answer can
   * state the cost of an earlier call; `none` for all others.
   */
  readonly cost: "tokens" | "unstated" | "later" | "earlier" | "none";
  /**
   * Streams that it makes: `always`, `never`, or `default` if `stream` in the body can only turn
   * them off. Left out if `stream` in the body turns them on.
   */
  readonly stream?: "always" | "never" | "default";
  /** Amounts that its answers can state in place of tokens; left out if they state tokens. */
  readonly units?: StatedUnits;
  /** True if its answers can state any amounts, also of another model than the named one. */
  readonly statesAny?: true | undefined;
  /** Locations of facts in its body; left out for the fields of OpenAI and Anthropic. */
  readonly facts?: FactLocations;
  /** Usage that its streams state only on request; left out if they state it always, or never. */
  readonly usageOptIn?: UsageOptIn;
  /** True if the gateway itself answers it. Every key that is allowed to make a call can use it. */
  readonly isOfGateway?: true;
  /** Kind of a model's work in traces and metrics; `undefined` for operations that use no model. */
  readonly genAi?: GenAiOperation;
}

/** True if a call costs something. */
export const hasCost = ({ cost }: Pick<Operation, "cost">): boolean =>
  cost === "tokens" || hasUnstatedCost({ cost });

/** True if a call costs something that its own answer does not state. */
export const hasUnstatedCost = ({ cost }: Pick<Operation, "cost">): boolean =>
  cost === "unstated" || cost === "later";

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
/** Requests in which no field bounds the tokens of an answer. */
const UNBOUNDED: FactLocations = { maxOutput: [] };
const images = {
  group: "images",
  dialect: OPENAI_MEDIA,
  cost: "tokens",
  units: { anyOf: ["images", "outputImage"] },
  facts: { ...UNBOUNDED, answers: ["n"] },
  genAi: "generate_content",
} as const;
const audio = {
  group: "audio",
  dialect: OPENAI_MEDIA,
  cost: "tokens",
  genAi: "generate_content",
} as const;
/** Recordings are billed by their length, or by tokens of sound. */
const RECORDING: StatedUnits = { anyOf: ["audioMs", "inputAudio"] };
const messages = { group: "messages", dialect: ANTHROPIC } as const;
const batches = { group: "batches", dialect: BATCHES } as const;
const messageBatches = { group: "batches", dialect: MESSAGE_BATCHES } as const;
const models = { group: "models", dialect: OPAQUE, body: "none", cost: "none" } as const;

/** Access to the answer of a durable exchange. */
const recorded = { ...STORED, group: undefined, dialect: OPAQUE, isOfGateway: true } as const;

/** The operations of OpenAI and Anthropic that are in the table one by one. */
export const NAMED: readonly Operation[] = [
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

  {
    ...audio,
    ...CALL,
    facts: UNBOUNDED,
    name: "audio.speech",
    method: "POST",
    path: "/audio/speech",
  },
  {
    ...audio,
    ...UPLOAD,
    units: RECORDING,
    name: "audio.transcriptions",
    method: "POST",
    path: "/audio/transcriptions",
  },
  {
    ...audio,
    ...UPLOAD,
    units: RECORDING,
    name: "audio.translations",
    method: "POST",
    path: "/audio/translations",
  },

  {
    ...CALL,
    group: undefined,
    dialect: OPAQUE,
    units: { anyOf: ["pages"] },
    name: "ocr", // Mistral
    method: "POST",
    path: "/ocr",
  },

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
    cost: "later",
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
    cost: "earlier",
    dialect: MESSAGE_RESULTS,
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

  { ...batches, ...WORK, cost: "later", name: "batches", method: "POST", path: "/batches" },
  {
    ...batches,
    ...STORED,
    cost: "earlier",
    name: "batches.get",
    method: "GET",
    path: "/batches/:id",
  },
  {
    ...STORED,
    cost: "earlier",
    group: "files",
    dialect: RESULTS_FILE,
    name: "files.content",
    method: "GET",
    path: "/files/:id/content",
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
const FAMILIES: readonly (readonly [
  OperationGroup,
  path: string,
  cost: Operation["cost"],
  units?: StatedUnits,
])[] = [
  ["files", "/files", "unstated"],
  ["uploads", "/uploads", "unstated"],
  ["batches", "/batches", "unstated"],
  ["fine_tuning", "/fine_tuning", "unstated"],
  ["vector_stores", "/vector_stores", "unstated"],
  ["conversations", "/conversations", "none"],
  ["containers", "/containers", "unstated"],
  ["evals", "/evals", "unstated"],
  ["videos", "/videos", "tokens", { anyOf: ["videoMs", "outputVideo"] }],
  ["assistants", "/assistants", "unstated"],
  ["assistants", "/threads", "unstated"],
  ["realtime", "/realtime", "unstated"],
  ["skills", "/skills", "unstated"],
  ["chatkit", "/chatkit", "unstated"],
  ["admin", "/organization", "none"],
  ["admin", "/projects", "none"], // roles of an organization's projects
];

function toFamily([group, path, cost, units]: (typeof FAMILIES)[number]): Operation[] {
  const name = path.slice(1);
  const row = {
    ...WORK,
    cost,
    name,
    group,
    method: "*",
    dialect: OPAQUE,
    ...(units && { units }),
  } as const;
  return [{ ...row, path }, { ...row, path: `${path}/:rest+` }];
}

/**
 * Operation for all paths that are not in the table. What its answer states is charged, and
 * otherwise an estimate.
 */
export const OTHER_OPERATION: Operation = {
  ...STORED_WITH_BODY,
  cost: "tokens",
  name: "other",
  group: undefined,
  method: "*",
  path: "/:rest+",
  dialect: OPAQUE,
  statesAny: true,
};

/**
 * The operations below `/v1`. A path without parameters has precedence over paths with parameters. Of these,
 * the first match is used.
 */
export const OPERATIONS: readonly Operation[] = [
  ...NAMED,
  ...FAMILIES.flatMap(toFamily),
  OTHER_OPERATION,
];
