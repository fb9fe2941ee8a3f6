/**
 * Facts of a request's body, read from checked JSON or from the fields of a multipart body. The
 * bytes are forwarded unchanged.
 *
 * @module
 */
import type { UsageOptIn } from "../dialects/dialect.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import {
  ANY_TYPE,
  type ContentTypes,
  FORM_OR_JSON,
  isJson,
  JSON_ONLY,
  type RequestBody,
} from "../inbound/body.ts";
import { parseView } from "../inbound/json_guard.ts";
import { isMultipart, readFields } from "../inbound/multipart.ts";
import { assertModelAllowed } from "../keys/policy.ts";
import { type MessageOrder, readChatCompletion } from "../operations/chat_completion.ts";
import {
  FACT_FIELDS,
  NO_FACTS,
  readFieldFacts,
  readJsonFacts,
  type RequestFacts,
} from "../operations/request_facts.ts";
import { findModelParameter } from "../operations/other_models.ts";
import { hasUniqueKeys, lengthWithoutPadding } from "../operations/request_size.ts";
import { type ResolvedOperation, toQuery } from "../operations/router.ts";
import { withTier } from "../operations/requested_tariff.ts";
import type { Operation } from "../operations/table.ts";
import { bytesOf } from "./call.ts";
import type { Flow } from "./flow.ts";

export const CONTENT_TYPES: Readonly<Record<Operation["body"], ContentTypes>> = {
  chat_completion: JSON_ONLY,
  json: JSON_ONLY,
  untyped_json: ANY_TYPE,
  multipart: FORM_OR_JSON,
  any: ANY_TYPE,
  none: ANY_TYPE,
};

/**
 * Reads the facts of a body, and whether the query can choose another model.
 *
 * @throws {GatewayError} `invalid_json`, `invalid_body`
 */
export function readFacts(
  bytes: Uint8Array,
  contentType: string,
  { request, operation, provider, key }: Flow,
): RequestFacts {
  const ofBody = readBodyFacts(bytes, contentType, operation, provider.messages);
  const stated = addHeaderFacts(ofBody, request, operation);
  const { modelId, pricedModel = modelId } = operation;
  // Google repeats the model of the path in some bodies. Azure ignores it.
  if (modelId !== undefined && stated.model !== undefined) {
    assertModelAllowed(key, stated.model.replace(/^models\//, ""));
  }
  // A provider that reads the model in the path ignores a model in the body.
  const facts = pricedModel === undefined ? stated : { ...stated, model: pricedModel };
  const { url } = request;
  const unnamedIn = findModelParameter(toQuery(url));
  const { otherModels } = facts;
  if (otherModels?.namedWithin !== undefined) assertKeysOnce(bytes, otherModels.namedWithin);
  if (unnamedIn === undefined) return facts;
  return {
    ...facts,
    otherModels: { names: [], namedWithin: undefined, ...otherModels, unnamedIn },
  };
}

/** Adds the tier that a header requests. */
function addHeaderFacts(
  facts: RequestFacts,
  { headers }: Flow["request"],
  operation: Operation,
): RequestFacts {
  const { tierHeader } = operation.facts ?? {};
  const tier = tierHeader === undefined ? null : headers.get(tierHeader);
  return tier === null ? facts : { ...facts, tariff: withTier(facts.tariff, tier) };
}

/**
 * Refuses a body in which objects name models and a key occurs twice, because a provider could read
 * the other value.
 */
function assertKeysOnce(bytes: Uint8Array, param: string): void {
  if (hasUniqueKeys(parseView(bytes), bytes)) return;
  const detail = "expected each key once in a body whose objects name models";
  throw new GatewayError("invalid_body", { param, detail });
}

function readBodyFacts(
  bytes: Uint8Array,
  contentType: string,
  operation: ResolvedOperation,
  messages: MessageOrder,
): RequestFacts {
  const { body, modelId } = operation;
  if (body === "chat_completion") {
    return readChatCompletion(parseView(bytes), messages, lengthWithoutPadding(bytes), modelId);
  }
  const isJsonAlways = body === "json" || body === "untyped_json";
  if (!isJsonAlways && isMultipart(contentType)) {
    const { fields, textBytes } = readFields(bytes, contentType, FACT_FIELDS);
    return readFieldFacts(fields, operation, { text: textBytes, all: bytes.length });
  }
  const isUnread = body === "any" && (bytes.length === 0 || !isJson(contentType));
  return isUnread
    ? NO_FACTS
    : readJsonFacts(parseView(bytes), operation, lengthWithoutPadding(bytes));
}

/**
 * Asks for the usage of a stream, unless the caller itself sets the options of its stream or has
 * packed the body. This is the only change that the gateway makes to a body.
 *
 * @returns The usage that was requested, which must be removed from the stream; `undefined` if none
 * was
 */
export function askForUsage(
  body: RequestBody,
  { usageOptIn }: Operation,
  { isStream, hasStreamOptions }: RequestFacts,
): UsageOptIn | undefined {
  const isUnstated = isStream === true && !hasStreamOptions;
  if (usageOptIn === undefined || !isUnstated || body.coding !== undefined) return undefined;
  body.keep(usageOptIn.addTo(bytesOf(body)));
  return usageOptIn;
}
