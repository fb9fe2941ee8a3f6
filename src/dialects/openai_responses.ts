/**
 * OpenAI's interface of responses
 * (https://platform.openai.com/docs/api-reference/responses-streaming): a stream of typed and
 * numbered events, which a later call can request again.
 *
 * @module
 */
import { ERRORS } from "../errors/codes.ts";
import { type GatewayError, toErrorJson } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { skipSpace, startsWithAt } from "./byte_search.ts";
import { countPlainOutput } from "./content_count.ts";
import type { Dialect } from "./dialect.ts";
import { readTokens } from "./openai_usage.ts";
import { readImageTool, readToolUnits } from "./response_tools.ts";
import { addTokens, PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { countIn, fieldOf, isCount } from "./usage_classes.ts";
import { createParsedTypes, type EventData, TypedEventScanner } from "./typed_events.ts";

const QUOTE = 0x22;
const COLON = 0x3a;
const ZERO = 0x30;
const NINE = 0x39;
const SEQUENCE_NUMBER = new TextEncoder().encode('"sequence_number"');

/** The events that end a stream. They contain the final response. */
const ENDS = ["response.completed", "response.incomplete", "response.failed"];
const TYPES = createParsedTypes(...ENDS);

const NAMES = ["input_tokens", "output_tokens"] as const;
/** Names of the counts at some compatible providers. */
const CHAT_NAMES = ["prompt_tokens", "completion_tokens"] as const;

/** States of a response in the background whose usage is not final. */
const UNFINISHED: ReadonlySet<unknown> = new Set(["queued", "in_progress"]);

/**
 * Reads the `usage` of a response, and the use of tools that have a price of their own.
 *
 * @param json The text that was parsed
 * @returns Its tokens; `undefined` if none are stated, or if the numbers are not counts
 */
export function readResponsesUsage(answer: unknown, json?: string): TokenUsage | undefined {
  const usage = fieldOf(answer, "usage");
  if (usage === undefined || usage === null) return undefined;
  if (UNFINISHED.has(fieldOf(answer, "status"))) return undefined; // it can still grow
  const tier = fieldOf(answer, "service_tier");
  const isOfChat = countIn(usage, "input_tokens") === undefined &&
    countIn(usage, "prompt_tokens") !== undefined;
  const own = readTokens(usage, isOfChat ? CHAT_NAMES : NAMES, {
    json,
    tier,
    units: readToolUnits(answer),
  });
  const tool = readImageTool(answer);
  return own === undefined || tool === undefined ? own : addTokens(own, tool);
}

/**
 * Reads the number of an event without parsing it; -1 if it has none. In a text the quotes would be
 * escaped.
 */
function sequenceNumberIn(bytes: Uint8Array, start: number, end: number): number {
  for (let at = start; at < end; at++) {
    if (bytes[at] !== QUOTE || !startsWithAt(bytes, SEQUENCE_NUMBER, at)) continue;
    const colon = skipSpace(bytes, at + SEQUENCE_NUMBER.length);
    if (bytes[colon] !== COLON) continue;
    let number = -1;
    for (let digit = skipSpace(bytes, colon + 1); digit < end; digit++) {
      const byte = bytes[digit] as number;
      if (byte < ZERO || byte > NINE) break;
      number = Math.max(number, 0) * 10 + byte - ZERO;
    }
    if (number !== -1) return number;
  }
  return -1;
}

const utf8 = new TextDecoder();

/** Bytes of an answer or of the first event of its stream that contain its id. */
const ID_WITHIN = 256;
const ID = /"id"\s*:\s*"([\w-]{1,128})"/; // in a text the quotes would be escaped

/** Reads the id of a response from the beginning of its answer, or of the first event. */
function readLaterId(answer: Uint8Array): string | undefined {
  return ID.exec(utf8.decode(answer.subarray(0, ID_WITHIN)))?.[1];
}

/** Watches one stream of a response. */
class ResponseScanner extends TypedEventScanner {
  laterId: string | undefined;
  #lastNumber = -1;

  constructor() {
    super(TYPES);
  }

  protected override readLine(bytes: Uint8Array, start: number, end: number): void {
    this.laterId ??= readLaterId(bytes.subarray(start, end));
    this.#countTo(sequenceNumberIn(bytes, start, end));
    super.readLine(bytes, start, end);
  }

  protected override readEvent(
    type: unknown,
    { response, sequence_number: number }: EventData,
    json: string,
  ): boolean {
    this.#countTo(number);
    if (!ENDS.includes(String(type))) return false;
    this.usage = readResponsesUsage(response, json) ?? this.usage;
    if (type === "response.failed") this.hasError = true;
    return true;
  }

  /** Makes the interface's own event, with the `error` field that makes client libraries throw. */
  toErrorEvent(error: GatewayError): string {
    const { message, param, code } = error;
    const data = {
      type: "error",
      code,
      message,
      param,
      sequence_number: this.#lastNumber + 1,
      error: { message, type: ERRORS[code].type, param, code },
    };
    return `event: error\ndata: ${JSON.stringify(data)}\n\n`;
  }

  #countTo(number: unknown): void {
    if (isCount(number)) this.#lastNumber = number;
  }
}

/** Returns whether a response in the background is not finished. */
function isUnfinished(answer: Uint8Array): boolean {
  try {
    return UNFINISHED.has(JSON.parse(utf8.decode(answer)).status);
  } catch {
    return false; // not JSON, forwarded anyway
  }
}

/** Counts the output of a plain answer; `undefined` if the provider makes the output later. */
const countOutput = (answer: Uint8Array): number | undefined =>
  isUnfinished(answer) ? undefined : countPlainOutput(answer);

/** The dialect of responses. */
export const OPENAI_RESPONSES: Dialect = {
  createScanner: () => new ResponseScanner(),
  createMeter: () => new PlainAnswerMeter(readResponsesUsage, { count: countOutput, readLaterId }),
  readUsage: (answer) => readPlainUsage(answer, readResponsesUsage),
  countOutput,
  readLaterId,
  toErrorBody: toErrorJson,
};
