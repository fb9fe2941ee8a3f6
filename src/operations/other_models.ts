/**
 * Models that a body names in addition to `model`: lists of fallbacks, tools with a model, and
 * fields that choose a model at providers such as OpenRouter, Vercel, Helicone and LiteLLM.
 *
 * @module
 */

import { GatewayError } from "../errors/gateway_error.ts";
import { lenientName } from "../http/field_name.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Models that a body names in addition to `model`. */
export interface OtherModels {
  readonly names: readonly string[];
  /**
   * Field with which the provider chooses a model that is not named; `undefined` if there is none.
   */
  readonly unnamedIn: string | undefined;
  /** Field with objects that name models, such as `tools`; `undefined` if there is none. */
  readonly namedWithin: string | undefined;
}

/** The most other models of one body. Each is looked up in lists and prices. */
const MAX_OTHER_MODELS = 32;

/**
 * Adds the models of a field to `names`. Returns false if the field can select a model that it does
 * not name.
 */
type Reader = (value: unknown, names: string[], body: Fields) => boolean;

const fieldsOf = (value: unknown): Fields =>
  (typeof value === "object" && value !== null ? value : {}) as Fields;

function addName(names: string[], name: string): void {
  if (names.length <= MAX_OTHER_MODELS && !names.includes(name)) names.push(name);
}

function assertFew(names: readonly string[], param: string): void {
  if (names.length <= MAX_OTHER_MODELS) return;
  const detail = `expected at most ${MAX_OTHER_MODELS} models in addition to the first`;
  throw new GatewayError("invalid_body", { param, detail });
}

function readName(value: unknown, names: string[]): boolean {
  if (typeof value !== "string") return false;
  addName(names, value);
  return true;
}

/** Reads a list of names, or of objects with a `model`. */
function readList(value: unknown, names: string[]): boolean {
  if (!Array.isArray(value)) return false;
  let isRead = true;
  for (const entry of value) {
    isRead = readName(typeof entry === "string" ? entry : fieldsOf(entry).model, names) && isRead;
  }
  return isRead;
}

/**
 * OpenRouter's `"route": "fallback"` means the models of its list, and without a list any model
 * that OpenRouter chooses.
 */
function readRoute(value: unknown, _names: string[], { models }: Fields): boolean {
  return value === "fallback" && Array.isArray(models) && models.length > 0;
}

/** Vercel's options: `gateway.models` is a list of fallbacks. */
function readProviderOptions(value: unknown, names: string[]): boolean {
  const { models } = fieldsOf(fieldsOf(value).gateway);
  return (models ?? null) === null || readList(models, names);
}

/**
 * Reads the models of a tool that the provider runs, such as OpenAI's for images or Anthropic's
 * advisor.
 */
function readTool(tool: Fields, names: string[]): boolean {
  const { model, models } = tool;
  const isRead = (model ?? null) === null || readName(model, names);
  return ((models ?? null) === null || readList(models, names)) && isRead;
}

function readTools(value: unknown, names: string[]): boolean {
  if (!Array.isArray(value)) return false;
  let isRead = true;
  for (const entry of value) {
    const tool = fieldsOf(entry);
    isRead = readTool(tool, names) && isRead;
    // A tool with tools is a group.
    if (tool.tools !== undefined) isRead = readTools(tool.tools, names) && isRead;
    const parameters = fieldsOf(tool.parameters);
    // The parameters of a function are a schema of the caller, in which `type` has no text next to
    // it.
    const isSchema = tool.type === "function" && typeof parameters.model !== "string";
    if (!isSchema) isRead = readTool(parameters, names) && isRead;
  }
  return isRead;
}

/**
 * Reads Azure's sources of data: some search with vectors of another deployment, in fields such as
 * `embedding_dependency` (https://learn.microsoft.com/azure/ai-foundry/openai/references/on-your-data).
 */
function readDataSources(value: unknown): boolean {
  if (!Array.isArray(value)) return false;
  const fields = value.flatMap((source) => Object.keys(fieldsOf(fieldsOf(source).parameters)));
  return !fields.some((name) => /^embedding/i.test(name));
}

