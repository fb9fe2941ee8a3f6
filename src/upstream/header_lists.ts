/**
 * Lists of the headers that are forwarded for every provider, in each direction. A name that ends
 * in `*` is a prefix, which does not match {@link CREDENTIAL_FORM}. A provider's `headers` in the
 * configuration adds to them.
 *
 * @module
 */

/** Headers that are forwarded for the same reason. */
export interface HeaderRow {
  /** Names in lower case, and prefixes of names, which end in `*`. */
  readonly names: readonly string[];
  /** Their use. */
  readonly about: string;
}

/** Short words for credentials, which are parts of longer words too, such as `pat` of `path`. */
const SHORT_FORM = /(?:^|[-_])(?:creds?|otp|pat|pwd?|sid|sig)(?:[-_]|$)/;
/**
 * Names that look like credentials. A prefix in these lists does not match them, so that no key
 * passes with a family of headers. "tokens" is a unit: `anthropic-ratelimit-tokens-limit`,
 * `x-ratelimit-limit-tokens_usage_based`.
 */
export const CREDENTIAL_FORM: RegExp = new RegExp(
  "auth|bearer|cookie|credential|jwt|key|pass(?:code|ph|w)|secret|signature" +
    `|token(?!s(?:[-_]|$))|${SHORT_FORM.source}`,
);

/**
 * Headers of coding agents, passed in both directions. The programs add names to their families
 * with new versions, so these are prefixes.
 */
export const AGENT_HEADERS: readonly HeaderRow[] = [
  { names: ["x-claude-*", "x-app"], about: "Claude Code: its program, agents, prompts, sessions" },
  {
    names: ["x-codex-*", "originator", "thread-id", "x-models-etag", "x-reasoning-included"],
    about: "Codex: its program, turns, features, limits of the account",
  },
  { names: ["x-opencode-*"], about: "opencode: its program, project, session" },
  {
    names: ["x-session-*", "session-id"],
    about: "Agents, Fireworks: calls of one conversation, whose prompts are then found in a cache",
  },
];

/** Headers passed from caller to provider. */
export const REQUEST_HEADERS: readonly HeaderRow[] = [
  {
    names: ["content-type", "accept", "user-agent"],
    about: "The body, the answer that is wanted, and the program",
  },
  { names: ["x-stainless-*"], about: "Telemetry, retries and timeouts of the client libraries" },
  // https://platform.openai.com/docs/api-reference/authentication; openai-safety-identifier:
  // guides/safety-checks
  {
    names: ["openai-*", "x-openai-*"],
    about: "OpenAI: organization, project, beta interfaces, safety identifier",
  },
  {
    names: ["chatgpt-account-id"],
    about: "OpenAI: the account of a Codex that is signed in with ChatGPT",
  },
  { names: ["anthropic-*"], about: "Anthropic: version, beta interfaces" },
  {
    names: ["idempotency-key", "x-idempotency-key"],
    about: "A call that is sent twice takes effect once",
  },
  {
    names: ["traceparent", "tracestate", "baggage"],
    about: "W3C Trace Context and Baggage: the caller's own trace",
  },
  {
    names: ["x-client-request-id"],
    about: "OpenAI, Azure: the caller's own id of the call, for their support",
  },
  ...AGENT_HEADERS,
  { names: ["x-grok-conv-id"], about: "xAI: calls of one conversation" },
  {
    names: ["http-referer", "x-title", "x-openrouter-*"],
    about: "OpenRouter: the app's name, metadata",
  },
  { names: ["groq-beta", "groq-model-version"], about: "Groq: beta interfaces, a model's version" },
  { names: ["x-dashscope-*"], about: "Alibaba Cloud: asynchronous calls, caches, workspaces" },
  { names: ["hf-bill-to", "x-hf-bill-to"], about: "Hugging Face: the organization that pays" },
  {
    names: ["x-goog-api-client", "x-goog-user-project", "x-server-timeout"],
    about: "Google: the client library, the project that pays, the time for an answer",
  },
  {
    names: ["amz-sdk-*", "x-amz-user-agent", "x-amzn-bedrock-*"],
    about: "AWS: the client library and its attempts, Bedrock's guardrails, latency, tier",
  },
  { names: ["copilot-integration-id", "editor-version"], about: "GitHub Copilot: the program" },
  {
    names: [
      "helicone-*",
      "helicone-auth",
      "cf-aig-*",
      "cf-aig-authorization",
      "cf-aig-cache-key",
    ],
    about: "Helicone and Cloudflare AI Gateway: caches, labels, their own keys",
  },
];

/**
 * Headers with which gateways and routers choose a model, a provider or its address. They are never
 * forwarded for a key with restricted models or a budget of money, for a call of a run, or with a key
 * that the gateway holds, even if the configuration allows them.
 */
