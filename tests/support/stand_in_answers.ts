/**
 * The answers of the stand-in provider for each operation, in the forms that the client libraries
 * read.
 */
import { Buffer } from "node:buffer";
import { COMPLETION } from "./provider.ts";

/** An event of a stream that names its events. */
type NamedEvent = Readonly<Record<string, unknown>> & { readonly type: string };

const TEXT = "Grüße 👋";
const TOKENS = { input_tokens: 3, output_tokens: 2, total_tokens: 5 };
const IMAGE = Buffer.from("not really a picture").toString("base64");

/** A binary answer with every possible byte. */
export const BYTES: Uint8Array = Uint8Array.from({ length: 1024 }, (_, index) => index % 256);
/** An answer of JSON lines. */
export const LINES: string = [1, 2].map((index) =>
  `${
    JSON.stringify({
      custom_id: `row-${index}`,
      result: { type: "errored", error: { type: "error", message: TEXT } },
    })
  }\n`
).join("");

const CONTENT = { type: "output_text", text: TEXT, annotations: [], logprobs: [] };
const MESSAGE = {
  id: "msg_1",
  type: "message",
  role: "assistant",
  status: "completed",
  content: [CONTENT],
};
const RESPONSE = {
  id: "resp_1",
  object: "response",
  created_at: 1_700_000_000,
  model: "test-1",
  status: "completed",
  error: null,
  incomplete_details: null,
  tools: [],
  output: [MESSAGE],
  usage: {
    ...TOKENS,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens_details: { reasoning_tokens: 0 },
  },
};
const RUN = { id: "run_1", object: "thread.run", thread_id: "thread_1", status: "completed" };
const IMAGES = { created: 1_700_000_000, data: [{ b64_json: IMAGE }], usage: TOKENS };
const ANTHROPIC_MESSAGE = {
  id: "msg_1",
  type: "message",
  role: "assistant",
  model: "test-1",
  content: [{ type: "text", text: TEXT }],
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: { input_tokens: 3, output_tokens: 2 },
};

/** Answers that differ from the default object; the same for POST and GET. */
const OBJECTS: Readonly<Record<string, object>> = {
  "/chat/completions": JSON.parse(COMPLETION),
  "/completions": {
    id: "cmpl-1",
    object: "text_completion",
    created: 1_700_000_000,
    model: "test-1",
    choices: [{ index: 0, text: TEXT, finish_reason: "stop", logprobs: null }],
    usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
  },
  "/embeddings": {
    object: "list",
    model: "test-1",
    data: [{
      object: "embedding",
      index: 0,
      embedding: Buffer.from(Float32Array.of(0.5, -1, 2).buffer).toString("base64"),
    }],
    usage: { prompt_tokens: 3, total_tokens: 3 },
  },
  "/moderations": {
    id: "modr-1",
    model: "test-1",
    results: [{ flagged: false, categories: {}, category_scores: {} }],
  },
  "/images/generations": IMAGES,
  "/images/edits": IMAGES,
  "/images/variations": IMAGES,
  "/audio/transcriptions": { text: TEXT, usage: { type: "tokens", ...TOKENS } },
  "/audio/translations": { text: TEXT },
  "/responses": RESPONSE,
  "/responses/:response_id": RESPONSE,
  "/responses/:response_id/cancel": RESPONSE,
  "/responses/compact": { ...RESPONSE, object: "response.compaction" },
  "/responses/input_tokens": { object: "response.input_tokens", input_tokens: 3 },
  "/threads/runs": RUN,
  "/messages": ANTHROPIC_MESSAGE,
  "/messages/count_tokens": { input_tokens: 3 },
  "/agents/sessions/:session_id": { id: "session_1", object: "agent.session", status: "idle" },
  "/files/:file_id": {
    id: "file-1",
    object: "file",
    bytes: 3,
    filename: "a.txt",
    status: "processed",
  },
};

/**
 * @param method The call's method
 * @param path The operation's path, with the names of its parameters
 * @param called The path of the call
 * @returns The answer of an operation that answers one object
 */
export function toObject(method: string, path: string, called: string): object {
  const id = decodeURIComponent(called.split("/").at(-1) ?? "");
  if (method === "DELETE") return { id, object: "deleted", deleted: true };
  if (path.includes("/runs")) return RUN;
  if (/^\/organization\/(?:usage|costs)/.test(path)) {
    return { object: "page", data: [], has_more: false, next_page: null };
  }
  return OBJECTS[path] ??
    { id, object: "thing", created_at: 1_700_000_000, status: "completed", name: TEXT };
}

