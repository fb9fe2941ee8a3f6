/**
 * Google's interface for Gemini (https://ai.google.dev/api/generate-content), at the Gemini API and
 * at Vertex AI. Each event of a stream is a whole answer with its next part and running totals of
 * usage. Nothing follows the last one.
 *
 * @module
 */
import { ERRORS } from "../errors/codes.ts";
import type { ErrorContent, GatewayError } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { AnyUsage, createAnyReader } from "./any_usage.ts";
import { countPlainOutput } from "./content_count.ts";
import type { Dialect, StreamScanner } from "./dialect.ts";
import { EventScanner } from "./event_scanner.ts";
import { ListScanner } from "./json_list.ts";
import { PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { countIn, fieldOf, listIn, nameOf } from "./usage_classes.ts";

/** Depth of the lists of searches in an event, and in a list of answers. */
const LIST_DEPTH = 5;
/** The most candidates that are tracked. `candidateCount` is at most 8 (Google's reference). */
const MAX_CANDIDATES = 128;
const utf8 = new TextDecoder();

/**
 * Watches one stream of answers. An event counts only after its blank line: Google's client library
 * throws if a stream ends without it, and other clients drop the event. Its usage counts at once.
 */
class AnswerScanner extends EventScanner implements StreamScanner {
  readonly #any: AnyUsage;
  /** The candidates that have begun, each with true if it has finished. */
  readonly #candidates = new Map<number, boolean>();
  #isBlocked = false;
  /** The unfinished event, if it is an answer. */
  #event: unknown;

  constructor(model: string | undefined) {
    super(undefined, LIST_DEPTH);
    this.#any = new AnyUsage(model);
  }

  get usage(): TokenUsage | undefined {
    return this.#any.usage;
  }

  /**
   * True once all candidates that began have their reason for the end, or after a refusal of the
   * prompt. Google can return fewer candidates than were requested.
   */
  get isComplete(): boolean {
    if (this.#isBlocked) return true;
    return this.#candidates.size > 0 && !Array.from(this.#candidates.values()).includes(false);
  }

  get hasLastEvent(): boolean {
    return this.isComplete && this.usage !== undefined;
  }

  protected override readLine(bytes: Uint8Array, start: number, end: number): void {
    if (!this.hasSeveralLines) this.readText(utf8.decode(bytes.subarray(start, end)));
  }

  protected override readText(json: string): void {
    try {
      this.#event = JSON.parse(json);
      this.#any.add(this.#event, json);
    } catch {
      // Not an answer. It is forwarded, and does not count as an end.
    }
  }

  protected override endEvent(): void {
    const event = this.#event;
    this.#event = undefined;
    if (fieldOf(event, "error") !== undefined) this.hasError = true;
    if (nameOf(fieldOf(fieldOf(event, "promptFeedback"), "blockReason"))) this.#isBlocked = true;
    for (const candidate of listIn(event, "candidates")) this.#note(candidate);
  }

  #note(candidate: unknown): void {
    const index = countIn(candidate, "index") ?? 0; // Google leaves out zeros
    const hadFinished = this.#candidates.get(index);
    if (hadFinished === undefined && this.#candidates.size >= MAX_CANDIDATES) return;
    const isFinished = nameOf(fieldOf(candidate, "finishReason")) !== undefined;
    this.#candidates.set(index, isFinished || hadFinished === true);
  }

  // Version 3 of Google's client library throws on the event. Version 1, as in Gemini CLI, skips it,
  // but throws if the stream ends within an event. Other clients ignore the comment.
  toErrorEvent(error: GatewayError): string {
    return `data: ${toErrorBody(error)}\n\n: incomplete`;
  }
}

/** Names of statuses (https://cloud.google.com/apis/design/errors#error_model). */
const STATUS_NAMES: Readonly<Record<number, string>> = {
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  409: "ABORTED",
  426: "FAILED_PRECONDITION",
  429: "RESOURCE_EXHAUSTED",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "DEADLINE_EXCEEDED",
};
const TYPES = "type.googleapis.com/google.rpc";

/**
 * Makes an error in Google's form. Its details have the gateway's code and `param`, and the time
 * after which to retry, which Gemini CLI waits.
 */
function toErrorBody({ message, param, code, retryAfterMs }: ErrorContent): string {
  const { status } = ERRORS[code];
  const metadata = { code, ...(param !== null && { param }) };
  const details: unknown[] = [
    { "@type": `${TYPES}.ErrorInfo`, reason: code.toUpperCase(), domain: "sallyport", metadata },
  ];
  if (retryAfterMs !== undefined) {
    details.push({ "@type": `${TYPES}.RetryInfo`, retryDelay: `${retryAfterMs / 1000}s` });
  }
  const name = STATUS_NAMES[status] ?? (status < 500 ? "INVALID_ARGUMENT" : "INTERNAL");
  return JSON.stringify({ error: { code: status, message, status: name, details } });
}

/** The dialect of Gemini, without streams in lists. */
const EVENTS: Dialect = {
  // Version 1 of Google's client library reads no event after a comment, but skips blank lines.
  keepAlive: "\n",
  createScanner: (_answers, model) => new AnswerScanner(model),
  createMeter: (model) => new PlainAnswerMeter(createAnyReader(model), { listDepth: LIST_DEPTH }),
  readUsage: (answer, model) => readPlainUsage(answer, createAnyReader(model)),
  countOutput: countPlainOutput,
  toErrorBody,
};

/** The dialect of Gemini. Without `alt=sse`, a stream is a list. */
export const GEMINI: Dialect = {
  ...EVENTS,
  list: {
    ...EVENTS,
    streamType: "application/json",
    keepAlive: "",
    createScanner: (_answers, model) => new ListScanner(new AnswerScanner(model)),
  },
};
