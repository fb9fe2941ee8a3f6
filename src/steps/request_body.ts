/**
 * Facts of a request's body by the kind of body that its operation has: a checked view of JSON, or
 * fields of a multipart body. The bytes themselves go upstream as they came.
 *
 * @module
 */
import type { UsageOptIn } from "../dialects/dialect.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import type { GatewayRequest } from "../http/message.ts";
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
import { type MessageOrder, readChatCompletion } from "../operations/chat_completion.ts";
import {
  FACT_FIELDS,
  NO_FACTS,
  readFieldFacts,
  readJsonFacts,
  type RequestFacts,
} from "../operations/request_facts.ts";
import { findModelParameter } from "../operations/other_models.ts";
import {
  findUncounted,
  hasUniqueKeys,
  isInputBounded,
  lengthWithoutPadding,
} from "../operations/request_size.ts";
import { toQuery } from "../operations/router.ts";
import type { Operation } from "../operations/table.ts";

export const CONTENT_TYPES: Readonly<Record<Operation["body"], ContentTypes>> = {
  chat_completion: JSON_ONLY,
  json: JSON_ONLY,
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
  request: GatewayRequest,
  options: { readonly operation: Operation; readonly messages: MessageOrder },
): RequestFacts {
  const facts = readBodyFacts(bytes, request, options);
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

/**
 * Refuses a body in which objects name models and a key is given twice: a provider could read the
 * other value.
 */
function assertKeysOnce(bytes: Uint8Array, param: string): void {
  if (hasUniqueKeys(parseView(bytes), bytes)) return;
  const detail = "expected each key once in a body whose objects name models";
  throw new GatewayError("invalid_body", { param, detail });
}

function readBodyFacts(
  bytes: Uint8Array,
  { headers }: GatewayRequest,
  { operation, messages }: { readonly operation: Operation; readonly messages: MessageOrder },
): RequestFacts {
  if (operation.body === "chat_completion") {
    return readChatCompletion(parseView(bytes), messages, lengthWithoutPadding(bytes));
  }
  const contentType = headers.get("content-type") ?? "";
  if (operation.body !== "json" && isMultipart(contentType)) {
    const { fields, textBytes } = readFields(bytes, contentType, FACT_FIELDS);
    return readFieldFacts(fields, operation, textBytes);
  }
  const isUnread = operation.body === "any" && (bytes.length === 0 || !isJson(contentType));
  return isUnread
    ? NO_FACTS
    : readJsonFacts(parseView(bytes), operation, lengthWithoutPadding(bytes));
}

/**
 * Checks that a request can't cost more tokens of input than its body has bytes, see {@link
 * isInputBounded}. The body is parsed once more: to be called only for limits that promise never to
 * be exceeded.
 *
 * @param bytes The whole body, which was read before and is valid; empty where there is none
 * @returns Whether its input is bounded; false for a body that is no JSON
 * @throws {GatewayError} `invalid_body` for a number of tokens or answers that is no whole number
 */
export function isBodyBounded(bytes: Uint8Array, { headers }: GatewayRequest): boolean {
  if (bytes.length === 0 || !isJson(headers.get("content-type") ?? "")) return false;
  const fields = parseView(bytes) as Readonly<Record<string, unknown>>;
  const uncounted = findUncounted(fields);
  if (uncounted !== undefined) {
    throw new GatewayError("invalid_body", {
      param: uncounted,
      detail: "expected a whole number: a limit is strict",
    });
  }
  return isInputBounded(fields, bytes);
}

/**
 * Asks for the usage of a stream, unless the caller itself says what its stream should state. This
 * is the only change that the gateway makes to a body.
 *
 * @returns The usage that was asked for, to be removed from the stream; `undefined` if nothing was
 */
export function askForUsage(
  body: RequestBody,
  { usageOptIn }: Operation,
  { isStream, hasStreamOptions }: RequestFacts,
): UsageOptIn | undefined {
  const isUnstated = isStream === true && !hasStreamOptions;
  if (usageOptIn === undefined || !isUnstated) return undefined;
  if (body.bytes === null) return undefined;
  body.keep(usageOptIn.addTo(body.bytes));
  return usageOptIn;
}
