/**
 * A stand-in provider that knows the true usage: the tokens that it has read and generated,
 * regardless of the usage that it states.
 */
import type { ServerResponse } from "node:http";
import { type Arrived, type Provider, startProvider } from "./provider.ts";

/** One token for this provider. */
const WORD = "abc ";
const textOf = (tokens: number): string => WORD.repeat(tokens);

/** Interfaces that it supports. */
export type Interface = "chat completions" | "responses" | "messages" | "embeddings";

interface Tokens {
  readonly input: number;
  readonly output: number;
}

interface Form {
  readonly path: string;
  /** The body of a request. */
  request(
    prompt: string,
    more: { readonly stream: boolean; readonly max: number | undefined },
  ): unknown;
  /** An answer. @param usage Tokens to state, if any */
  answer(tokens: Tokens, usage: Tokens | undefined): unknown;
  /** Events of a stream: before the tokens, for each token, and after the last one. */
  readonly events?: {
    before(usage: Tokens | undefined): readonly unknown[];
    readonly each: unknown;
    after(usage: Tokens | undefined): readonly unknown[];
    readonly end: string;
  };
}

const openAi = (usage: Tokens | undefined) =>
  usage && {
    usage: {
      prompt_tokens: usage.input,
      completion_tokens: usage.output,
      total_tokens: usage.input + usage.output,
    },
  };
const newer = (usage: Tokens | undefined) =>
  usage &&
  {
    input_tokens: usage.input,
    output_tokens: usage.output,
    total_tokens: usage.input + usage.output,
  };
const chunk = (delta: unknown, reason: string | null = null) => ({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  model: "test-1",
  choices: [{ index: 0, delta, finish_reason: reason }],
});

/** The forms of requests and answers. */
export const FORMS: Readonly<Record<Interface, Form>> = {
  "chat completions": {
    path: "/v1/chat/completions",
    request: (content, { stream, max }) => ({
      model: "test-1",
      messages: [{ role: "user", content }],
      ...(stream && { stream }),
      ...(max !== undefined && { max_completion_tokens: max }),
    }),
    answer: ({ output }, usage) => ({
      object: "chat.completion",
      choices: [{
        index: 0,
        message: { role: "assistant", content: textOf(output) },
        finish_reason: "stop",
      }],
      ...openAi(usage),
    }),
    events: {
      before: () => [chunk({ role: "assistant", content: "" })],
      each: chunk({ content: WORD }),
      after: (usage) => [chunk({}, "stop"), ...(usage ? [{ choices: [], ...openAi(usage) }] : [])],
      end: "data: [DONE]\n\n",
    },
  },
  "responses": {
    path: "/v1/responses",
    request: (input, { stream, max }) => ({
      model: "test-1",
      input,
      ...(stream && { stream }),
      ...(max !== undefined && { max_output_tokens: max }),
    }),
    answer: ({ output }, usage) => ({
      object: "response",
      status: "completed",
      output: [{ type: "message", content: [{ type: "output_text", text: textOf(output) }] }],
      usage: newer(usage) ?? null,
    }),
    events: {
      before: () => [{
        type: "response.created",
        sequence_number: 0,
        response: { status: "in_progress" },
      }],
      each: {
        type: "response.output_text.delta",
        item_id: "m",
        output_index: 0,
        content_index: 0,
        delta: WORD,
      },
      after: (
        usage,
      ) => [{
        type: "response.completed",
        response: { status: "completed", usage: newer(usage) ?? null },
      }],
      end: "",
    },
  },
  "messages": {
    path: "/v1/messages",
    // This interface requires a maximum from every caller.
    request: (content, { stream, max = 400 }) => ({
      model: "test-1",
      max_tokens: max,
      messages: [{ role: "user", content }],
      ...(stream && { stream }),
    }),
    answer: ({ output }, usage) => ({
      type: "message",
      role: "assistant",
      content: [{ type: "text", text: textOf(output) }],
      stop_reason: "end_turn",
      ...(usage && { usage: newer(usage) }),
    }),
    events: {
      before: (
        usage,
      ) => [{
        type: "message_start",
        message: { ...(usage && { usage: newer({ ...usage, output: 1 }) }) },
      }],
      each: { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: WORD } },
      after: (usage) => [
        {
          type: "message_delta",
          delta: { stop_reason: "end_turn" },
          usage: usage && { output_tokens: usage.output },
        },
        { type: "message_stop" },
      ],
      end: "",
    },
  },
  "embeddings": {
    path: "/v1/embeddings",
    request: (input) => ({ model: "test-1", input }),
    answer: ({ input }, usage) => ({
      object: "list",
      data: [{ object: "embedding", index: 0, embedding: Array(32).fill(0.0123) }],
      ...(usage && { usage: { prompt_tokens: input, total_tokens: input } }),
    }),
  },
};

