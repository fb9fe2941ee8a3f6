/**
 * Client libraries that are built on others, each with the same four operations: a plain call, a
 * stream, tools, embeddings.
 */
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { Agent, OpenAIProvider, Runner, tool as toAgentTool } from "@openai/agents";
import {
  generateText,
  jsonSchema,
  type LanguageModel,
  stepCountIs,
  streamText,
  tool as toAiTool,
} from "ai";
import Groq from "groq-sdk";
import OpenAI from "openai";
import { UPSTREAM_KEY } from "./gateway.ts";

/** The target of a library's calls. */
export interface At {
  /** The gateway, without `/v1`. */
  readonly url: string;
  readonly defaultHeaders: Record<string, string>;
}

/** One library. */
export interface ClientLibrary {
  readonly name: string;
  /** Path of its calls at the provider. */
  readonly path: string;
  /** Settings that its provider needs. */
  readonly provider?: Record<string, unknown>;
  plain(at: At, prompt: string): Promise<string>;
  /** Returns the whole text. */
  stream(
    at: At,
    prompt: string,
    onWord: (word: string) => void,
    signal?: AbortSignal,
  ): Promise<string>;
  /** Calls with a tool `forecast`, and returns the final text. */
  useTool(at: At, prompt: string, onCall: (input: unknown) => void): Promise<string>;
}

const MODEL = "test-1";
/** Maximum tokens, because the AI SDK warns about models of Anthropic that it does not know. */
const LIMITS = { maxRetries: 0, maxOutputTokens: 500 };
const FORECAST = {
  name: "forecast",
  description: "The weather of the next days",
  parameters: {
    type: "object" as const,
    properties: { city: { type: "string" }, days: { type: "number" } },
    required: [],
    additionalProperties: true as const,
  },
};

/** Joins the words of a stream. */
async function join(words: AsyncIterable<string>, onWord: (word: string) => void): Promise<string> {
  let text = "";
  for await (const word of words) {
    if (word === "") continue;
    text += word;
    onWord(word);
  }
  return text;
}

async function* pick<Item>(
  items: AsyncIterable<Item>,
  toWord: (item: Item) => string | null | undefined,
) {
  for await (const item of items) yield toWord(item) ?? "";
}

/** An entry for a model of the AI SDK. */
function aiSdk(name: string, path: string, toModel: (at: At) => LanguageModel): ClientLibrary {
  return {
    name,
    path,
    plain: async (at, prompt) =>
      (await generateText({ model: toModel(at), prompt, ...LIMITS })).text,
    stream(at, prompt, onWord, abortSignal) {
      const given = abortSignal === undefined ? {} : { abortSignal };
      const { textStream } = streamText({
        model: toModel(at),
        prompt,
        ...LIMITS,
        onError() {},
        ...given,
      });
      return join(textStream, onWord);
    },
    async useTool(at, prompt, onCall) {
      const forecast = toAiTool({
        description: FORECAST.description,
        inputSchema: jsonSchema<object>(FORECAST.parameters),
        execute(input) {
          onCall(input);
          return "42";
        },
      });
      const call = {
        model: toModel(at),
        prompt,
        tools: { forecast },
        stopWhen: stepCountIs(3),
        ...LIMITS,
      };
      return (await generateText(call)).text;
    },
  };
}

function agents(): ClientLibrary {
  const runnerOf = ({ url, defaultHeaders }: At) => {
    const openAIClient = new OpenAI({
      baseURL: `${url}/v1`,
      apiKey: UPSTREAM_KEY,
      defaultHeaders,
      maxRetries: 0,
    });
    // By default traces would be sent to OpenAI.
    return new Runner({
      modelProvider: new OpenAIProvider({ openAIClient }),
      tracingDisabled: true,
    });
  };
  const agent = new Agent({ name: "Teller", model: MODEL });
  return {
    name: "@openai/agents",
    path: "/v1/responses",
    plain: async (at, prompt) => `${(await runnerOf(at).run(agent, prompt)).finalOutput}`,
    async stream(at, prompt, onWord, signal) {
      const given = signal === undefined ? {} : { signal };
      const result = await runnerOf(at).run(agent, prompt, { stream: true, ...given });
      const text = await join(result.toTextStream(), onWord);
      await result.completed;
      return text;
    },
    async useTool(at, prompt, onCall) {
      const forecast = toAgentTool({
        ...FORECAST,
        strict: false,
        execute(input) {
          onCall(input);
          return "42";
        },
      });
      return `${(await runnerOf(at).run(agent.clone({ tools: [forecast] }), prompt)).finalOutput}`;
    },
  };
}

