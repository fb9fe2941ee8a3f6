/** Answers of the stand-in providers: one call of a tool, then text, in each interface. */
import { Buffer } from "node:buffer";

/** The interface that an agent speaks. */
export type Interface = "messages" | "responses" | "chat" | "gemini";

/** The text of a last answer. */
export const LAST_TEXT = "It printed tool-ran";
const COMMAND = "echo tool-ran";

const event = (data: unknown, name?: string): string =>
  `${name === undefined ? "" : `event: ${name}\n`}data: ${JSON.stringify(data)}\n\n`;

type Fields = Record<string, unknown>;
/** Events of Anthropic and of Responses repeat their type as a name. */
const named = (data: Fields): string => event(data, String(data["type"]));

/** A tool of a request, as each interface declares it. */
interface Tool {
  readonly name: string;
  readonly parameters: string;
}

/** Names of the tools that run a command. */
const SHELLS = [
  "Bash",
  "bash",
  "exec_command",
  "shell_command",
  "shell",
  "run_shell_command",
];

/** Finds the tool that runs a command in a request. */
function findShell(body: string): Tool | undefined {
  const name = SHELLS.find((each) => body.includes(`"name":"${each}"`));
  if (name === undefined) return undefined;
  const field = name === "exec_command" ? "cmd" : "command";
  const command = name === "shell" ? ["sh", "-c", COMMAND] : COMMAND;
  return {
    name,
    parameters: JSON.stringify({ [field]: command, description: "Print", is_background: false }),
  };
}

function answerMessages(tool: Tool | undefined): string[] {
  const block = tool === undefined
    ? { type: "text", text: "" }
    : { type: "tool_use", id: "toolu_01", name: tool.name, input: {} };
  const delta = tool === undefined
    ? { type: "text_delta", text: LAST_TEXT }
    : { type: "input_json_delta", partial_json: tool.parameters };
  const message = {
    ...{ id: "msg_01", type: "message", role: "assistant", model: "claude-sonnet-4-5" },
    ...{ content: [], stop_reason: null, usage: { input_tokens: 5, output_tokens: 1 } },
  };
  const reason = tool === undefined ? "end_turn" : "tool_use";
  return [
    named({ type: "message_start", message }),
    named({ type: "content_block_start", index: 0, content_block: block }),
    named({ type: "content_block_delta", index: 0, delta }),
    named({ type: "content_block_stop", index: 0 }),
    named({
      type: "message_delta",
      delta: { stop_reason: reason },
      usage: { output_tokens: 9 },
    }),
    named({ type: "message_stop" }),
  ];
}

/** The plain answer of Anthropic's interface, which Claude Code requests after cut streams. */
export function plainMessage(): string {
  return JSON.stringify({
    ...{ id: "msg_02", type: "message", role: "assistant", model: "claude-sonnet-4-5" },
    content: [{ type: "text", text: LAST_TEXT }],
    ...{ stop_reason: "end_turn", stop_sequence: null },
    usage: { input_tokens: 5, output_tokens: 9 },
  });
}

/** Returns whether a call of Anthropic's interface requests a plain answer. */
export function isPlainMessage(kind: Interface, body: Buffer): boolean {
  if (kind !== "messages") return false;
  return (JSON.parse(body.toString()) as { stream?: boolean }).stream !== true;
}

function answerResponses(tool: Tool | undefined): string[] {
  const item = tool === undefined
    ? {
      ...{ type: "message", id: "item_1", role: "assistant" },
      content: [{ type: "output_text", text: LAST_TEXT }],
    }
    : {
      ...{ type: "function_call", id: "item_1", call_id: "call_1" },
      ...{ name: tool.name, arguments: tool.parameters },
    };
  const usage = { input_tokens: 5, output_tokens: 9, total_tokens: 14 };
  return [
    named({ type: "response.created", response: { id: "resp_1" } }),
    named({ type: "response.output_item.done", output_index: 0, item }),
    named({ type: "response.completed", response: { id: "resp_1", output: [item], usage } }),
  ];
}

function answerChat(tool: Tool | undefined): string[] {
  const of = (delta: Fields, reason: string | null = null) =>
    event({
      ...{ id: "chat_1", object: "chat.completion.chunk", created: 1, model: "a-model" },
      choices: [{ index: 0, delta, finish_reason: reason }],
    });
  const delta = tool === undefined ? { content: LAST_TEXT } : {
    tool_calls: [{
      ...{ index: 0, id: "call_1", type: "function" },
      function: { name: tool.name, arguments: tool.parameters },
    }],
  };
  return [
    of({ role: "assistant", content: "" }),
    of(delta),
    of({}, tool === undefined ? "stop" : "tool_calls"),
    "data: [DONE]\n\n",
  ];
}

function answerGemini(tool: Tool | undefined): string[] {
  const part = tool === undefined
    ? { text: LAST_TEXT }
    : { functionCall: { name: tool.name, args: JSON.parse(tool.parameters) as Fields } };
  const content = { role: "model", parts: [part] };
  const usageMetadata = { promptTokenCount: 5, candidatesTokenCount: 9, totalTokenCount: 14 };
  return [
    event({ candidates: [{ index: 0, content }] }),
    event({
      candidates: [{
        index: 0,
        content: { role: "model", parts: [{ text: "" }] },
        finishReason: "STOP",
      }],
      usageMetadata,
    }),
  ];
}

const ANSWERS: Readonly<Record<Interface, (tool: Tool | undefined) => string[]>> = {
  messages: answerMessages,
  responses: answerResponses,
  chat: answerChat,
  gemini: answerGemini,
};

/** Texts of a request that already has the result of a tool. */
const RESULTS = ["tool_result", "function_call_output", '"role":"tool"', "functionResponse"];

/**
 * Answers a request: a call of a tool, if it offers one and has no result of it.
 *
 * @returns The events
 */
export function answerTo(kind: Interface, body: Buffer): string[] {
  const text = body.toString();
  const hasResult = RESULTS.some((each) => text.includes(each));
  return ANSWERS[kind](hasResult ? undefined : findShell(text));
}

/** Headers of answers that agents or their libraries read. */
export const ANSWER_HEADERS: Readonly<Record<Interface, readonly string[]>> = {
  messages: [
    ...["request-id", "req_1", "anthropic-organization-id", "org_1"],
    ...["anthropic-ratelimit-unified-status", "allowed", "x-claude-of-the-stand-in", "1"],
  ],
  responses: [
    ...["x-codex-turn-state", "state-1", "x-models-etag", "etag-1", "x-reasoning-included", "true"],
    ...["openai-processing-ms", "3", "x-openai-of-the-stand-in", "1"],
    ...["x-codex-primary-used-percent", "1.5"],
  ],
  chat: ["x-session-of-the-stand-in", "1", "x-ratelimit-remaining-requests", "7"],
  gemini: ["server-timing", "gfet4t7; dur=3"],
};
