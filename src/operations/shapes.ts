/**
 * The shapes of addresses, each with the operations of its clients. Paths, methods and the forms of
 * errors are those of the interface, because its client libraries build them.
 *
 * @module
 */
import type { ShapeName } from "../config/shape.ts";
import { ANTHROPIC } from "../dialects/anthropic.ts";
import { BEDROCK } from "../dialects/bedrock.ts";
import { COHERE } from "../dialects/cohere.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { GEMINI } from "../dialects/gemini.ts";
import { OLLAMA } from "../dialects/ollama.ts";
import { OPAQUE } from "../dialects/opaque.ts";
import { OPENAI_CHAT } from "../dialects/openai_chat.ts";
import { NAMED, type Operation, OPERATIONS, OTHER_OPERATION } from "./table.ts";

/** A shape of addresses. */
export interface Shape {
  /** Path before all of its paths, which the provider's base URL replaces. */
  readonly base: "/v1" | "";
  /** A path without parameters has precedence. Of the others, the first match is used. */
  readonly operations: readonly Operation[];
  /** Dialect of errors before the operation is known; `OPAQUE` if the request decides. */
  readonly dialect: Dialect;
}

const CALL = { method: "POST", body: "json", cost: "tokens" } as const;
const LIST = {
  method: "GET",
  body: "none",
  group: "models",
  model: "answer",
  cost: "none",
} as const;
const ONE_MODEL = { ...LIST, model: "path" } as const;

/** Versions at Google, after `/v1`. */
const VERSIONS = "(beta1|beta|alpha)?";
const VERSION = `/v1${VERSIONS}`;
/** All versions at Google. */
export const GEMINI_VERSIONS: readonly string[] = ["v1beta", "v1", "v1beta1", "v1alpha"];
/**
 * Models of the Gemini API, then those of Vertex AI
 * (https://cloud.google.com/vertex-ai/generative-ai/docs/reference/rest).
 */
const GEMINI_MODELS = [
  `${VERSION}/models/:model`,
  `${VERSION}/projects/:project/locations/:location/publishers/:publisher/models/:model`,
];
/** Google reads both spellings of a field. */
const GEMINI_FACTS = {
  maxOutput: ["generationConfig.maxOutputTokens", "generation_config.max_output_tokens"],
  answers: ["generationConfig.candidateCount", "generation_config.candidate_count"],
} as const;
const gemini = { ...CALL, dialect: GEMINI, model: "path" } as const;
const generation = {
  ...gemini,
  group: "chat",
  genAi: "generate_content",
  facts: GEMINI_FACTS,
} as const;
const embedding = {
  ...gemini,
  group: "embeddings",
  genAi: "embeddings",
  stream: "never",
} as const;

/** Work that the provider does later, and whose cost no answer states. */
const later = { ...gemini, cost: "unstated", stream: "never" } as const;

const ANTHROPIC_MODELS =
  `${VERSION}/projects/:project/locations/:location/publishers/anthropic/models`;
const vertexMessages = {
  ...CALL,
  group: "messages",
  dialect: ANTHROPIC,
  model: "path",
  genAi: "chat",
} as const;

/** Anthropic's models at Vertex AI (https://docs.claude.com/en/api/claude-on-vertex-ai). */
const VERTEX_OPERATIONS: readonly Operation[] = [
  {
    ...vertexMessages,
    name: "vertex.messages.count_tokens",
    path: `${ANTHROPIC_MODELS}/count-tokens:rawPredict`,
    model: "body",
    cost: "none",
  },
  { ...vertexMessages, name: "vertex.messages", path: `${ANTHROPIC_MODELS}/:model:rawPredict` },
  {
    ...vertexMessages,
    name: "vertex.messages.stream",
    path: `${ANTHROPIC_MODELS}/:model:streamRawPredict`,
    stream: "always",
  },
];