/** Reads Google's requests for several embeddings, each of which names a model. */
function readRequests(value: unknown, names: string[]): boolean {
  if (!Array.isArray(value)) return true;
  let isRead = true;
  for (const request of value) {
    const { model } = fieldsOf(request);
    if ((model ?? null) === null) continue;
    const name = typeof model === "string" ? model.replace(/^models\//, "") : model;
    isRead = readName(name, names) && isRead;
  }
  return isRead;
}

function holdsObjects(value: unknown): boolean {
  return Array.isArray(value)
    ? value.some((each) => typeof each === "object")
    : typeof value === "object";
}

const readNothing = (): boolean => false;

/** Readers by the name of the field, in lower case. */
const READERS: ReadonlyMap<string, Reader> = new Map<string, Reader>([
  ["models", readList], // https://openrouter.ai/docs/features/model-routing
  // https://docs.litellm.ai/docs/proxy/reliability,
  // https://assemblyai.com/docs/llm-gateway/fallback
  ["fallbacks", readList],
  ["fallback_models", readList],
  ["context_window_fallbacks", readList],
  ["content_policy_fallbacks", readList],
  ["route", readRoute],
  // A stored request with a model, https://openrouter.ai/docs/features/presets.
  ["preset", readNothing],
  ["plugins", readNothing], // some call further models, https://openrouter.ai/docs/features/plugins
  ["extra_body", readNothing], // more fields, possibly some of these
  // https://vercel.com/docs/ai-gateway/openresponses/provider-options
  ["provideroptions", readProviderOptions],
  ["tools", readTools],
  // Other names for the same fields, at Groq, LiteLLM and others
  ["compound_custom", readNothing],
  ["user_config", readNothing],
  ["model_list", readNothing],
  ["provider_options", readNothing],
  ["data_sources", readDataSources],
  ["datasources", readDataSources],
  ["requests", readRequests], // https://ai.google.dev/api/embeddings#method:-models.batchembedcontents
  ["draft_model", readName],
  ["deployment_id", readName], // LiteLLM calls it instead of the model
  ["safety_model", readName],
]);

/** The fields that can name further models. */
export const OTHER_MODEL_FIELDS: readonly string[] = [...READERS.keys()];
/** Separators between several models in one text, at Helicone and at gateways with fallbacks. */
const MODEL_SEPARATOR = /,|\||->/;
/** Parameters of a query with which a gateway at the provider could choose a model (LiteLLM). */
const MODEL_PARAMETERS: ReadonlySet<string> = new Set([
  "model",
  "models",
  "deployment",
  "deployment_id",
  "fallbacks",
]);

/**
 * Finds a parameter of a query that can choose a model.
 *
 * @param query With its question mark; empty if there is none
 * @returns Its plain name; `undefined` if there is none
 */
export function findModelParameter(query: string): string | undefined {
  if (query === "") return undefined;
  // Some servers also separate parameters with semicolons.
  const names = Array.from(new URLSearchParams(query.replaceAll(";", "&")).keys());
  return names.map(lenientName).find((name) => MODEL_PARAMETERS.has(name));
}
const PLAIN_KEY = /^[a-z_]*$/;

/** Finds the reader of a field. Some parsers ignore the case of keys, see `json_guard.ts`. */
const readerOf = (key: string): Reader | undefined =>
  READERS.get(key) ??
    (PLAIN_KEY.test(key) ? undefined : READERS.get(key.toUpperCase().toLowerCase()));

/**
 * Reads the models that a body names in addition to `model`.
 *
 * @returns The models; `undefined` if it names none
 * @throws {GatewayError} `invalid_body` for too many of them
 */
export function readOtherModels(body: Fields): OtherModels | undefined {
  const names: string[] = [];
  let unnamedIn: string | undefined;
  let namedWithin: string | undefined;
  for (const key in body) {
    const read = readerOf(key);
    const value = body[key];
    if (read === undefined || value === null) continue;
    if (!read(value, names, body)) unnamedIn ??= key;
    if (names.length > 0 && holdsObjects(value)) namedWithin ??= key;
    assertFew(names, key);
  }
  if (typeof body.model === "string" && MODEL_SEPARATOR.test(body.model)) {
    // In operations without a model, this text can be as long as the body.
    const parts = body.model.split(MODEL_SEPARATOR, MAX_OTHER_MODELS + 1);
    assertFew(parts, "model");
    for (const name of parts) addName(names, name.trim());
    assertFew(names, "model");
  }
  return names.length === 0 && unnamedIn === undefined
    ? undefined
    : { names, unnamedIn, namedWithin };
}