function groq(): ClientLibrary {
  // The library appends /openai/v1 itself.
  const completionsOf = ({ url, defaultHeaders }: At) =>
    new Groq({ baseURL: url, apiKey: UPSTREAM_KEY, defaultHeaders, maxRetries: 0 }).chat
      .completions;
  type Messages = Groq.Chat.ChatCompletionMessageParam[];
  const tools = [{ type: "function" as const, function: FORECAST }];
  return {
    name: "groq-sdk",
    path: "/v1/chat/completions",
    provider: { hosts: ["*/openai"] },
    async plain(at, content) {
      const { choices } = await completionsOf(at).create({
        model: MODEL,
        messages: [{ role: "user", content }],
      });
      return choices[0]?.message.content ?? "";
    },
    async stream(at, content, onWord, signal) {
      const body = {
        model: MODEL,
        messages: [{ role: "user" as const, content }],
        stream: true as const,
      };
      const chunks = await completionsOf(at).create(body, signal === undefined ? {} : { signal });
      return await join(pick(chunks, ({ choices }) => choices[0]?.delta.content), onWord);
    },
    async useTool(at, content, onCall) {
      const messages: Messages = [{ role: "user", content }];
      const { choices: [first] } = await completionsOf(at).create({
        model: MODEL,
        messages,
        tools,
      });
      if (first === undefined) return "";
      // The library's types of both differ in fields that are not set here.
      messages.push(first.message as Messages[number]);
      for (const { id, function: { arguments: text } } of first.message.tool_calls ?? []) {
        onCall(JSON.parse(text));
        messages.push({ role: "tool", tool_call_id: id, content: "42" });
      }
      const { choices: [last] } = await completionsOf(at).create({ model: MODEL, messages, tools });
      return last?.message.content ?? "";
    },
  };
}

const langChainOptions = ({ url, defaultHeaders }: At) => ({
  model: MODEL,
  apiKey: UPSTREAM_KEY,
  maxRetries: 0,
  configuration: { baseURL: `${url}/v1`, defaultHeaders },
});

function langChain(): ClientLibrary {
  const modelOf = (at: At) => new ChatOpenAI(langChainOptions(at));
  return {
    name: "@langchain/openai",
    path: "/v1/chat/completions",
    plain: async (at, prompt) => (await modelOf(at).invoke(prompt)).text,
    async stream(at, prompt, onWord, signal) {
      const chunks = await modelOf(at).stream(prompt, signal === undefined ? {} : { signal });
      return await join(pick(chunks, ({ text }) => text), onWord);
    },
    async useTool(at, prompt, onCall) {
      const model = modelOf(at).bindTools([{ type: "function", function: FORECAST }]);
      const question = new HumanMessage(prompt);
      const answer = await model.invoke([question]);
      const results = (answer.tool_calls ?? []).map(({ id = "", args }) => {
        onCall(args);
        return new ToolMessage({ tool_call_id: id, content: "42" });
      });
      return (await model.invoke([question, answer, ...results])).text;
    },
  };
}

/** LangChain's embeddings of texts. */
export function embedWithLangChain(at: At, texts: string[]): Promise<number[][]> {
  return new OpenAIEmbeddings(langChainOptions(at)).embedDocuments(texts);
}

const openAi = ({ url, defaultHeaders: headers }: At) =>
  createOpenAI({ baseURL: `${url}/v1`, apiKey: UPSTREAM_KEY, headers })(MODEL);
const anthropic = ({ url, defaultHeaders: headers }: At) =>
  createAnthropic({ baseURL: `${url}/v1`, apiKey: UPSTREAM_KEY, headers })(MODEL);

/** All client libraries. */
export const LIBRARIES: readonly ClientLibrary[] = [
  // Its default model uses the responses interface.
  aiSdk("@ai-sdk/openai", "/v1/responses", openAi),
  {
    ...aiSdk("@ai-sdk/anthropic", "/v1/messages", anthropic),
    provider: { credential: "x-api-key" },
  },
  agents(),
  groq(),
  langChain(),
];
