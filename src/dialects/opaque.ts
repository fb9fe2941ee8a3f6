/**
 * Interfaces of which nothing is known: a stream is complete when it ends, no answer states usage, and errors are
 * OpenAI's.
 *
 * @module
 */
import { type GatewayError, toErrorJson } from "../errors/gateway_error.ts";
import type { AnswerMeter, Dialect, StreamScanner } from "./dialect.ts";
import { EventScanner } from "./event_scanner.ts";

/** Watches one stream for the boundaries of its events, and for one that is named `error`. */
class OpaqueScanner extends EventScanner implements StreamScanner {
  isComplete = false;
  readonly usage = undefined;

  get isDone(): boolean {
    return this.isComplete;
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

const METER: AnswerMeter = { usage: undefined, outputTokens: 0, push() {} };

/** The dialect of everything else. */
export const OPAQUE: Dialect = {
  createScanner: () => new OpaqueScanner(),
  createMeter: () => METER,
  readUsage: () => undefined,
  countOutput: () => 0,
  toErrorBody: toErrorJson,
};
