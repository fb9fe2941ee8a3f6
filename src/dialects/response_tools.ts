/**
 * Tools of OpenAI's responses that have a price of their own. Their use is not in `usage`
 * (https://platform.openai.com/docs/pricing#built-in-tools).
 *
 * @module
 */
import { type ClassAmounts, partsOf, type TokenUsage } from "../exchange/billing.ts";
import { readTokens } from "./openai_usage.ts";
import { countIn, fieldOf, listIn, nameOf } from "./usage_classes.ts";

/** Name of the model of the image tool, if the answer does not name it. */
const IMAGE_TOOL = "image_generation";

/** Returns whether an item of `output` is a finished call of a tool. */
function isCall(item: unknown, type: string): boolean {
  return fieldOf(item, "type") === type &&
    (fieldOf(item, "status") ?? "completed") === "completed";
}

/** Opened pages, and searches within a page, are free. */
function isSearch(item: unknown): boolean {
  const action = fieldOf(item, "action");
  return isCall(item, "web_search_call") && (fieldOf(action, "type") ?? "search") === "search";
}

/** Reads the calls that succeeded at xAI, which its items do not show. */
function readStatedCalls(response: unknown): ClassAmounts | undefined {
  const calls = fieldOf(fieldOf(response, "usage"), "server_side_tool_usage_details");
  if (typeof calls !== "object" || calls === null) return undefined;
  const countOfCalls = (name: string): number => countIn(calls, `${name}_calls`) ?? 0;
  return {
    webSearches: countOfCalls("web_search") + countOfCalls("x_search"),
    fileSearches: countOfCalls("file_search") + countOfCalls("document_search"),
    codeSessions: countOfCalls("code_interpreter"),
  };
}

/** Counts the calls of tools in a response. Containers are billed once for all calls in them. */
export function readToolUnits(response: unknown): ClassAmounts | undefined {
  const units = readStatedCalls(response) ?? countCalls(response);
  const found = Object.entries(units).filter(([, count]) => count > 0);
  return found.length === 0 ? undefined : Object.fromEntries(found);
}

function countCalls(response: unknown): ClassAmounts {
  const stated = countIn(fieldOf(fieldOf(response, "tool_usage"), "web_search"), "num_requests");
  let found = 0;
  let fileSearches = 0;
  const containers = new Set<unknown>();
  for (const item of listIn(response, "output")) {
    if (isSearch(item)) found++;
    else if (isCall(item, "file_search_call")) fileSearches++;
    else if (fieldOf(item, "type") === "code_interpreter_call") {
      containers.add(fieldOf(item, "container_id"));
    }
  }
  return { webSearches: stated ?? found, fileSearches, codeSessions: containers.size };
}

/** Reads the tokens of the image tool: another model makes them. */
export function readImageTool(response: unknown): TokenUsage | undefined {
  const stated = fieldOf(fieldOf(response, "tool_usage"), "image_gen");
  const usage = readTokens(stated, ["input_tokens", "output_tokens"], {
    tier: fieldOf(response, "service_tier"),
    outputKind: "image",
  });
  if (usage === undefined || usage.total === 0) return undefined;
  const tool = listIn(response, "tools").find((each) => fieldOf(each, "type") === IMAGE_TOOL);
  const model = nameOf(fieldOf(tool, "model")) ?? IMAGE_TOOL;
  return { ...usage, parts: partsOf(usage).map((part) => ({ ...part, model })) };
}