export const MODEL_HEADERS: readonly string[] = [
  "helicone-*", // helicone-fallbacks, helicone-target-url
  "cf-aig-*",
  "x-portkey-*", // x-portkey-config, x-portkey-provider
  "x-litellm-*", // tags choose a deployment
  "x-bf-*", // Bifrost
  "x-ai-eg-*", // Envoy AI Gateway: x-ai-eg-model
  "azureml-model-deployment",
  "x-amzn-sagemaker-*",
  "x-gateway-*", // Gateway API Inference Extension: x-gateway-model-name
];
/**
 * Form of further names of such headers: `x-model`, `openai-model`, `x-openrouter-models`,
 * `x-selected-model-name`.
 */
export const MODEL_HEADER_FORM: RegExp = /(?:^|[-_])models?(?:[-_](?:id|name))?$/;
/**
 * Form of headers that choose the account, the project or the organization that pays:
 * `openai-organization`, `openai-project`, `chatgpt-account-id`, `anthropic-workspace-id`,
 * `hf-bill-to`, `x-goog-user-project`, `x-dashscope-workspace`. They are never forwarded with a key
 * that the gateway holds, even if the configuration allows them.
 */
export const PAYER_HEADER_FORM: RegExp =
  /(?:^|[-_])(?:account|bill[-_]to|org|organi[sz]ation|project|tenant|workspace)(?:[-_](?:id|name))?$/;

/**
 * Headers passed from provider to caller. The server sets `content-length` again.
 * `content-encoding` is removed by decoding.
 */
export const RESPONSE_HEADERS: readonly HeaderRow[] = [
  {
    names: ["content-type", "content-language", "content-disposition"],
    about: "The body, and the name of a file",
  },
  {
    names: ["retry-after", "retry-after-ms", "x-should-retry"],
    about: "Advice to the client libraries",
  },
  {
    names: ["x-ratelimit-*"],
    about: "The remaining amounts of the caller's limits at the provider",
  },
  { names: ["x-request-id"], about: "Passed as `x-upstream-request-id`: the gateway has its own" },
  {
    names: ["request-id", "anthropic-*"],
    about: "Anthropic: the call's id, which its library reads; limits",
  },
  {
    names: ["openai-*", "x-openai-*"],
    about: "OpenAI: model, organization, version, time of processing",
  },
  ...AGENT_HEADERS,
  {
    names: ["x-generation-id", "x-openrouter-*"],
    about: "OpenRouter: the call's id, the provider that answered",
  },
  { names: ["x-groq-region"], about: "Groq: the region that answered" },
  {
    names: ["azureml-model-session", "apim-request-id", "x-ms-region"],
    about: "Azure: the deployment and the region that answered, the call's id for their support",
  },
  {
    names: [
      ...["x-amzn-errortype", "x-amzn-requestid", "x-amzn-bedrock-*"],
      ...["x-amzn-bedrock-input-token-count", "x-amzn-bedrock-output-token-count"],
      ...["x-amzn-bedrock-cache-read-input-token-count"],
      ...["x-amzn-bedrock-cache-write-input-token-count"],
    ],
    about:
      "AWS: the kind of an error, the call's id for their support, Bedrock's usage and latency",
  },
  {
    names: ["cf-ray"],
    about: "Cloudflare, in front of many providers: the call's id for their support",
  },
  {
    names: ["helicone-*", "cf-aig-*"],
    about: "Helicone and Cloudflare AI Gateway: the call's id, hits of a cache",
  },
];

/**
 * Names that most messages have: names of clients and their libraries, and of OpenAI's answers. For
 * these, the decision to forward is made once for each provider, not by a search of all prefixes at
 * each call: 1.7 µs less for a call of OpenAI's library on Node, 2.5 µs on Bun (2026-11-26).
 */
export const FREQUENT_HEADERS: readonly string[] = (
  "accept-language sec-fetch-mode x-stainless-lang x-stainless-package-version x-stainless-os " +
  "x-stainless-arch x-stainless-runtime x-stainless-runtime-version x-stainless-retry-count " +
  "x-stainless-timeout x-stainless-read-timeout x-stainless-helper-method x-stainless-async " +
  "x-stainless-raw-response openai-organization openai-processing-ms openai-project " +
  "openai-version anthropic-version anthropic-beta anthropic-organization-id " +
  "x-ratelimit-limit-requests x-ratelimit-limit-tokens x-ratelimit-remaining-requests " +
  "x-ratelimit-remaining-tokens x-ratelimit-reset-requests x-ratelimit-reset-tokens " +
  "access-control-expose-headers cf-cache-status server vary x-envoy-upstream-service-time"
).split(" ");
