/**
 * Batches: many requests that a provider answers later. The batch states their usage when it is
 * complete, or its results do, one on each line.
 *
 * @module
 */
import { contextEndsOf } from "../config/context_ends.ts";
import { partsOf, type TokenUsage, type UsagePart } from "../exchange/billing.ts";
import { ANTHROPIC } from "./anthropic.ts";
import { BATCH_TIER, readAnyUsage } from "./any_usage.ts";
import type { AnswerMeter, ContextEnds, Dialect } from "./dialect.ts";
import { OPAQUE } from "./opaque.ts";
import { addTokens, joinParts, PlainAnswerMeter, readPlainUsage } from "./token_usage.ts";
import { fieldOf, nameOf } from "./usage_classes.ts";

/** Depth of the lists in a result: its answer is two levels deeper than an answer alone. */
const RESULT_DEPTH = 7;
const LF = 0x0a;
const utf8 = new TextDecoder();

/** The ends of contexts where prices are unknown. */
const PUBLISHED_ENDS: ContextEnds = () => contextEndsOf(undefined);

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
function priceGroupOf({ model = "", tariff }: UsagePart, contextEnds: ContextEnds): string {
  const { geo, context, asked } = tariff;
  const end = contextEnds(model).findLast((each) => each <= context);
  return JSON.stringify([model, geo, end, asked]);
}

/** The most groups of parts with their own price. All further parts share one group. */
const MAX_GROUPS = 64;
const SHARED_GROUP = "";

/** Adds the usage of results while they are relayed, one JSON text on each line. */
class ResultsMeter implements AnswerMeter {
  readonly outputTokens = undefined;
  readonly #contextEnds: ContextEnds;
  /** One part for each price. */
  readonly #groups = new Map<string, UsagePart>();
  #sum: TokenUsage | undefined;
  #line: PlainAnswerMeter | undefined;

  constructor(contextEnds: ContextEnds = PUBLISHED_ENDS) {
    this.#contextEnds = contextEnds;
  }

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
    return this.#sum && { ...this.#sum, parts: [...this.#groups.values()] };
  }

  #pushLine(bytes: Uint8Array): void {
    this.#line ??= new PlainAnswerMeter(readResult, { listDepth: RESULT_DEPTH });
    this.#line.push(bytes);
  }

  #endLine(): void {
    const usage = this.#line?.usage;
    this.#line = undefined;
    if (usage === undefined) return;
    this.#sum = addTokens(this.#sum, { ...usage, parts: [] });
    for (const part of partsOf(usage)) this.#addPart(part);
  }

  #addPart(part: UsagePart): void {
    const name = priceGroupOf(part, this.#contextEnds);
    const isKept = this.#groups.has(name) || this.#groups.size < MAX_GROUPS;
    const group = isKept ? name : SHARED_GROUP;
    const found = this.#groups.get(group);
    this.#groups.set(group, found === undefined ? part : joinParts(found, part));
  }
}

function readResults(answer: Uint8Array, contextEnds?: ContextEnds): TokenUsage | undefined {
  const meter = new ResultsMeter(contextEnds);
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
  createMeter: (_model, contextEnds) => new ResultsMeter(contextEnds),
  readUsage: (answer, _model, contextEnds) => readResults(answer, contextEnds),
};

/** Anthropic's batches (https://docs.anthropic.com/en/api/creating-message-batches). */
export const MESSAGE_BATCHES: Dialect = { ...BATCHES, toErrorBody: ANTHROPIC.toErrorBody };

/** Results of Anthropic's batches. */
export const MESSAGE_RESULTS: Dialect = { ...RESULTS_FILE, toErrorBody: ANTHROPIC.toErrorBody };
