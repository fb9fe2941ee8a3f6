/**
 * Search units, which providers of reranking bill. One unit is a query with up to 100 documents. A
 * document that has more than 500 tokens together with the query counts as several documents
 * (https://cohere.com/pricing, https://learn.microsoft.com/azure/ai-foundry/how-to/deploy-models-cohere-rerank).
 *
 * @module
 */
import { parseWhole } from "../inbound/json_guard.ts";

const UNIT_DOCUMENTS = 100;
/** Tokens of a document and the query that count as one document. A token has at least one byte. */
const DOCUMENT_TOKENS = 500;
/**
 * Tokens of a longer document that each of its parts has at least. The page of prices does not say
 * how much of a part a long query can use: half of it, as in the context of Cohere's models.
 */
const PART_TOKENS = DOCUMENT_TOKENS / 2;
/** Longer queries are cut (https://docs.cohere.com/docs/reranking-best-practices). Tokens. */
const MAX_QUERY_TOKENS = 2048;

const utf8 = new TextEncoder();
const byteLengthOf = (value: unknown): number =>
  utf8.encode(typeof value === "string" ? value : JSON.stringify(value) ?? "").length;

/**
 * Returns the most search units that a request to rank documents can use.
 *
 * @param body Its JSON, unpacked
 */
export function mostSearchUnits(body: Uint8Array): number {
  const { query, documents } = parseWhole(body) as Readonly<Record<string, unknown>>;
  const queryTokens = Math.min(byteLengthOf(query), MAX_QUERY_TOKENS);
  let counted = 0;
  for (const document of Array.isArray(documents) ? documents : []) {
    const tokens = byteLengthOf(document) + queryTokens;
    counted += tokens <= DOCUMENT_TOKENS ? 1 : 1 + Math.floor(tokens / PART_TOKENS);
  }
  return Math.max(1, Math.ceil(counted / UNIT_DOCUMENTS));
}
