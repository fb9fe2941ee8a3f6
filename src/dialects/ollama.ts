/**
 * Ollama's interface (https://docs.ollama.com/api). Its streams are lines of JSON, of which each has
 * about one token. The last one has `"done": true` and the counts.
 *
 * @module
 */
import type { ErrorContent, GatewayError } from "../errors/gateway_error.ts";
import type { TokenUsage } from "../exchange/billing.ts";
import { joinChunks } from "../http/read_all.ts";
import { countPlainOutput } from "./content_count.ts";
import { type Dialect, MAX_KEPT_BYTES, type StreamScanner } from "./dialect.ts";
import { JsonSkeleton } from "./json_skeleton.ts";
import { PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { countIn, divideInput, divideOutput, fieldOf, toUsage } from "./usage_classes.ts";

const LF = 0x0a;
const utf8 = new TextDecoder();

/** Reads the counts of an answer or of a stream's last line. A cached prompt is not counted. */
function readCounts(answer: unknown): TokenUsage | undefined {
  const prompt = countIn(answer, "prompt_eval_count");
  const output = countIn(answer, "eval_count");
  if (prompt === undefined && output === undefined) return undefined;
  const input = prompt ?? 0;
  const made = output ?? 0;
  const classes = { ...divideInput(input, {}), ...divideOutput(made, {}) };
  return toUsage(
    { total: input + made, input, output: made },
    [{ classes, tariff: { context: input } }],
  );
}

/** Watches one stream of lines. */
class LineScanner implements StreamScanner {
  readonly clientsReadErrorEvent = true;
  payloadCount = 0;
  isComplete = false;
  hasError = false;
  usage: TokenUsage | undefined;
  /** The bytes of the unfinished line, until it is long. `#lineBytes` always counts them. */
  #parts: Uint8Array[] = [];
  /** The unfinished line, if it is long: the last one of `/api/generate` has all tokens as numbers. */
  #skeleton: JsonSkeleton | undefined;
  #lineBytes = 0;
  #hasEndedInLine = false;

  get hasLastEvent(): boolean {
    return this.isComplete;
  }

  get outputTokens(): number {
    return this.payloadCount;
  }

  get isAtBoundary(): boolean {
    return this.#lineBytes === 0 && !this.#hasEndedInLine;
  }

  get boundary(): string {
    return this.isAtBoundary ? "" : "\n";
  }

  push(chunk: Uint8Array): void {
    let from = 0;
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, from)) {
      this.#keep(chunk.subarray(from, end));
      this.#endLine();
      from = end + 1;
    }
    this.#keep(chunk.subarray(from));
  }

  /** Notes the end of the stream. The client library also reads a last line without a line end. */
  end(): void {
    this.#hasEndedInLine = this.#lineBytes > 0;
    this.#endLine();
  }

  #endLine(): void {
    if (this.#lineBytes === 0) return;
    this.payloadCount++;
    const text = this.#skeleton === undefined
      ? utf8.decode(joinChunks(this.#parts))
      : this.#skeleton.text;
    if (text !== undefined) this.#readLine(text);
    this.#parts = [];
    this.#skeleton = undefined;
    this.#lineBytes = 0;
  }

  #keep(bytes: Uint8Array): void {
    this.#lineBytes += bytes.length;
    if (this.#lineBytes > MAX_KEPT_BYTES) return this.#skip(bytes);
    if (bytes.length > 0) this.#parts.push(new Uint8Array(bytes)); // a copy: buffers are reused
  }

  /** Reads bytes of a long line without its lists. */
  #skip(bytes: Uint8Array): void {
    this.#skeleton ??= new JsonSkeleton(0);
    for (const part of [...this.#parts.splice(0), bytes]) {
      this.#skeleton.push(part, 0, part.length);
    }
  }

  #readLine(text: string): void {
    try {
      const line: unknown = JSON.parse(text);
      if (fieldOf(line, "error") !== undefined) this.hasError = true;
      if (fieldOf(line, "done") === true) this.isComplete = true;
      this.usage = readCounts(line) ?? this.usage;
    } catch {
      // Not a line of this interface. It is forwarded, and does not count as an end.
    }
  }

  toErrorEvent(error: GatewayError): string {
    return `${toErrorBody(error)}\n`;
  }
}

/** Makes an error in Ollama's form. `code` and `param` are additional fields of the gateway. */
function toErrorBody({ message, param, code }: ErrorContent): string {
  return JSON.stringify({ error: message, code, param });
}

/** The dialect of Ollama. */
export const OLLAMA: Dialect = {
  streamType: "application/x-ndjson",
  keepAlive: "",
  createScanner: () => new LineScanner(),
  createMeter: () => new PlainAnswerMeter(readCounts),
  readUsage: (answer) => readPlainUsage(answer, readCounts),
  countOutput: countPlainOutput,
  toErrorBody,
};
