/**
 * Streams in which every event states its type, in the `type` of its data and in its name: all
 * except chat completions. Only a few types decide about a stream. Events of other types pass after
 * a check of their beginning.
 *
 * @module
 */
import type { GatewayError } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { skipSpace, startsWithAt } from "./byte_search.ts";
import { needsParsing } from "./chunk_search.ts";
import type { ContentMarks } from "./content_count.ts";
import type { StreamScanner } from "./dialect.ts";
import { EventScanner, isDoneLine } from "./event_scanner.ts";

const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const ascii = (text: string): Uint8Array => new TextEncoder().encode(text);
const TYPE = ascii('"type"');
/** Ends of types and keys. Events of an unknown type can have content. */
const CONTENT_MARKS: ContentMarks = {
  spoken: ['delta"', 'partial_image"'].map(ascii),
  silent: [
    'done"',
    'completed"',
    'created"',
    'added"',
    'start"',
    'stop"',
    'progress"',
    'queued"',
    'incomplete"',
  ]
    .concat(['failed"', 'error"', 'ping"', 'searching"', 'generating"', 'interpreting"']).map(
      ascii,
    ),
};
const utf8 = new TextDecoder();

/** The parsed data of an event. */
export type EventData = Readonly<Record<string, unknown>>;

/** The types of events that are parsed, because they decide about a stream, each with its bytes. */
export type ParsedTypes = ReadonlyMap<string, Uint8Array>;

/** Makes the parsed types of an interface. All include `error`. */
export function createParsedTypes(...types: readonly string[]): ParsedTypes {
  return new Map(["error", ...types].map((type) => [type, ascii(type)]));
}

/** Finds the value of `type` if it is the first key of the data; -1 if another key is first. */
function leadingTypeAt(bytes: Uint8Array, start: number): number {
  const brace = skipSpace(bytes, start);
  if (bytes[brace] !== OPEN_OBJECT) return -1;
  const key = skipSpace(bytes, brace + 1);
  if (!startsWithAt(bytes, TYPE, key)) return -1;
  const colon = skipSpace(bytes, key + TYPE.length);
  if (bytes[colon] !== COLON) return -1;
  const value = skipSpace(bytes, colon + 1);
  return bytes[value] === QUOTE ? value + 1 : -1;
}

/**
 * Scans one stream. An event counts only after its blank line, because client libraries drop an
 * event without one.
 *
 * The type of an event is the `type` if that is the first key of its data, else its name, else a
 * `type` elsewhere in the data.
 */
export abstract class TypedEventScanner extends EventScanner implements StreamScanner {
  hasLastEvent = false;
  usage: TokenUsage | undefined;

  readonly #types: ParsedTypes;
  /**
   * Name of the unfinished event: one of the parsed types, `""` for any other, `undefined` without
   * a name.
   */
  #name: string | undefined;
  #isError = false;
  #event: EventData | undefined;
  /** Text of {@link #event}. */
  #json = "";
  /** Type of {@link #event}. */
  #type: unknown;

  constructor(types: ParsedTypes) {
    super(CONTENT_MARKS);
    this.#types = types;
  }

  /** True after the event that ends the answer, or `[DONE]`. */
  get isComplete(): boolean {
    return this.hasLastEvent;
  }

  /**
   * Reads an event that can decide about the stream: its usage, and whether it is the last one.
   *
   * @param json The text of its data
   * @returns True if the stream ends with it
   */
  protected abstract readEvent(type: unknown, event: EventData, json: string): boolean;

  abstract toErrorEvent(error: GatewayError): string;

  protected override readName(bytes: Uint8Array, start: number, end: number): void {
    this.#name = "";
    for (const [type, word] of this.#types) {
      if (end - start === word.length && startsWithAt(bytes, word, start)) this.#name = type;
    }
  }

  protected override readLine(bytes: Uint8Array, start: number, end: number): void {
    if (this.hasSeveralLines) return; // several lines are one text
    if (isDoneLine(bytes, start, end)) this.hasLastEvent = true;
    else if (this.#mayDecide(bytes, start, end)) {
      this.readText(utf8.decode(bytes.subarray(start, end)));
    }
  }

  protected override readText(json: string): void {
    try {
      const event = JSON.parse(json);
      const leads = Object.keys(event)[0] === "type";
      this.#type = leads ? event.type : this.#name ?? event.type;
      this.#event = event;
      this.#json = json;
    } catch {
      // Not an event of this interface. It is forwarded, and does not count as an end.
    }
  }

  protected override noteError(): void {
    this.#isError = true;
  }

  protected override endEvent(): void {
    const event = this.#event;
    if (event !== undefined) {
      // Client libraries have the same check.
      if (this.#type === "error" || event.error) this.#isError = true;
      if (this.readEvent(this.#type, event, this.#json)) this.hasLastEvent = true;
    }
    if (this.#isError) this.hasError = this.hasLastEvent = true;
    this.#isError = false;
    this.#name = this.#event = undefined;
    this.#json = "";
  }

  /**
   * Returns whether a line can decide about the stream, and must be parsed. Most events begin with a
   * type that decides nothing.
   */
  #mayDecide(bytes: Uint8Array, start: number, end: number): boolean {
    const at = leadingTypeAt(bytes, start);
    if (at === -1 ? this.#name !== "" : this.#isParsedType(bytes, at)) return true;
    return needsParsing(bytes, start, end, this.isAlike); // an event of any type can contain an error
  }

  #isParsedType(bytes: Uint8Array, at: number): boolean {
    for (const word of this.#types.values()) {
      if (startsWithAt(bytes, word, at) && bytes[at + word.length] === QUOTE) return true;
    }
    return false;
  }
}
