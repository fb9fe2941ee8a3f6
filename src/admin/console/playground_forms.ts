/**
 * The forms of the playground's calls at each shape of addresses: the body as the provider's
 * interface expects it, and the fields that are read from an answer or from one event of it.
 *
 * @module
 */
import type { ShapeName } from "../../config/shape.ts";

/** Contents of a call. */
interface Question {
  readonly model: string;
  readonly message: string;
  readonly isStream: boolean;
}

/** Facts of an answer, or of one event of it. */
export interface Reading {
  /** Text of the model. */
  readonly text: string;
  /** Output tokens. */
  readonly tokens: number | undefined;
  /** Message of an error. */
  readonly problem: string | undefined;
  /** True for the event that ends a stream. */
  readonly isEnd: boolean;
}

/** The form of a shape. */
interface CallForm {
  toBody(question: Question): unknown;
  read(event: unknown): Reading;
}

/** Returns a field of any value, through objects and lists; `undefined` if one is missing. */
function find(value: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>((inner, name) => Object(inner)[name], value);
}

const textOf = (value: unknown): string => typeof value === "string" ? value : "";
const countOf = (value: unknown): number | undefined =>
  typeof value === "number" ? value : undefined;
/** Joins the texts of parts. */
const textOfParts = (parts: unknown): string =>
  Array.isArray(parts) ? parts.map((part) => textOf(find(part, "text"))).join("") : "";

/** Returns the message of an error; `undefined` if there is none. */
function problemOf(error: unknown): string | undefined {
  if (error === undefined) return undefined;
  return textOf(error) || textOf(find(error, "message")) || "The stream broke off";
}

const messagesOf = (message: string): unknown => [{ role: "user", content: message }];

const CHAT: CallForm = {
  toBody: ({ model, message, isStream }) => ({
    model,
    messages: messagesOf(message),
    ...(isStream && { stream: true, stream_options: { include_usage: true } }),
  }),
  read: (event) => ({
    text: textOf(find(event, "choices", 0, "delta", "content")) ||
      textOf(find(event, "choices", 0, "message", "content")),
    tokens: countOf(find(event, "usage", "completion_tokens")),
    problem: problemOf(find(event, "error")),
    isEnd: false, // [DONE] ends it
  }),
};

const GEMINI: CallForm = {
  toBody: ({ message }) => ({ contents: [{ role: "user", parts: [{ text: message }] }] }),
  read(event) {
    const reason = find(event, "candidates", 0, "finishReason") ??
      find(event, "promptFeedback", "blockReason");
    return {
      text: textOfParts(find(event, "candidates", 0, "content", "parts")),
      tokens: countOf(find(event, "usageMetadata", "candidatesTokenCount")),
      problem: problemOf(find(event, "error")),
      isEnd: reason !== undefined,
    };
  },
};

const COHERE: CallForm = {
  toBody: ({ model, message, isStream }) => ({
    model,
    messages: messagesOf(message),
    ...(isStream && { stream: true }),
  }),
  read: (event) => ({
    text: textOf(find(event, "delta", "message", "content", "text")) ||
      textOfParts(find(event, "message", "content")),
    tokens: countOf(find(event, "delta", "usage", "tokens", "output_tokens")) ??
      countOf(find(event, "usage", "tokens", "output_tokens")),
    problem: undefined, // an error breaks the connection
    isEnd: find(event, "type") === "message-end",
  }),
};

const OLLAMA: CallForm = {
  toBody: ({ model, message, isStream }) => ({
    model,
    messages: messagesOf(message),
    stream: isStream,
  }),
  read: (event) => ({
    text: textOf(find(event, "message", "content")),
    tokens: countOf(find(event, "eval_count")),
    problem: problemOf(find(event, "error")),
    isEnd: find(event, "done") === true,
  }),
};

const BEDROCK: CallForm = {
  toBody: ({ message }) => ({ messages: [{ role: "user", content: [{ text: message }] }] }),
  read: (event) => ({
    text: textOfParts(find(event, "output", "message", "content")),
    tokens: countOf(find(event, "usage", "outputTokens")),
    problem: undefined,
    isEnd: false,
  }),
};

/** The forms by shape. */
export const CALL_FORMS: Readonly<Record<ShapeName, CallForm>> = {
  v1: CHAT,
  azure: CHAT,
  gemini: GEMINI,
  cohere: COHERE,
  ollama: OLLAMA,
  bedrock: BEDROCK,
};
