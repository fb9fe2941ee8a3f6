/**
 * Bedrock's interface (https://docs.aws.amazon.com/bedrock/latest/APIReference/): `Converse` and
 * `InvokeModel`, plain and streamed. Streams have frames, in which no event of the gateway can be
 * inserted, so the connection breaks instead.
 *
 * @module
 */
import { ERRORS } from "../errors/codes.ts";
import type { ErrorContent } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { AnyUsage, readAnyUsage } from "./any_usage.ts";
import { countPlainOutput, countStream } from "./content_count.ts";
import type { Dialect, StreamScanner } from "./dialect.ts";
import { type Frame, FrameReader } from "./event_frames.ts";
import { METRICS, readBedrockHeaders, readBedrockTier } from "./other_usage.ts";
import { PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { fieldOf } from "./usage_classes.ts";

/** Events of Anthropic's models that state usage, also what the metrics leave out. */
const MESSAGE_EVENTS: readonly unknown[] = ["message_start", "message_delta"];
const STATEMENT = new RegExp(`"(?:${METRICS}|message_start|message_delta)"`);
const utf8 = new TextDecoder();

/** Reads the event in a frame of `InvokeModel`, which is JSON in base64. */
function readChunk(payload: string): string {
  const bytes = fieldOf(JSON.parse(payload), "bytes");
  if (typeof bytes !== "string") return "";
  return utf8.decode(Uint8Array.from(atob(bytes), (character) => character.charCodeAt(0)));
}

/** Watches one stream of frames. */
class FrameScanner implements StreamScanner {
  readonly clientsReadErrorEvent = false;
  readonly boundary = "";
  payloadCount = 0;
  isComplete = false;
  hasLastEvent = false;
  hasError = false;
  #byteLength = 0;
  readonly #any = new AnyUsage();
  readonly #frames = new FrameReader((frame) => this.#note(frame));

  get usage(): TokenUsage | undefined {
    return this.#any.usage;
  }

  get outputTokens(): number {
    return countStream(this.#byteLength);
  }

  get isAtBoundary(): boolean {
    return this.#frames.isAtBoundary;
  }

  push(chunk: Uint8Array): void {
    this.#byteLength += chunk.length;
    this.#frames.push(chunk);
  }

  /** A stream that ends within a frame has lost something, whatever it stated before. */
  end(): void {
    if (!this.#frames.isAtBoundary) this.isComplete = this.hasLastEvent = false;
  }

  #note({ headers, payload }: Frame): void {
    this.payloadCount++;
    if (headers.get(":message-type") !== "event") this.hasError = true;
    try {
      this.#noteEvent(headers.get(":event-type"), utf8.decode(payload));
    } catch {
      // Not an event of this interface. It is forwarded, and does not count as an end.
    }
  }

  #noteEvent(type: string | undefined, text: string): void {
    if (type === "messageStop") this.isComplete = true;
    else if (type === "metadata") {
      this.#any.add(JSON.parse(text), text);
      this.hasLastEvent = this.isComplete;
    } else if (type === "chunk") this.#noteChunk(readChunk(text));
  }

  #noteChunk(json: string): void {
    if (!STATEMENT.test(json)) return;
    const event = JSON.parse(json);
    const type = fieldOf(event, "type");
    if (MESSAGE_EVENTS.includes(type)) {
      // Without its model: the path names it as Bedrock's prices do.
      const usage = fieldOf(event, "usage");
      const message = { usage: fieldOf(fieldOf(event, "message"), "usage") };
      this.#any.add({ type, usage, message }, json);
    }
    const metrics = fieldOf(event, METRICS);
    if (metrics === undefined) return; // a text can contain its name
    this.#any.add({ [METRICS]: metrics }, json);
    this.isComplete = this.hasLastEvent = true;
  }

  toErrorEvent(): string {
    return "";
  }
}

/** Names of errors by status, which decide the class of the error in AWS's libraries. */
const ERROR_NAMES: Readonly<Record<number, string>> = {
  401: "UnrecognizedClientException",
  403: "AccessDeniedException",
  404: "ResourceNotFoundException",
  408: "ModelTimeoutException",
  429: "ThrottlingException",
  503: "ServiceUnavailableException",
  504: "ModelTimeoutException",
};

/** Makes an error in AWS's form. `code` and `param` are additional fields of the gateway. */
function toErrorBody({ message, param, code }: ErrorContent): string {
  const { status } = ERRORS[code];
  const name = ERROR_NAMES[status] ??
    (status < 500 ? "ValidationException" : "InternalServerException");
  return JSON.stringify({ __type: name, message, gatewayCode: code, param });
}

/** The dialect of Bedrock. */
export const BEDROCK: Dialect = {
  streamType: "application/vnd.amazon.eventstream",
  keepAlive: "",
  createScanner: () => new FrameScanner(),
  createMeter: () => new PlainAnswerMeter(readAnyUsage),
  readUsage: (answer) => readPlainUsage(answer, readAnyUsage),
  readHeaderUsage: readBedrockHeaders,
  readHeaderTier: readBedrockTier,
  countOutput: countPlainOutput,
  toErrorBody,
};