/** How it treats calls. */
export interface Conduct {
  /** Tokens of output that it generates, unless it is stopped. */
  readonly output: number;
  /** True if it states usage. */
  readonly isStated: boolean;
  /**
   * The act after a number of tokens of a stream, instead of the rest; `hold` waits until the
   * caller leaves.
   */
  readonly after?: { readonly tokens: number; readonly act: "hold" | "cut" };
  /** True if it generates an answer, but never sends it. */
  readonly isSilent?: boolean;
  /** A promise to wait for before it answers. */
  readonly gate?: Promise<unknown>;
  /** The refusal of every call, which costs nothing. */
  readonly refusal?: { readonly status: number; readonly body: string; readonly isHeld?: boolean };
}

/** A stand-in that counts tokens. */
export interface TruthfulProvider extends Provider {
  conduct: Conduct;
  /** Tokens of each call that it did not refuse. */
  readonly truth: number[];
}

/** Returns a prompt with the given number of tokens. */
export const promptOf = (tokens: number): string => textOf(tokens);

function countPrompt(body: string): number {
  return body.split(WORD).length - 1;
}

async function answerStream(
  response: ServerResponse,
  form: Form,
  input: number,
  conduct: Conduct,
  count: () => void,
) {
  const { events } = form;
  if (events === undefined) throw new Error("Cannot stream: the interface has no streams");
  const { output, isStated, after } = conduct;
  const usage = isStated ? { input, output } : undefined;
  const send = (event: unknown) => {
    const { type } = event as { type?: string };
    response.write(
      `${type === undefined ? "" : `event: ${type}\n`}data: ${JSON.stringify(event)}\n\n`,
    );
  };
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of events.before(usage)) send(event);
  for (let made = 0; made < output; made++) {
    if (made === after?.tokens) {
      if (after.act === "hold") return;
      await new Promise((resolve) => response.write(":\n\n", resolve));
      return void response.destroy();
    }
    send(events.each);
    count();
  }
  for (const event of events.after(usage)) send(event);
  response.end(events.end);
}

/** Starts one. */
export async function startTruthfulProvider(port = 0): Promise<TruthfulProvider> {
  const truth: number[] = [];
  const provider = await startProvider(async (response, { path, body }: Arrived) => {
    const { conduct } = truthful;
    if (path === "/v1/models") return void response.end('{"object":"list","data":[]}');
    if (conduct.refusal !== undefined) {
      response.writeHead(conduct.refusal.status, { "content-type": "application/json" });
      return conduct.refusal.isHeld
        ? void response.write(conduct.refusal.body)
        : void response.end(conduct.refusal.body);
    }
    const text = body.toString();
    const form = Object.values(FORMS).find((each) => each.path === path) ??
      FORMS["chat completions"];
    const input = countPrompt(text);
    const index = truth.push(input) - 1;
    const count = (tokens = 1) => void (truth[index] = (truth[index] ?? 0) + tokens);
    await conduct.gate;
    if (text.includes('"stream":true')) return answerStream(response, form, input, conduct, count);
    const output = form.events === undefined ? 0 : conduct.output;
    count(output);
    if (conduct.isSilent) return;
    const answer = form.answer({ input, output }, conduct.isStated ? { input, output } : undefined);
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  }, port);
  const truthful: TruthfulProvider = Object.assign(provider, {
    conduct: { output: 100, isStated: true },
    truth,
  });
  return truthful;
}
