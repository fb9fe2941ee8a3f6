/**
 * Facts of a request whose body is not validated: only these few fields are read, and the provider
 * checks the rest.
 *
 * @module
 */
import {
  type ChatCompletionRequest,
  isModelName,
  readAnswers,
  readCount,
  readMaxOutput,
  readModelName,
  readStream,
  toFields,
  usersOf,
} from "./chat_completion.ts";
import { OTHER_MODEL_FIELDS, readOtherModels } from "./other_models.ts";
import { countInputBytes, isInputWhole } from "./request_size.ts";
import { readRequestedTariff, STANDARD_TARIFF } from "./requested_tariff.ts";
import type { Operation } from "./table.ts";

/** The facts of a request that later steps need. */
export interface RequestFacts extends Omit<ChatCompletionRequest, "model"> {
  /** Model as the caller named it; `undefined` if none is named. */
  readonly model: string | undefined;
}

/** Fields that are read, in JSON and in multipart bodies. */
export const FACT_FIELDS: readonly string[] = [
  ...["model", "stream", "stream_format", "n", "user", "safety_identifier", "quality", "size"],
  ...OTHER_MODEL_FIELDS,
];

/**
 * Returns the model. The model of an operation without one is read for its price, if it is a name,
 * and one in addition to the model in the path for the policy of the key.
 *
 * @throws {GatewayError} `invalid_body` if it is needed and missing, or not a name
 */
function readModel(model: unknown, place: Operation["model"]): string | undefined {
  if (place === "none" || place === "path") return isModelName(model) ? model : undefined;
  const isAbsent = (model ?? null) === null;
  const isRead = place === "body" || (place === "optional" && !isAbsent);
  return isRead ? readModelName(model) : undefined;
}

/** Converts a multipart field, which is a text, to its value. */
function toValue(field: unknown): unknown {
  if (field === "true") return true;
  return field === "false" ? false : field;
}

/**
 * Counts the prompts of a field. A text, or a list of token numbers, is one prompt. A list of these
 * is several.
 */
function countPrompts(prompt: unknown): number {
  const isOne = !Array.isArray(prompt) || prompt.every((each) => typeof each === "number");
  return isOne ? 1 : prompt.length;
}

/** The part of an operation that decides how its bodies are read. */
type OperationForm = Pick<Operation, "model" | "group" | "stream" | "facts" | "units">;
type Fields = Readonly<Record<string, unknown>>;

/** Reads the values at several locations, see `FactLocations`. */
function valuesAt(fields: Fields, locations: readonly string[]): readonly unknown[] {
  const inside = (value: unknown, name: string): unknown =>
    typeof value === "object" && value !== null ? (value as Fields)[name] : undefined;
  return locations.map((location) => location.split(".").reduce(inside, fields as unknown));
}

function answersIn(fields: Fields, { facts }: OperationForm): readonly unknown[] {
  return facts === undefined ? [fields.n] : valuesAt(fields, facts.answers ?? []);
}

function maxOutputsOf(fields: Fields, { facts, group }: OperationForm): readonly unknown[] {
  if (facts !== undefined) return valuesAt(fields, facts.maxOutput);
  return [group === "responses" ? fields.max_output_tokens : fields.max_tokens];
}

function inputsIn(fields: Fields, { facts }: OperationForm): readonly unknown[] {
  return valuesAt(fields, facts?.inputs ?? ["input"]);
}

function readsStream(fields: Fields, { stream }: OperationForm): boolean | undefined {
  if (stream === "always" || stream === "never") return stream === "always";
  const isAbsent = (fields.stream ?? null) === null;
  if (stream === "default" && isAbsent) return true;
  // Speech requests a stream with another field.
  return fields.stream_format === "sse" || readStream(fields.stream);
}

/**
 * Reads the facts of a JSON body.
 *
 * @throws {GatewayError} `invalid_json` for a value that is not an object, `invalid_body` for a
 * model that is missing or not a name
 */
export function readJsonFacts(
  json: unknown,
  operation: OperationForm,
  byteLength = 0,
): RequestFacts {
  const { model, group } = operation;
  const fields = toFields(json);
  const stated = answersIn(fields, operation);
  const answers = Math.max(1, ...stated.map(readAnswers));
  const prompts = group === "completions" ? countPrompts(fields.prompt) : 1;
  return {
    model: readModel(fields.model, model),
    otherModels: readOtherModels(fields),
    isStream: readsStream(fields, operation),
    answers: answers * prompts,
    // https://platform.openai.com/docs/api-reference/completions: best_of are made for each prompt,
    // n are returned
    generated: Math.max(...stated.map(readCount), readCount(fields.best_of)) * prompts,
    users: usersOf(fields),
    prompts: group === "embeddings"
      ? Math.max(...inputsIn(fields, operation).map(countPrompts))
      : prompts,
    maxOutput: readMaxOutput(...maxOutputsOf(fields, operation)),
    inputBytes: countInputBytes(fields, byteLength),
    isInputWhole: isInputWhole(fields),
    // A lenient provider can read `1` or `"true"` as true.
    isBackground: group === "responses" && Boolean(fields.background),
    hasStreamOptions: Object.hasOwn(fields, "stream_options"),
    tariff: readRequestedTariff(fields, operation, byteLength),
  };
}

/** Bytes of a multipart body. */
interface FormBytes {
  /** Of its fields of text. */
  readonly text: number;
  readonly all: number;
}

/**
 * Reads the facts of a multipart body.
 *
 * @param fields Its fields of {@link FACT_FIELDS}, as texts
 * @throws {GatewayError} `invalid_body` for a model that is missing or not a name
 */
export function readFieldFacts(
  fields: Readonly<Record<string, string | undefined>>,
  operation: OperationForm,
  { text, all }: FormBytes = { text: 0, all: 0 },
): RequestFacts {
  const view = { ...fields, stream: toValue(fields.stream), n: Number(fields.n ?? 1) };
  return { ...readJsonFacts(view, operation, all), inputBytes: text, isInputWhole: false };
}

/** The facts of a request whose body is not read. */
export const NO_FACTS: RequestFacts = {
  model: undefined,
  otherModels: undefined,
  isStream: false,
  answers: 1,
  generated: 1,
  users: [],
  maxOutput: undefined,
  prompts: 1,
  inputBytes: 0,
  isInputWhole: true,
  isBackground: false,
  hasStreamOptions: false,
  tariff: STANDARD_TARIFF,
};
