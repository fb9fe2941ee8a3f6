/**
 * Streams of the interfaces whose events contain their types, written with the types of the client
 * libraries.
 */
import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";

/** An event of any of these interfaces. */
export interface TypedEvent {
  readonly type: string;
}

/** Formats an event as providers send it. */
export function toEvent(event: TypedEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

/** A stream of these events. */
export function toStream(events: readonly TypedEvent[]): string {
  return events.map(toEvent).join("");
}

type ResponseEvent = OpenAI.Responses.ResponseStreamEvent;
type Unnumbered<Event> = Event extends unknown ? Omit<Event, "sequence_number"> : never;

/** Adds `output_text` only to the type: the library computes it, and it is not sent. */
const asResponse = (response: WireResponse): OpenAI.Responses.Response =>
  response as OpenAI.Responses.Response;
type WireResponse = Omit<OpenAI.Responses.Response, "output_text">;

const RESPONSE = asResponse({
  id: "resp_1",
  access_programs: null,
  object: "response",
  created_at: 1_700_000_000,
  status: "in_progress",
  error: null,
  incomplete_details: null,
  instructions: null,
  metadata: {},
  model: "test-1",
  output: [],
  parallel_tool_calls: true,
  temperature: 1,
  tool_choice: "auto",
  tools: [{
    type: "function",
    name: "forecast",
    parameters: { type: "object", properties: {} },
    strict: true,
  }],
  top_p: 1,
});
const MESSAGE: OpenAI.Responses.ResponseOutputMessage = {
  id: "msg_1",
  type: "message",
  status: "completed",
  role: "assistant",
  content: [{ type: "output_text", text: "Hello 👋", annotations: [] }],
};

/** A complete response. */
export const FINAL_RESPONSE: OpenAI.Responses.Response = {
  ...RESPONSE,
  status: "completed",
  output: [MESSAGE],
  usage: {
    input_tokens: 20,
    input_tokens_details: { cached_tokens: 8, cache_write_tokens: 0 },
    output_tokens: 7,
    output_tokens_details: { reasoning_tokens: 3 },
    total_tokens: 27,
  },
};

/**
 * The events of a response with the text "hello". @param end The last one @param from The number of
 * the first one
 */
export function responseEvents(
  end: Unnumbered<ResponseEvent> = { type: "response.completed", response: FINAL_RESPONSE },
  from = 0,
): readonly ResponseEvent[] {
  const at = { item_id: "msg_1", output_index: 0, content_index: 0 } as const;
  const part = { type: "output_text", text: "", annotations: [] } as const;
  const events: readonly Unnumbered<ResponseEvent>[] = [
    { type: "response.created", response: RESPONSE },
    { type: "response.in_progress", response: RESPONSE },
    {
      type: "response.output_item.added",
      output_index: 0,
      item: { ...MESSAGE, status: "in_progress", content: [] },
    },
    { type: "response.content_part.added", ...at, part: { ...part, annotations: [] } },
    { type: "response.output_text.delta", ...at, delta: "Hello", logprobs: [] },
    {
      type: "response.output_text.delta",
      ...at,
      delta: ' 👋 "type":"response.completed"',
      logprobs: [],
    },
    { type: "response.output_text.done", ...at, text: "Hello 👋", logprobs: [] },
    {
      type: "response.content_part.done",
      ...at,
      part: { ...part, text: "Hello 👋", annotations: [] },
    },
    { type: "response.output_item.done", output_index: 0, item: MESSAGE },
    end,
  ];
  // Providers write an event's number directly after its type.
  return events.map(({ type, ...rest }, index) =>
    ({ type, sequence_number: from + index, ...rest }) as ResponseEvent
  );
}

const IMAGE = {
  b64_json: "iVBORw0KGgo=",
  background: "opaque",
  created_at: 1_700_000_000,
  output_format: "png",
  quality: "low",
  size: "1024x1024",
} as const;
const IMAGE_USAGE: OpenAI.ImageGenCompletedEvent.Usage = {
  total_tokens: 110,
  input_tokens: 10,
  output_tokens: 100,
  input_tokens_details: { text_tokens: 10, image_tokens: 0 },
};

/** The events of one generated image. */
export const IMAGE_EVENTS: readonly OpenAI.ImageGenStreamEvent[] = [
  { type: "image_generation.partial_image", partial_image_index: 0, ...IMAGE },
  { type: "image_generation.partial_image", partial_image_index: 1, ...IMAGE },
  { type: "image_generation.completed", ...IMAGE, usage: IMAGE_USAGE },
];

/** The events of one edited image. */
export const EDIT_EVENTS: readonly OpenAI.ImageEditStreamEvent[] = [
  { type: "image_edit.partial_image", partial_image_index: 0, ...IMAGE },
  { type: "image_edit.completed", ...IMAGE, usage: IMAGE_USAGE },
];

/**
 * The events of speech; the library has no types for them
 * (https://platform.openai.com/docs/api-reference/audio).
 */
export const SPEECH_EVENTS: readonly (TypedEvent & Readonly<Record<string, unknown>>)[] = [
  { type: "speech.audio.delta", audio: "SUQzBAA=" },
  { type: "speech.audio.delta", audio: "AAAAAA==" },
  { type: "speech.audio.done", usage: { input_tokens: 14, output_tokens: 101, total_tokens: 115 } },
];

/** The events of a transcript. */
export const TRANSCRIPT_EVENTS: readonly OpenAI.Audio.TranscriptionStreamEvent[] = [
  { type: "transcript.text.delta", delta: "Hello" },
  { type: "transcript.text.segment", id: "seg_1", start: 0, end: 1, speaker: "A", text: "Hello" },
  {
    type: "transcript.text.done",
    text: "Hello",
    usage: { type: "tokens", input_tokens: 14, output_tokens: 2, total_tokens: 16 },
  },
];

/** A complete message. */
export const FINAL_MESSAGE: Anthropic.Message = {
  id: "msg_1",
  type: "message",
  role: "assistant",
  model: "test-1",
  content: [{ type: "text", text: "Hello 👋", citations: null }],
  container: null,
  diagnostics: null,
  stop_details: null,
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: {
    input_tokens: 5,
    cache_creation_input_tokens: 7,
    cache_read_input_tokens: 11,
    cache_creation: { ephemeral_5m_input_tokens: 7, ephemeral_1h_input_tokens: 0 },
    output_tokens: 13,
    output_tokens_details: { thinking_tokens: 2 },
    inference_geo: null,
    server_tool_use: null,
    service_tier: "standard",
    speed: null,
  },
};

/** The events of a message with the text "hello". */
export const MESSAGE_EVENTS:
  readonly (Anthropic.RawMessageStreamEvent | { readonly type: "ping" })[] = [
    {
      type: "message_start",
      message: {
        ...FINAL_MESSAGE,
        content: [],
        stop_reason: null,
        usage: { ...FINAL_MESSAGE.usage, output_tokens: 1, output_tokens_details: null },
      },
    },
    {
      type: "content_block_start",
      index: 0,
      content_block: { type: "text", text: "", citations: null },
    },
    { type: "ping" },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hello" } },
    {
      type: "content_block_delta",
      index: 0,
      delta: { type: "text_delta", text: ' 👋 {"type":"message_stop"}' },
    },
    { type: "content_block_stop", index: 0 },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null, stop_details: null, container: null },
      usage: {
        input_tokens: null,
        cache_creation_input_tokens: null,
        cache_read_input_tokens: null,
        output_tokens: 13,
        output_tokens_details: { thinking_tokens: 2 },
        server_tool_use: null,
      },
    },
    { type: "message_stop" },
  ];