/** https://ai.google.dev/api/generate-content */
const GEMINI_OPERATIONS: readonly Operation[] = [
  ...GEMINI_MODELS.flatMap((path): Operation[] => [
    {
      ...generation,
      name: "gemini.generate_content",
      path: `${path}:generateContent`,
      stream: "never",
    },
    {
      ...generation,
      name: "gemini.stream_generate_content",
      path: `${path}:streamGenerateContent`,
      stream: "always",
    },
    {
      ...gemini,
      group: "chat",
      name: "gemini.count_tokens",
      path: `${path}:countTokens`,
      cost: "none",
      stream: "never",
    },
    {
      ...later,
      group: "videos",
      name: "gemini.predict_long_running",
      path: `${path}:predictLongRunning`,
    },
    {
      ...later,
      group: "batches",
      name: "gemini.batch_generate_content",
      path: `${path}:batchGenerateContent`,
    },
    {
      ...later,
      group: "batches",
      name: "gemini.async_batch_embed_content",
      path: `${path}:asyncBatchEmbedContent`,
    },
    { ...embedding, name: "gemini.embed_content", path: `${path}:embedContent` },
    {
      ...embedding,
      name: "gemini.batch_embed_contents",
      path: `${path}:batchEmbedContents`,
      facts: { maxOutput: [], inputs: ["requests"] },
    },
  ]),
  ...VERTEX_OPERATIONS,
  { ...LIST, dialect: GEMINI, name: "gemini.models.list", path: `${VERSION}/models` },
  { ...ONE_MODEL, dialect: GEMINI, name: "gemini.models.get", path: `${VERSION}/models/:model` },
  OTHER_OPERATION,
];

/** Operations of Azure's deployments, of which the path names the model. */
const DEPLOYED: ReadonlySet<string> = new Set([
  "chat.completions",
  "completions",
  "embeddings",
  "images",
  "images.edits",
  "audio.speech",
  "audio.transcriptions",
  "audio.translations",
]);
const isDeployed = ({ name, method }: Operation) => method === "POST" && DEPLOYED.has(name);
/** Groups of OpenAI's interface at Azure that do not manage stored objects. */
const AZURE_GROUPS: readonly unknown[] = [
  "chat",
  "responses",
  "completions",
  "embeddings",
  "images",
  "audio",
  "models",
];
const ofAzure = NAMED.filter(({ group }) => AZURE_GROUPS.includes(group));

/**
 * Classic deployments, other classic paths, and the paths below `/openai/v1`
 * (https://learn.microsoft.com/azure/ai-foundry/openai/reference).
 */
const AZURE_OPERATIONS: readonly Operation[] = [
  ...ofAzure.filter(isDeployed).map((row): Operation => ({
    ...row,
    path: `/openai/deployments/:model${row.path}`,
    model: "path",
  })),
  ...ofAzure.map((row): Operation => ({ ...row, path: `/openai/v1${row.path}` })),
  ...ofAzure.filter((row) => !isDeployed(row)).map((row): Operation => ({
    ...row,
    path: `/openai${row.path}`,
  })),
  OTHER_OPERATION,
];

const cohere = { ...CALL, dialect: COHERE, model: "body" } as const;

/** https://docs.cohere.com/reference/about */
const COHERE_OPERATIONS: readonly Operation[] = [
  { ...cohere, group: "chat", genAi: "chat", name: "cohere.chat", path: "/v2/chat" },
  ...["/v2", "/v1"].flatMap((version): Operation[] => [
    {
      ...cohere,
      group: "embeddings",
      genAi: "embeddings",
      name: "cohere.embed",
      path: `${version}/embed`,
      units: { anyOf: ["images"], fields: ["images", "inputs"] },
      facts: { maxOutput: [], inputs: ["texts", "inputs", "images"] },
    },
    {
      ...cohere,
      group: "embeddings",
      name: "cohere.rerank",
      path: `${version}/rerank`,
      units: { anyOf: ["searchUnits"] },
      facts: { maxOutput: [], inputs: ["documents"] },
    },
  ]),
  {
    ...cohere,
    group: "embeddings",
    name: "cohere.tokenize",
    path: "/v1/tokenize",
    cost: "none",
  },
  { ...LIST, dialect: COHERE, name: "cohere.models.list", path: "/v1/models" },
  { ...ONE_MODEL, dialect: COHERE, name: "cohere.models.get", path: "/v1/models/:model" },
  OTHER_OPERATION,
];

const ollama = {
  ...CALL,
  dialect: OLLAMA,
  model: "body",
  facts: { maxOutput: ["options.num_predict"] },
} as const;
const ollamaEmbedding = {
  ...ollama,
  group: "embeddings",
  genAi: "embeddings",
  stream: "never",
} as const;

