/**
 * Unknown interfaces: a stream is complete when it ends, no answer states usage, tokens are counted
 * from bytes, and errors have OpenAI's form. Client libraries can ignore an error event, so the
 * connection breaks too.
 *
 * @module
 */
import { type GatewayError, toErrorJson } from "../errors/gateway_error.ts";
import { countStream, countText } from "./content_count.ts";
import type { AnswerMeter, Dialect, StreamScanner } from "./dialect.ts";
import { EventScanner } from "./event_scanner.ts";

/** Watches one stream for the boundaries of its events, and for an event named `error`. */
class OpaqueScanner extends EventScanner implements StreamScanner {
  override readonly hasErrorEvent: boolean = false;
  isComplete = false;
  readonly isDone = false;
  readonly usage = undefined;
  #byteLength = 0;

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

  protected override readLine(): void {}

  protected override readText(): void {}

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

/** The dialect of all other interfaces. */
export const OPAQUE: Dialect = {
  createScanner: () => new OpaqueScanner(),
  createMeter: () => new TextMeter(),
  readUsage: () => undefined,
  countOutput: (answer) => Math.ceil(countText(answer)),
  toErrorBody: toErrorJson,
};
