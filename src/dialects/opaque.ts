/**
 * Unknown interfaces: a stream is complete when it ends, usage is read in every known form, and
 * errors have OpenAI's form. Client libraries can ignore an error event, so the connection breaks
 * too.
 *
 * @module
 */
import { type GatewayError, toErrorJson } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { AnyUsage, createAnyReader } from "./any_usage.ts";
import { countStream, countText } from "./content_count.ts";
import type { AnswerMeter, Dialect, StreamScanner } from "./dialect.ts";
import { EventScanner } from "./event_scanner.ts";
import { readBedrockHeaders, readBedrockTier } from "./other_usage.ts";
import { PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { WordSearch } from "./word_search.ts";

/** Parts of the keys that state usage or searches, such as `groundingMetadata`. */
const STATEMENTS = new WordSearch(['"usage"', '"usageM', "Metrics", "billed_", "roundin"]);
/** Depth of the lists of searches in an answer or an event. */
const SEARCHES_DEPTH = 5;
const utf8 = new TextDecoder();

/** Watches one stream for the boundaries of its events, for usage, and for an event of an error. */
class OpaqueScanner extends EventScanner implements StreamScanner {
  override readonly clientsReadErrorEvent: boolean = false;
  isComplete = false;
  readonly hasLastEvent = false;
  readonly #model: string | undefined;
  #any: AnyUsage | undefined;
  #byteLength = 0;

  constructor(model: string | undefined) {
    super(undefined, SEARCHES_DEPTH);
    this.#model = model;
  }

  get usage(): TokenUsage | undefined {
    return this.#any?.usage;
  }

  override get outputTokens(): number {
    return countStream(this.#byteLength);
  }

  override push(chunk: Uint8Array): void {
    this.#byteLength += chunk.length;
    super.push(chunk);
  }

  override end(): void {
    super.end();
    this.isComplete = true;
  }

  protected override readLine(bytes: Uint8Array, start: number, end: number): void {
    if (this.hasSeveralLines || !STATEMENTS.isIn(bytes, start, end)) return;
    this.readText(utf8.decode(bytes.subarray(start, end)));
  }

  protected override readText(json: string): void {
    try {
      const data = JSON.parse(json);
      this.#any ??= new AnyUsage(this.#model);
      this.#any.add(data, json);
    } catch {
      // Not JSON. It is forwarded, and states nothing.
    }
  }

  toErrorEvent(error: GatewayError): string {
    return `event: error\ndata: ${toErrorJson(error)}\n\n`;
  }
}

/** Counts the text of a plain answer. */
class TextMeter implements AnswerMeter {
  readonly usage = undefined;
  #tokens = 0;

  get outputTokens(): number {
    return Math.ceil(this.#tokens);
  }

  push(chunk: Uint8Array): void {
    this.#tokens += countText(chunk);
  }
}

const countOutput = (answer: Uint8Array): number => Math.ceil(countText(answer));

/** The dialect of all other interfaces. */
export const OPAQUE: Dialect = {
  createScanner: (_answers, model) => new OpaqueScanner(model),
  createMeter: (model) =>
    new PlainAnswerMeter(createAnyReader(model), {
      count: countOutput,
      listDepth: SEARCHES_DEPTH,
    }),
  readUsage: (answer, model) => readPlainUsage(answer, createAnyReader(model)),
  readHeaderUsage: readBedrockHeaders,
  readHeaderTier: readBedrockTier,
  countOutput,
  toErrorBody: toErrorJson,
};

/** The dialect of plain text, such as a transcript: it can repeat what a caller said. */
export const PLAIN_TEXT: Dialect = {
  ...OPAQUE,
  createMeter: () => new TextMeter(),
  readUsage: () => undefined,
};