/** Two pages: the second one is returned for the cursor of any library. */
export function toPage(query: URLSearchParams): object {
  const isLast = ["after", "after_id", "page"].some((name) => query.has(name));
  const ids = isLast ? ["item-3"] : ["item-1", "item-2"];
  return {
    object: "list",
    data: ids.map((id) => ({ id, type: "thing", name: TEXT })),
    first_id: ids[0],
    last_id: ids.at(-1),
    has_more: !isLast,
    next: isLast ? null : ids.at(-1),
    next_page: isLast ? null : ids.at(-1),
  };
}

const name = (events: readonly NamedEvent[]): string =>
  events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");

function streamResponse(): string {
  const place = { item_id: MESSAGE.id, output_index: 0, content_index: 0 };
  const begun = { ...RESPONSE, status: "in_progress", output: [], usage: null };
  const events: NamedEvent[] = [
    { type: "response.created", response: begun },
    {
      type: "response.output_item.added",
      output_index: 0,
      item: { ...MESSAGE, status: "in_progress", content: [] },
    },
    { type: "response.content_part.added", ...place, part: { ...CONTENT, text: "" } },
    ...Array.from(
      TEXT,
      (delta) => ({ type: "response.output_text.delta", ...place, delta, logprobs: [] }),
    ),
    { type: "response.output_text.done", ...place, text: TEXT, logprobs: [] },
    { type: "response.content_part.done", ...place, part: CONTENT },
    { type: "response.output_item.done", output_index: 0, item: MESSAGE },
    { type: "response.completed", response: RESPONSE },
  ];
  return name(events.map((event, index) => ({ ...event, sequence_number: index })));
}

function streamRun(): string {
  const runs = ["created", "in_progress", "completed"].map((
    status,
  ) => [`thread.run.${status}`, { ...RUN, status }]);
  const events = runs.map(([type, data]) => `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`);
  return `${events.join("")}event: done\ndata: [DONE]\n\n`;
}

/** A stream whose events have no names, for both kinds of completions. */
function streamChoices(object: string, choices: readonly object[]): string {
  const head = { id: "cmpl-1", object, created: 1_700_000_000, model: "test-1" };
  const chunks = choices.map((choice) => ({
    ...head,
    choices: [{ index: 0, finish_reason: null, ...choice }],
  }));
  return `${chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("")}data: [DONE]\n\n`;
}

const streamChat = () =>
  streamChoices("chat.completion.chunk", [
    { delta: { role: "assistant", content: "" } },
    ...Array.from(TEXT, (content) => ({ delta: { content } })),
    { delta: {}, finish_reason: "stop" },
  ]);

const streamText = () =>
  streamChoices("text_completion", [
    ...Array.from(TEXT, (text) => ({ text })),
    { text: "", finish_reason: "stop" },
  ]);

function streamMessage(): string {
  return name([
    { type: "message_start", message: { ...ANTHROPIC_MESSAGE, content: [], stop_reason: null } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    { type: "ping" },
    ...Array.from(
      TEXT,
      (text) => ({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } }),
    ),
    { type: "content_block_stop", index: 0 },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: { output_tokens: 2 },
    },
    { type: "message_stop" },
  ]);
}

const streamImage = (kind: string) =>
  name([
    { type: `${kind}.partial_image`, b64_json: IMAGE, partial_image_index: 0 },
    { type: `${kind}.completed`, b64_json: IMAGE, usage: TOKENS },
  ]);

const streamSession = () =>
  name([{ type: "agent.message", id: "1", content: [] }, { type: "session.status_idle", id: "2" }]);

const STREAMS: Readonly<Record<string, () => string>> = {
  "/chat/completions": streamChat,
  "/completions": streamText,
  "/responses": streamResponse,
  "/responses/:response_id": streamResponse,
  "/images/generations": () => streamImage("image_generation"),
  "/images/edits": () => streamImage("image_edit"),
  "/audio/speech": () =>
    name([{ type: "speech.audio.delta", audio: IMAGE }, {
      type: "speech.audio.done",
      usage: TOKENS,
    }]),
  "/audio/transcriptions": () =>
    name([
      ...Array.from(TEXT, (delta) => ({ type: "transcript.text.delta", delta })),
      { type: "transcript.text.done", text: TEXT, usage: { type: "tokens", ...TOKENS } },
    ]),
  "/messages": streamMessage,
  "/sessions/:session_id/events/stream": streamSession,
  "/sessions/:session_id/threads/:thread_id/stream": streamSession,
  "/agents/sessions/:session_id/events": () =>
    name([
      {
        type: "agent.session.turn.created",
        event_id: "1",
        turn_id: "turn_1",
        turn: { subagent_id: null },
      },
      { type: "agent.session.turn.completed", event_id: "2", turn_id: "turn_1" },
      { type: "agent.session.idle", event_id: "3" },
    ]),
};

/** The stream of an operation, by its path. */
export function toStream(path: string): string {
  return (STREAMS[path] ?? streamRun)();
}
