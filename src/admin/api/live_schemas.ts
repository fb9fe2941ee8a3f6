/**
 * JSON Schemas of live reports and the playground, for the description of the admin API.
 *
 * @module
 */
import { FAILURE_CAUSES, OUTCOMES } from "../../errors/outcomes.ts";
import { REPORTED_EXCHANGES } from "../../observe/live/live_report.ts";

const text = { type: "string" };
const count = { type: "integer", minimum: 0 };
const ms = { type: "number", minimum: 0 };
const list = (items: unknown) => ({ type: "array", items });
const object = (properties: Record<string, unknown>, optional: readonly string[] = []) => ({
  type: "object",
  required: Object.keys(properties).filter((name) => !optional.includes(name)),
  properties,
});

const durations = {
  ...list(count),
  description: "Bin, how many, bin, how many: bin n ends at 2^(n/8 - 7) ms",
};

const second = object({
  at: { ...count, description: "Seconds since 1970" },
  exchanges: { ...count, description: "What settled in it" },
  errors: {
    type: "object",
    additionalProperties: count,
    description: "By the gateway's code, or upstream_ and the status that the provider answered",
  },
  callers: {
    type: "object",
    additionalProperties: count,
    description: "What is the callers' own: refused, with a provider's 4xx, or client_closed",
  },
  tokens: count,
  outputTokens: count,
  duration: durations,
  firstToken: durations,
  overhead: { ...durations, description: `The gateway's own time. ${durations.description}` },
  providers: {
    type: "object",
    additionalProperties: { type: "array", prefixItems: [count, count] },
    description: "Exchanges, and errors among them",
  },
  times: {
    type: "object",
    additionalProperties: object({ duration: durations, firstToken: durations }),
    description: "By provider; empty for what is older than a minute",
  },
});

const OPTIONAL_FACTS = [
  "calledMs",
  "firstByteMs",
  "firstTokenMs",
  "code",
  "cause",
  "retryCause",
  "provider",
  "keyId",
  "operation",
  "genAi",
  "isMetered",
  "model",
  "stream",
  "replica",
  "usage",
  "isEstimated",
  "limit",
  "observedLimit",
  "keyName",
  "gateway",
];

const exchange = object({
  id: { ...text, description: "x-request-id" },
  settledAt: {
    ...ms,
    description: "When it ended, milliseconds since 1970; with the id its place in the order",
  },
  startedAt: { ...ms, description: "Wall clock, milliseconds since 1970" },
  durationMs: ms,
  calledMs: { ...ms, description: "Until the provider was called" },
  firstByteMs: { ...ms, description: "Until the provider's answer began" },
  firstTokenMs: { ...ms, description: "Until the first event of a stream" },
  overheadMs: { ...ms, description: "The gateway's own time" },
  outcome: { enum: Object.keys(OUTCOMES) },
  status: count,
  code: text,
  cause: { enum: Object.keys(FAILURE_CAUSES), description: "Why the call to the provider failed" },
  retryCause: {
    enum: Object.keys(FAILURE_CAUSES),
    description: "Why a call failed that was made again",
  },
  provider: text,
  keyId: text,
  keyName: { ...text, description: "Name of the key, where it has one and can be looked up" },
  gateway: { ...text, description: "Name of its gateway, where the report is about several" },
  operation: text,
  genAi: {
    ...text,
    description: "Kind of a model's work, by OpenTelemetry's gen_ai.operation.name",
  },
  isMetered: { type: "boolean", description: "Whether the operation costs tokens" },
  model: text,
  stream: { type: "boolean" },
  bytesIn: count,
  bytesOut: count,
  retries: count,
  replica: count,
  usage: object({ total: count, input: count, output: count, cached: count, reasoning: count }, [
    "input",
    "output",
    "cached",
    "reasoning",
  ]),
  isEstimated: {
    type: "boolean",
    description: "Whether the gateway estimated `usage`, since the provider stated none",
  },
  limit: { ...text, description: "The limit that refused it" },
  observedLimit: {
    ...text,
    description: "The limit that would have refused it, had it not been set to observe",
  },
}, OPTIONAL_FACTS);

const replica = object({
  url: text,
  inService: { ...count, description: "In how many processes it takes calls" },
  ejected: { ...count, description: "In how many it has a pause" },
  ejectedMs: { ...ms, description: "Until it is tried again" },
  failures: { ...count, description: "Since the last success" },
});

/** The state of a gateway. */
export const state: Readonly<Record<string, unknown>> = {
  enum: ["starting", "ready", "draining", "leaving"],
  description: "Whether callers are welcome, an operator turned them elsewhere, " +
    "or the process was told to end",
};

const turned = object({
  id: text,
  name: text,
  state,
  isDone: { type: "boolean", description: "It has said so" },
});

const scope = {
  ...object({ gateway: text, gateways: count, isStale: { type: "boolean" } }, ["gateway"]),
  description: "The gateways that it is about, if it was asked for others than this one",
};

/** Schemas by name. */
export const liveSchemas: Readonly<
  Record<
    "State" | "LiveReport" | "ExchangeList" | "ChatCompletionRequest" | "ChatCompletion",
    unknown
  >
> = {
  State: object({ state, openExchanges: count, gateways: list(turned) }, ["gateways"]),
  LiveReport: object({
    now: { ...ms, description: "Wall clock, milliseconds since 1970" },
    from: { ...count, description: "Seconds from this one on, up to now, are told here" },
    state,
    version: text,
    health: {
      type: "object",
      description: "How the engines behind keys and limits do, and each worker",
    },
    since: {
      ...count,
      description:
        "First second that is known, since 1970; one before it was not idle, but unknown",
    },
    openExchanges: count,
    openStreams: count,
    providers: list(object({ name: text, hosts: list(text), replicas: list(replica) })),
    seconds: list(second),
    exchanges: {
      ...list(exchange),
      description:
        `What settled, the newest ${REPORTED_EXCHANGES} at most; GET /v1/exchanges has the rest`,
    },
    scope,
  }, ["scope"]),
  ExchangeList: object({
    exchanges: { ...list(exchange), description: "The newest first" },
    next: {
      type: ["string", "null"],
      description: "What to give as after for the next page; null after the last",
    },
    missing: { ...list(text), description: "With gateway: the names of those that did not answer" },
  }, ["missing"]),
  ChatCompletionRequest: {
    type: "object",
    description: "As callers send it; with stream: true the answer is a text/event-stream",
    required: ["model", "messages"],
    properties: { model: text, messages: list({ type: "object" }), stream: { type: "boolean" } },
  },
  ChatCompletion: { type: "object", description: "As the provider answered it" },
};
