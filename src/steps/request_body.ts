/**
 * Facts of a request's body by the kind of body that its operation has: a checked view of JSON, or fields of a multipart
 * body. The bytes themselves go upstream as they came.
 *
 * @module
 */
import type { GatewayRequest } from "../http/message.ts";
import { ANY_TYPE, type ContentTypes, FORM_OR_JSON, isJson, JSON_ONLY } from "../inbound/body.ts";
import { parseJson } from "../inbound/json_guard.ts";
import { isMultipart, readFields } from "../inbound/multipart.ts";
import { type MessageOrder, readChatCompletion } from "../operations/chat_completion.ts";
import {
  FACT_FIELDS,
  NO_FACTS,
  readFieldFacts,
  readJsonFacts,
  type RequestFacts,
} from "../operations/request_facts.ts";
import type { Operation } from "../operations/table.ts";

/** Content types by kind of body. */
export const CONTENT_TYPES: Readonly<Record<Operation["body"], ContentTypes>> = {
  chat_completion: JSON_ONLY,
  json: JSON_ONLY,
  multipart: FORM_OR_JSON,
  any: ANY_TYPE,
  none: ANY_TYPE,
};

/**
 * Reads the facts of a body.
 *
 * @param bytes The whole body
 * @param request Its request
 * @param options The operation, and whether messages and their order are checked
 * @returns The facts
 * @throws {GatewayError} `invalid_json`, `invalid_body`
 */
export function readFacts(
  bytes: Uint8Array,
  { headers }: GatewayRequest,
  { operation, messages }: { readonly operation: Operation; readonly messages: MessageOrder },
): RequestFacts {
  if (operation.body === "chat_completion") return readChatCompletion(parseJson(bytes), messages);
  const contentType = headers.get("content-type") ?? "";
  if (operation.body !== "json" && isMultipart(contentType)) {
    return readFieldFacts(readFields(bytes, contentType, FACT_FIELDS), operation);
  }
  const isUnread = operation.body === "any" && (bytes.length === 0 || !isJson(contentType));
  return isUnread ? NO_FACTS : readJsonFacts(parseJson(bytes), operation);
}
