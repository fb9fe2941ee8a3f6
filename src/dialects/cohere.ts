/**
 * Cohere's interface (https://docs.cohere.com/reference/chat-stream). Its client library reads no
 * event of an error, and takes the end of any stream for success, so the connection breaks instead.
 *
 * @module
 */
import type { ErrorContent } from "../errors/gateway_error.ts";
import { AnyUsage, readAnyUsage } from "./any_usage.ts";
import { countPlainOutput } from "./content_count.ts";
import type { Dialect } from "./dialect.ts";
import { PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { createParsedTypes, type EventData, TypedEventScanner } from "./typed_events.ts";

const TYPES = createParsedTypes("message-end");

/** Watches one stream of a message. */
class MessageScanner extends TypedEventScanner {
  override readonly clientsReadErrorEvent: boolean = false;

  constructor() {
    super(TYPES);
  }

  protected override readEvent(type: unknown, event: EventData, json: string): boolean {
    if (type !== "message-end") return false;
    const any = new AnyUsage();
    any.add(event, json);
    this.usage = any.usage;
    return true;
  }

  toErrorEvent(): string {
    return "";
  }
}

/** Makes an error in Cohere's form. `code` and `param` are additional fields of the gateway. */
function toErrorBody({ message, param, code }: ErrorContent): string {
  return JSON.stringify({ message, code, param });
}

/** The dialect of Cohere. */
export const COHERE: Dialect = {
  createScanner: () => new MessageScanner(),
  createMeter: () => new PlainAnswerMeter(readAnyUsage),
  readUsage: (answer) => readPlainUsage(answer, readAnyUsage),
  countOutput: countPlainOutput,
  toErrorBody,
};
