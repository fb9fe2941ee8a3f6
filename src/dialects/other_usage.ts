/**
 * Usage as single providers state it: Cohere, Bedrock, batches, videos, documents and sessions.
 *
 * @module
 */
import type { TokenUsage } from "../exchange/billing.ts";
import type { AnswerHeaders } from "./dialect.ts";
import { readStatedCost } from "./stated_cost.ts";
import { addTokens } from "./token_usage.ts";
import {
  countIn,
  divideInput,
  divideOutput,
  fieldOf,
  listIn,
  nameOf,
  readServedTier,
  toMs,
  toTariff,
  toUnits,
  toUsage,
} from "./usage_classes.ts";

/**
 * Reads what Cohere bills (https://docs.cohere.com/reference/chat). Its other counts contain tokens
 * that it does not bill.
 */
export function readBilledUnits(answer: unknown): TokenUsage | undefined {
  const stated = fieldOf(fieldOf(answer, "usage"), "billed_units") ??
    fieldOf(fieldOf(answer, "meta"), "billed_units");
  if (typeof stated !== "object" || stated === null) return undefined;
  const input = countIn(stated, "input_tokens");
  const output = countIn(stated, "output_tokens");
  const searchUnits = countIn(stated, "search_units");
  const images = countIn(stated, "images");
  const units = { ...(searchUnits && { searchUnits }), ...(images && { images }) };
  if (input === undefined && output === undefined) {
    return Object.keys(units).length === 0 ? undefined : toUnits(units);
  }
  const whole = input ?? 0;
  const made = output ?? 0;
  const classes = { ...divideInput(whole, {}), ...divideOutput(made, {}), ...units };
  const sums = {
    total: whole + made,
    ...(input !== undefined && { input }),
    ...(output !== undefined && { output }),
  };
  return toUsage(sums, [{ classes, tariff: { context: whole } }]);
}

/** Counts of Bedrock. Its input contains neither what was read from the cache nor written to it. */
export interface BedrockMetrics {
  readonly input: number | undefined;
  readonly output: number | undefined;
  readonly cached: number | undefined;
  readonly written: number | undefined;
}

/** Counts of Bedrock, with the facts that decide their price. */
interface BedrockCounts extends BedrockMetrics {
  readonly writtenLong?: number | undefined;
  readonly tier?: unknown;
}

function toBedrockUsage(counts: BedrockCounts): TokenUsage | undefined {
  const { input, output = 0, cached, written = 0, writtenLong } = counts;
  if (input === undefined) return undefined;
  const whole = input + (cached ?? 0) + written;
  const classes = {
    ...divideInput(whole, { cached, written, writtenLong }),
    ...divideOutput(output, {}),
  };
  const sums = { total: whole + output, input: whole, output, ...(cached && { cached }) };
  const tariff = toTariff({ tier: readServedTier(counts.tier), context: whole });
  return toUsage(sums, [{ classes, tariff }]);
}

/** Field of the last event of `InvokeModel`'s streams, in every model's form. */
export const METRICS = "amazon-bedrock-invocationMetrics";

/** Reads the counts in the last event of `InvokeModel`'s streams. */
export function readMetrics(event: unknown): BedrockMetrics | undefined {
  const metrics = fieldOf(event, METRICS);
  return metrics === undefined ? undefined : {
    input: countIn(metrics, "inputTokenCount"),
    output: countIn(metrics, "outputTokenCount"),
    cached: countIn(metrics, "cacheReadInputTokenCount"),
    written: countIn(metrics, "cacheWriteInputTokenCount"),
  };
}

/** Reads the usage of Bedrock's Converse interface, and of the last event of its other streams. */
export function readBedrock(answer: unknown): TokenUsage | undefined {
  const metrics = readMetrics(answer);
  if (metrics !== undefined) return toBedrockUsage(metrics);
  const usage = fieldOf(answer, "usage") ?? fieldOf(fieldOf(answer, "metadata"), "usage");
  let detailed = 0;
  let writtenLong = 0;
  for (const each of listIn(usage, "cacheDetails")) {
    const written = countIn(each, "inputTokens") ?? 0;
    detailed += written;
    if (fieldOf(each, "ttl") === "1h") writtenLong += written;
  }
  const tier = fieldOf(answer, "serviceTier");
  return toBedrockUsage({
    input: countIn(usage, "inputTokens"),
    output: countIn(usage, "outputTokens"),
    cached: countIn(usage, "cacheReadInputTokens"),
    written: countIn(usage, "cacheWriteInputTokens") ?? detailed,
    writtenLong,
    tier: fieldOf(tier, "type") ?? tier,
  });
}

/** Reads the headers with which Bedrock states the usage of an answer in any model's form. */
export function readBedrockHeaders(headers: AnswerHeaders): TokenUsage | undefined {
  const countOfHeader = (name: string): number | undefined => {
    const text = headers.get(`x-amzn-bedrock-${name}-token-count`) ?? "";
    return /^\d{1,12}$/.test(text) ? Number(text) : undefined;
  };
  const input = countOfHeader("input");
  if (input === undefined) return undefined;
  return toBedrockUsage({
    input,
    output: countOfHeader("output"),
    cached: countOfHeader("cache-read-input"),
    written: countOfHeader("cache-write-input"),
  });
}

/** Reads the tier that served a call of Bedrock. Bodies in the form of a model do not state it. */
export function readBedrockTier(headers: AnswerHeaders): string | undefined {
  return readServedTier(headers.get("x-amzn-bedrock-service-tier"));
}

/** Returns whether a prediction is a picture, as of Google's Imagen. */
const isPicture = (prediction: unknown): boolean =>
  nameOf(fieldOf(prediction, "mimeType"))?.startsWith("image/") === true;

/** Counts the pictures of Google's Imagen, and of Bedrock's models: their answers state no usage. */
export function countPictures(answer: unknown): TokenUsage | undefined {
  const images = listIn(answer, "predictions").filter(isPicture).length ||
    listIn(answer, "images").filter((each) => typeof each === "string").length;
  return images === 0 ? undefined : toUnits({ images });
}

/**
 * Reads amounts that are not tokens: a video's length, a document's pages, a session's time.
 *
 * @param json The text that was parsed
 */
export function readUnits(answer: unknown, json: string): TokenUsage | undefined {
  const usage = fieldOf(answer, "usage");
  const isVideo = fieldOf(answer, "object") === "video" && fieldOf(answer, "status") !== "failed";
  const videoMs = isVideo ? toMs(fieldOf(answer, "seconds")) : undefined;
  if (videoMs !== undefined) {
    const size = nameOf(fieldOf(answer, "size"));
    const asked = size === undefined ? undefined : { size };
    return toUnits({ videoMs }, { asked, statedCost: readStatedCost(usage, json) });
  }
  const isSession = String(fieldOf(answer, "type")).startsWith("session.");
  const sessionMs = isSession ? toMs(fieldOf(usage, "seconds")) : undefined;
  if (sessionMs !== undefined) return toUnits({ sessionMs }); // a running total
  return readPages(fieldOf(answer, "usage_info"));
}

/** Reads the pages that were read, and those that were annotated, which are billed in addition. */
function readPages(info: unknown): TokenUsage | undefined {
  const pages = countIn(info, "pages_processed");
  const annotated = countIn(info, "pages_processed_annotation");
  const read = pages === undefined ? undefined : toUnits({ pages });
  if (!annotated) return read;
  return addTokens(read, toUnits({ pages: annotated }, { asked: { pages: "annotated" } }));
}
