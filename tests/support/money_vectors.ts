/**
 * Answers of providers with their expected billing classes and costs, and the calls that get them.
 */
import { readFileSync } from "node:fs";
import { type ClassAmounts, partsOf, type TokenUsage } from "../../src/exchange/billing.ts";
import type { Price } from "../../src/config/prices.ts";

/** One answer. The file's `about` describes the fields. */
export interface MoneyCase {
  readonly id: string;
  readonly at: string;
  readonly interface: string;
  readonly model: string;
  readonly price?: string;
  readonly request?: Record<string, unknown>;
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly body?: Record<string, unknown>;
  readonly events?: readonly unknown[];
  readonly usage?: ClassAmounts | null;
  readonly parts?: readonly { readonly usage: ClassAmounts; readonly price: string }[];
  readonly tier?: string;
  readonly geo?: string;
  readonly asked?: Record<string, string>;
  readonly context?: number;
  readonly total?: number;
  readonly cost: string | null;
  readonly reason?: string;
  readonly free?: boolean;
  readonly charge?: "estimate" | "reserved";
  readonly unpriced?: ClassAmounts;
  readonly stated?: string;
}

/** The most that a call can cost. */
export interface ReservationCase {
  readonly id: string;
  readonly at: string;
  readonly price: string;
  readonly inputTokens: number;
  readonly maxOutput: number;
  readonly longWrites?: boolean;
  readonly tiers?: readonly string[];
  readonly geos?: readonly string[];
  readonly calls?: ClassAmounts;
  readonly modalities?: readonly string[];
  readonly most: string | null;
}

interface MoneyCases {
  readonly prices: Record<string, Price>;
  readonly cases: readonly MoneyCase[];
  readonly reservations: readonly ReservationCase[];
}

const file = new URL("money_cases.json", import.meta.url);
const all: MoneyCases = JSON.parse(readFileSync(file, "utf8"));
export const PRICES: MoneyCases["prices"] = all.prices;
export const CASES: MoneyCases["cases"] = all.cases;
export const RESERVATIONS: MoneyCases["reservations"] = all.reservations;

/** Models that answers name in addition to the model of the call, and their prices. */
const OTHER_MODELS = {
  "gpt-image-1": "gpt-image-1",
  "claude-fable-5-1": "claude-fable-5.1",
  "input_audio_transcription": "gpt-4o-transcribe",
};

/** The prices of a case by model: of the model of its call, and of others that its answer names. */
export function pricesOf({ model, price, parts }: MoneyCase): Record<string, Price> {
  const named = { [model]: price ?? parts?.[0]?.price, ...OTHER_MODELS };
  return Object.fromEntries(
    Object.entries(named).flatMap(([name, of]) => {
      const found = of === undefined ? undefined : PRICES[of];
      return found === undefined ? [] : [[name, found]];
    }),
  );
}

const MESSAGES = { messages: [{ role: "user", content: "Hi" }], max_tokens: 1000 };
const INPUT = { input: "Hi", max_output_tokens: 1000 };

/** Path and body of the calls of each interface. Calls that read stored objects are posted here. */
const CALLS: Readonly<Record<string, readonly [path: string, body: Record<string, unknown>]>> = {
  "openai.chat": ["/chat/completions", MESSAGES],
  "openai.embeddings": ["/embeddings", { input: "Hi" }],
  "openai.moderations": ["/moderations", { input: "Hi" }],
  "openai.responses": ["/responses", INPUT],
  "openai.responses.get": ["/responses", INPUT],
  "openai.images": ["/images/generations", { prompt: "a cat" }],
  "openai.transcriptions": ["/audio/transcriptions", {}],
  "openai.speech": ["/audio/speech", {}],
  "openai.batches": ["/batch-object", {}],
  "openai.decisions": ["/decisions", {}],
  "openai.videos": ["/videos", { prompt: "a cat" }],
  "openai.realtime": ["/realtime-events", {}],
  "openai.live": ["/live", {}],
  "anthropic.messages": ["/messages", MESSAGES],
  "anthropic.count_tokens": ["/messages/count_tokens", MESSAGES],
  "anthropic.batches.results": ["/results", {}],
  "gemini.generateContent": ["/publishers/google/generate", { contents: [] }],
  "cohere.chat": ["/chat", MESSAGES],
  "mistral.ocr": ["/ocr", { document: { type: "document_url", document_url: "https://a" } }],
  "cohere.rerank": ["/rerank", { query: "Hi" }],
  "bedrock.invoke": ["/model/invoke", MESSAGES],
};