/** https://docs.ollama.com/api */
const OLLAMA_OPERATIONS: readonly Operation[] = [
  {
    ...ollama,
    group: "chat",
    genAi: "chat",
    name: "ollama.chat",
    path: "/api/chat",
    stream: "default",
  },
  {
    ...ollama,
    group: "completions",
    genAi: "text_completion",
    name: "ollama.generate",
    path: "/api/generate",
    stream: "default",
  },
  { ...ollamaEmbedding, name: "ollama.embed", path: "/api/embed" },
  { ...ollamaEmbedding, name: "ollama.embeddings", path: "/api/embeddings" },
  { ...LIST, dialect: OLLAMA, name: "ollama.models.list", path: "/api/tags" },
  {
    ...ollama,
    group: "models",
    name: "ollama.models.show",
    path: "/api/show",
    cost: "none",
    stream: "never",
  },
  OTHER_OPERATION,
];

/** Fields for the largest output in the bodies of Bedrock's models, and of Converse. */
const BEDROCK_FACTS = {
  maxOutput: [
    ...["max_tokens", "max_tokens_to_sample", "max_gen_len", "max_completion_tokens"],
    ...["inferenceConfig.maxTokens", "inferenceConfig.max_new_tokens"],
    "textGenerationConfig.maxTokenCount",
  ],
  // https://docs.aws.amazon.com/bedrock/latest/userguide/service-tiers-inference.html
  tierHeader: "x-amzn-bedrock-service-tier",
} as const;
const bedrock = {
  ...CALL,
  group: "chat",
  genAi: "chat",
  dialect: BEDROCK,
  model: "path",
  facts: BEDROCK_FACTS,
} as const;

/** https://docs.aws.amazon.com/bedrock/latest/APIReference/API_Operations_Amazon_Bedrock_Runtime.html */
const BEDROCK_OPERATIONS: readonly Operation[] = [
  { ...bedrock, name: "bedrock.converse", path: "/model/:model+/converse", stream: "never" },
  {
    ...bedrock,
    name: "bedrock.converse_stream",
    path: "/model/:model+/converse-stream",
    stream: "always",
  },
  {
    ...bedrock,
    body: "untyped_json",
    name: "bedrock.invoke",
    path: "/model/:model+/invoke",
    stream: "never",
  },
  {
    ...bedrock,
    body: "untyped_json",
    name: "bedrock.invoke_stream",
    path: "/model/:model+/invoke-with-response-stream",
    stream: "always",
  },
  {
    ...bedrock,
    group: "videos",
    model: "none",
    cost: "unstated",
    name: "bedrock.async_invoke",
    path: "/async-invoke",
    stream: "never",
  },
  {
    ...bedrock,
    name: "bedrock.count_tokens",
    path: "/model/:model+/count-tokens",
    cost: "none",
    stream: "never",
  },
  OTHER_OPERATION,
];

/** The shapes by their names in the configuration. */
export const SHAPES: Readonly<Record<ShapeName, Shape>> = {
  v1: { base: "/v1", operations: OPERATIONS, dialect: OPAQUE },
  gemini: { base: "", operations: GEMINI_OPERATIONS, dialect: GEMINI },
  azure: { base: "", operations: AZURE_OPERATIONS, dialect: OPENAI_CHAT },
  cohere: { base: "", operations: COHERE_OPERATIONS, dialect: COHERE },
  ollama: { base: "", operations: OLLAMA_OPERATIONS, dialect: OLLAMA },
  bedrock: { base: "", operations: BEDROCK_OPERATIONS, dialect: BEDROCK },
};

/**
 * Writes the path of an operation for people.
 *
 * @param toParameter Writes a parameter, such as `model`
 * @param version Text for Google's versions
 */
export function writePath(
  path: string,
  toParameter: (name: string) => string,
  version = "v1beta",
): string {
  return path.replace(`v1${VERSIONS}`, version).replace(":rest+", "*")
    .replace(/(?<=\/):(\w+)\+?/g, (_, name: string) => toParameter(name));
}

/**
 * The paths of all operations by their names, with `{id}` for parameters. An operation of several
 * shapes has the path of `v1`.
 */
export const ROUTES: ReadonlyMap<string, string> = new Map(
  Object.values(SHAPES).reverse().flatMap(({ base, operations }) =>
    operations.map(({ name, path }) => [name, base + writePath(path, () => "{id}")] as const)
  ),
);
