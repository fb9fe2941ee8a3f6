/**
 * Batches: many requests that a provider answers later. The batch states their usage when it is
 * complete, or its results do, one on each line.
 *
 * @module
 */
import { partsOf, type TokenUsage, type UsagePart } from "../exchange/billing.ts";
import { ANTHROPIC } from "./anthropic.ts";
import { BATCH_TIER, readAnyUsage } from "./any_usage.ts";
import type { AnswerMeter, Dialect } from "./dialect.ts";
import { OPAQUE } from "./opaque.ts";
import { addTokens, joinParts, PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { fieldOf, nameOf } from "./usage_classes.ts";

/** Depth of the lists in a result: its answer is two levels deeper than an answer alone. */
const RESULT_DEPTH = 7;
const LF = 0x0a;
const utf8 = new TextDecoder();

/**
 * Numbers of tokens at which published prices change. Results between two of them are added, and
 * priced by the longest of them.
 */
const THRESHOLDS: readonly number[] = [100, 128, 200, 256, 272, 512].map((k) => 1000 * k);

/** States of a batch whose usage can still grow. */
const UNFINISHED: ReadonlySet<unknown> = new Set([
  "validating",
  "in_progress",
  "finalizing",
  "cancelling",
]);

/** Reads the usage of an OpenAI batch, once it is final. */
function readBatch(batch: unknown, json: string): TokenUsage | undefined {
  return UNFINISHED.has(fieldOf(batch, "status")) ? undefined : readAnyUsage(batch, json);
}

/**
 * Reads the id with which the usage of a batch can be found later: the file with its results, or
 * the batch itself as long as there are none.
 */
function readLaterId(answer: Uint8Array): string | undefined {
  try {
    const batch = JSON.parse(utf8.decode(answer));
    return nameOf(fieldOf(batch, "output_file_id")) ?? nameOf(fieldOf(batch, "id"));
  } catch {
    return undefined; // not JSON, forwarded anyway
  }
}

/** Reads the usage of one result: of OpenAI's form with a `response`, or Anthropic's `result`. */
function readResult(result: unknown, json: string): TokenUsage | undefined {
  const answer = fieldOf(fieldOf(result, "response"), "body") ?? result;
  const usage = readAnyUsage(answer, json);
  if (usage === undefined) return undefined;
  const toBatchTariff = (part: UsagePart): UsagePart => ({
    ...part,
    tariff: { ...part.tariff, tier: BATCH_TIER },
  });
  return { ...usage, parts: partsOf(usage).map(toBatchTariff) };
}

/** Returns a name that parts have in common if one price applies to all of them. */
function priceGroupOf({ model, tariff }: UsagePart): string {
  const { geo, context } = tariff;
  const step = THRESHOLDS.findIndex((threshold) => context <= threshold);
  return JSON.stringify([model, geo, step]);
}

/** Adds the usage of a result, so that there is one part for each price. */
function addResult(before: TokenUsage | undefined, result: TokenUsage): TokenUsage {
  const sum = addTokens(before, result);
  const groups = new Map<string, UsagePart>();
  for (const part of partsOf(sum)) {
    const group = priceGroupOf(part);
    const found = groups.get(group);
    groups.set(group, found === undefined ? part : joinParts(found, part));
  }
  return { ...sum, parts: [...groups.values()] };
}

/** Adds the usage of results while they are relayed, one JSON text on each line. */
class ResultsMeter implements AnswerMeter {
  readonly outputTokens = undefined;
  #sum: TokenUsage | undefined;
  #line: PlainAnswerMeter | undefined;

  push(chunk: Uint8Array): void {
    let start = 0;
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      this.#pushLine(chunk.subarray(start, end));
      this.#endLine();
      start = end + 1;
    }
    if (start < chunk.length) this.#pushLine(chunk.subarray(start));
  }

  get usage(): TokenUsage | undefined {
    this.#endLine();
    return this.#sum;
  }

  #pushLine(bytes: Uint8Array): void {
    this.#line ??= new PlainAnswerMeter(readResult, { listDepth: RESULT_DEPTH });
    this.#line.push(bytes);
  }

  #endLine(): void {
    const usage = this.#line?.usage;
    this.#line = undefined;
    if (usage !== undefined) this.#sum = addResult(this.#sum, usage);
  }
}

function readResults(answer: Uint8Array): TokenUsage | undefined {
  const meter = new ResultsMeter();
  meter.push(answer);
  return meter.usage;
}

/** Batches of OpenAI's interface (https://platform.openai.com/docs/api-reference/batch). */
export const BATCHES: Dialect = {
  ...OPAQUE,
  createMeter: () => new PlainAnswerMeter(readBatch, { readLaterId }),
  readUsage: (answer) => readPlainUsage(answer, readBatch),
  readLaterId,
};

/** Files of OpenAI's interface: they can be the results of a batch. */
export const RESULTS_FILE: Dialect = {
  ...OPAQUE,
  createMeter: () => new ResultsMeter(),
  readUsage: readResults,
};

/** Anthropic's batches (https://docs.anthropic.com/en/api/creating-message-batches). */
export const MESSAGE_BATCHES: Dialect = { ...BATCHES, toErrorBody: ANTHROPIC.toErrorBody };

/** Results of Anthropic's batches. */
export const MESSAGE_RESULTS: Dialect = { ...RESULTS_FILE, toErrorBody: ANTHROPIC.toErrorBody };