/** A call: its JSON body is empty for a `GET`. */
interface VectorCall {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body: string;
}

/** The call of a case. Items of a batch that failed are only read, and this is free. */
export function toCall(each: MoneyCase, isStream: boolean): VectorCall {
  if (each.free === true && each.interface === "anthropic.batches.results") {
    return { method: "GET", path: "/v1/messages/batches/batch_1/results", body: "" };
  }
  const [path, fields] = CALLS[each.interface] ?? ["/other", {}];
  const stream = isStream ? { stream: true } : {};
  const json = JSON.stringify({ model: each.model, ...fields, ...each.request, ...stream });
  const escape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return { method: "POST", path: `/v1${path}`, body: json.replace(/[\u0080-\uffff]/g, escape) };
}

type Events = readonly unknown[];

/** The events of a stream with the same content as a plain answer. */
const STREAMS: Readonly<Record<string, (body: Record<string, unknown>) => Events>> = {
  "openai.chat": ({ usage, choices: _, ...rest }) => [
    { ...rest, choices: [{ index: 0, delta: { content: "Hi" }, finish_reason: "stop" }] },
    { ...rest, choices: [], usage },
    "[DONE]",
  ],
  "openai.responses": (response) => [
    { type: "response.created", response: { ...response, service_tier: "auto", usage: null } },
    { type: "response.output_text.delta", delta: "Hi" },
    { type: "response.completed", response },
  ],
  "anthropic.messages": ({ usage, ...message }) => {
    const { output_tokens, output_tokens_details, iterations, server_tool_use, ...start } =
      usage as Record<string, unknown>;
    const end = { output_tokens, output_tokens_details, iterations, server_tool_use };
    return [
      {
        type: "message_start",
        message: { ...message, content: [], usage: { ...start, output_tokens: 1 } },
      },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hi" } },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: end },
      { type: "message_stop" },
    ];
  },
  "openai.transcriptions": ({ usage, text }) => [{ type: "transcript.text.done", text, usage }],
  "openai.images": ({ data: _, ...image }) => [{ type: "image_generation.completed", ...image }],
  "gemini.generateContent": (body) => [body],
  "cohere.chat": (body) => [{ type: "message-end", delta: body }],
  "openai.decisions": (body) => [body],
};

/** The events of a case as it is streamed; `undefined` if its interface has no stream for it. */
export function eventsOf(each: MoneyCase): Events | undefined {
  if (each.events !== undefined) return each.events;
  const { body, status = 200 } = each;
  const isStreamed = body !== undefined && status === 200 && each.charge === undefined;
  return isStreamed ? STREAMS[each.interface]?.(body) : undefined;
}

/** Writes events as a provider does. */
export function toEventStream(events: Events): string {
  return events.map((event) => {
    const type = (event as { type?: string }).type;
    const data = typeof event === "string" ? event : JSON.stringify(event);
    return `${type === undefined ? "" : `event: ${type}\n`}data: ${data}\n\n`;
  }).join("");
}

const withoutZeros = (classes: ClassAmounts): ClassAmounts =>
  Object.fromEntries(
    Object.entries(classes).filter(([name, amount]) => amount > 0 && name !== "requests"),
  );

/** The expected classes of each part. Each call is a request; that is not stated. */
export const expectedClasses = ({ parts, usage }: MoneyCase): ClassAmounts[] =>
  (parts ?? [{ usage: usage ?? {} }]).map((part) => withoutZeros(part.usage));

/** The classes of each part of a usage. */
export const classesOf = (usage: TokenUsage): ClassAmounts[] =>
  partsOf(usage).map(({ classes }) => withoutZeros(classes));
