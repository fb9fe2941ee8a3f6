/**
 * Schemas of callers' bodies, and of the gateway's errors by dialect, for the API description.
 *
 * @module
 */
import * as v from "valibot";
import { ANTHROPIC } from "../../dialects/anthropic.ts";
import { BATCHES, MESSAGE_BATCHES, MESSAGE_RESULTS, RESULTS_FILE } from "../../dialects/batches.ts";
import { BEDROCK } from "../../dialects/bedrock.ts";
import { COHERE } from "../../dialects/cohere.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { GEMINI } from "../../dialects/gemini.ts";
import { OLLAMA } from "../../dialects/ollama.ts";
import { OPAQUE } from "../../dialects/opaque.ts";
import { OPENAI_CHAT } from "../../dialects/openai_chat.ts";
import { OPENAI_MEDIA } from "../../dialects/openai_media.ts";
import { OPENAI_RESPONSES } from "../../dialects/openai_responses.ts";
import { anyObject, count, flag, list, type Named, optional, orNull, text } from "./schema.ts";

/** Errors in the form of OpenAI, which the admin API has too. */
export const ERROR: Named = {
  name: "Error",
  schema: v.object({
    error: v.object({ message: text(), type: text(), param: orNull(text()), code: text() }),
  }),
};

/** Additional fields of the gateway. */
const own = { code: text("Code of the gateway's errors"), param: orNull(text()) };

/** Schemas of errors in other forms than {@link ERROR}. */
const OWN_FORMS: ReadonlyMap<Dialect, Named> = new Map([
  [ANTHROPIC, {
    name: "AnthropicError",
    schema: v.object({
      type: text(),
      error: v.object({ type: text(), message: text(), ...own }),
    }),
  }],
  [GEMINI, {
    name: "GeminiError",
    schema: v.object({
      error: v.object({
        code: count("The status"),
        message: text(),
        status: text(),
        details: list(
          anyObject("The first one has the code of the gateway's errors in `metadata.code`"),
        ),
      }),
    }),
  }],
  [COHERE, { name: "CohereError", schema: v.object({ message: text(), ...own }) }],
  [OLLAMA, { name: "OllamaError", schema: v.object({ error: text(), ...own }) }],
  [BEDROCK, {
    name: "BedrockError",
    schema: v.object({
      __type: text(),
      message: text(),
      gatewayCode: own.code,
      param: own.param,
    }),
  }],
]);

const CHAT_COMPLETION_REQUEST: Named = {
  name: "ChatCompletionRequest",
  schema: v.pipe(
    v.object({
      model: text(),
      messages: list(v.looseObject({})),
      stream: optional(flag()),
    }),
    v.description("As callers send it; with stream: true the answer is a text/event-stream"),
  ),
};

/** All of these schemas. */
export const CALLER_SCHEMAS: readonly Named[] = [
  CHAT_COMPLETION_REQUEST,
  ERROR,
  ...OWN_FORMS.values(),
];

/** Dialects whose errors are described by {@link ERROR}. */
const OPENAI_FORMS: ReadonlySet<Dialect> = new Set([
  OPENAI_CHAT,
  OPENAI_MEDIA,
  OPENAI_RESPONSES,
  BATCHES,
  RESULTS_FILE,
  // Their errors have Anthropic's form, so this description is not exact.
  MESSAGE_BATCHES,
  MESSAGE_RESULTS,
]);

/**
 * Returns the schema of a dialect's errors; `undefined` if the request decides the dialect.
 *
 * @throws {Error} For a dialect that is in neither list
 */
export function errorOf(dialect: Dialect): Named | undefined {
  if (dialect === OPAQUE) return undefined;
  const schema = OPENAI_FORMS.has(dialect) ? ERROR : OWN_FORMS.get(dialect);
  if (schema === undefined) throw new Error("Cannot describe the errors of an unlisted dialect");
  return schema;
}
