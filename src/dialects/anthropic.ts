/**
 * Anthropic's interface of messages (https://docs.claude.com/en/api/messages-streaming, and
 * `errors` next to it).
 *
 * @module
 */
import { ERRORS } from "../errors/codes.ts";
import type { ErrorContent, GatewayError } from "../errors/gateway_error.ts";
import {
  mergeCounts,
  type MessageCounts,
  readMessageUsage,
  sumMessageUsage,
} from "./anthropic_usage.ts";
import { countPlainOutput } from "./content_count.ts";
import type { Dialect } from "./dialect.ts";
import { PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { createParsedTypes, type EventData, TypedEventScanner } from "./typed_events.ts";
import { countIn, fieldOf } from "./usage_classes.ts";

/**
 * The types that `readEvent` needs. Most events of other types are not parsed, except errors and
 * events that do not begin with their type.
 */
const TYPES = createParsedTypes("message_start", "message_delta", "message_stop");

/** Watches one stream of a message. */
class MessageScanner extends TypedEventScanner {
  #counts: MessageCounts = {};
  /** True once all output is stated. The beginning of a message states its first tokens only. */
  #isOutputStated = false;

  constructor() {
    super(TYPES);
  }

  protected override readEvent(type: unknown, event: EventData): boolean {
    if (type === "message_start") this.#add(event.message);
    if (type === "message_delta") {
      this.#isOutputStated ||= countIn(event.usage, "output_tokens") !== undefined;
      this.#add(event);
    }
    if (type !== "message_stop") return false;
    if (!this.#isOutputStated) this.#add({ usage: { output_tokens: 0 } });
    return true;
  }

  /** Adds the usage of an event. A provider states running totals. */
  #add(message: unknown): void {
    this.#counts = mergeCounts(this.#counts, fieldOf(message, "usage"));
    this.usage = sumMessageUsage(this.#counts);
  }

  toErrorEvent(error: GatewayError): string {
    return `event: error\ndata: ${toErrorBody(error)}\n\n`;
  }
}

/** Types of errors by status (https://docs.claude.com/en/api/errors). */
const ERROR_TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
  504: "timeout_error",
};

/**
 * Makes an error in Anthropic's form. `code` and `param` are additional fields of the gateway. The
 * client library reads the code from the details.
 */
function toErrorBody({ message, param, code }: ErrorContent): string {
  const { status } = ERRORS[code];
  const type = ERROR_TYPES[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
  return JSON.stringify({
    type: "error",
    error: { type, message, param, code, details: { error_code: code } },
  });
}

/** The dialect of messages. */
export const ANTHROPIC: Dialect = {
  createScanner: () => new MessageScanner(),
  createMeter: () => new PlainAnswerMeter(readMessageUsage),
  readUsage: (answer) => readPlainUsage(answer, readMessageUsage),
  countOutput: countPlainOutput,
  toErrorBody,
};
