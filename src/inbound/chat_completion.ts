/**
 * What the gateway checks in a chat completion request. Every other field, value and range is the provider's
 * business and passes untouched: the schema looks at a view, the bytes go upstream.
 *
 * @module
 */
import * as v from "valibot";
import { GatewayError } from "../errors.ts";

/** What the later steps need to know of the request. */
export interface ChatCompletionRequest {
  /** As the caller named it. */
  readonly model: string;
  /** Whether the answer is to be a stream of events. */
  readonly isStream: boolean;
  /** How many choices were asked for (`n`), at least 1. */
  readonly choices: number;
  /** Who the caller says it acts for: `user`, or what took its place. */
  readonly users: readonly string[];
}

/** Who decides on the order of messages: the gateway (`ordered`) or the provider (`any`). */
export type MessageOrder = "ordered" | "any";

/** Characters of a model's name at most. */
export const MAX_MODEL_LENGTH = 256;
/** What a model's name does not hold. */
// deno-lint-ignore no-control-regex -- control characters are what it looks for
export const CONTROL_CHARACTER: RegExp = /[\u0000-\u001f\u007f-\u009f]/;
/** One of these says what an assistant message without content does. */
const ASSISTANT_SUBSTITUTES = ["tool_calls", "function_call", "refusal", "audio"] as const;

const text = "expected a string, or a non-empty array of objects with a string type";
const part = v.object({ type: v.string("expected a string") }, text);

// Plain objects, not loose ones: the view keeps only what is looked at, whatever else a body of a million keys holds.
// What stands in for content is not among it: it is asked for where content is missing, and costs the others nothing.
const message = v.object({
  role: v.pipe(v.string("expected a string"), v.nonEmpty("expected a non-empty string")),
  content: v.nullish(v.union([v.string(text), v.pipe(v.array(part, text), v.nonEmpty(text))], text)),
}, "expected an object");
type Message = v.InferOutput<typeof message>;

const accepted: v.GenericSchema<unknown, Message> = v.custom<Message>(() => true);
/** Nearly every message is a role and a text: seen at one look, at a fifth of what the schema costs. */
const isPlain = (entry: Partial<Message> | null): boolean =>
  typeof entry?.content === "string" && typeof entry.role === "string" && entry.role !== "";
const messages = v.array(v.lazy((entry) => isPlain(entry as Message) ? accepted : message), "expected an array");

const request = v.object({
  model: v.pipe(
    v.string("expected a string"),
    v.nonEmpty("expected a non-empty string"),
    v.maxLength(MAX_MODEL_LENGTH, `expected at most ${MAX_MODEL_LENGTH} characters`),
    v.check((model) => !CONTROL_CHARACTER.test(model), "expected no control characters"),
  ),
  messages: v.pipe(messages, v.nonEmpty("expected at least one message")),
  n: v.optional(v.unknown()),
  user: v.optional(v.unknown()),
  safety_identifier: v.optional(v.unknown()),
  stream: v.nullish(v.boolean("expected true, false or null")),
}, "expected an object");

function toParam(path: readonly { key: unknown }[] | undefined): string {
  return (path ?? []).map(({ key }) => typeof key === "number" ? `[${key}]` : `.${String(key)}`).join("").slice(1);
}

function refuse(param: string, detail: string): never {
  throw new GatewayError("invalid_body", { param, detail });
}

/** Whether a message may come without content: the schema alone can't say, it depends on the role. */
function mayLackContent({ role }: Message, sent: Readonly<Record<string, unknown>> = {}): boolean {
  return role === "function" ||
    (role === "assistant" && ASSISTANT_SUBSTITUTES.some((name) => (sent[name] ?? null) !== null));
}

function assertContent(messages: readonly Message[], json: object): void {
  const sent = (json as { messages: readonly Readonly<Record<string, unknown>>[] }).messages; // as the schema found it
  const index = messages.findIndex((entry, at) => (entry.content ?? null) === null && !mayLackContent(entry, sent[at]));
  if (index !== -1) refuse(`messages[${index}].content`, text);
}

/** System messages come first, then a user speaks; after that any role may. */
function assertOrder(messages: readonly Message[]): void {
  const isSystem = ({ role }: Message) => role === "system" || role === "developer";
  const first = messages.findIndex((entry) => !isSystem(entry));
  if (messages[first]?.role !== "user") {
    const index = first === -1 ? messages.length - 1 : first;
    refuse(`messages[${index}].role`, "expected a user message, after the system message if there is one");
  }
  const late = messages.findIndex((entry, index) => index > first && isSystem(entry));
  if (late !== -1) refuse(`messages[${late}].role`, "expected system messages before all others");
}

/**
 * Checks a chat completion request.
 *
 * @param json The parsed body
 * @param order Whether the order of messages is checked
 * @returns What the later steps need
 * @throws {GatewayError} `invalid_json` for what is no object, `invalid_body` with the path for everything else
 */
export function readChatCompletion(json: unknown, order: MessageOrder): ChatCompletionRequest {
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw new GatewayError("invalid_json");
  const result = v.safeParse(request, json, { abortEarly: true });
  if (!result.success) {
    const [issue] = result.issues;
    const isMissing = issue.input === undefined && issue.received === "undefined";
    refuse(toParam(issue.path), isMissing ? "expected the key to be there" : issue.message);
  }
  const { model, messages, stream, n, user, safety_identifier: successor } = result.output;
  assertContent(messages, json);
  if (order === "ordered") assertOrder(messages);
  const users = [user, successor].filter((name) => typeof name === "string");
  return { model, isStream: stream === true, choices: typeof n === "number" && n > 1 ? n : 1, users };
}
