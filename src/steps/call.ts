/**
 * The call that a request asks for: its body, and the facts that the body states.
 *
 * @module
 */
import type { UsageOptIn } from "../dialects/dialect.ts";
import type { RequestBody } from "../inbound/body.ts";
import { NO_FACTS, type RequestFacts } from "../operations/request_facts.ts";

/** A call to the provider. */
export interface Call {
  /** The body that was read; `null` if the operation has no body. */
  readonly body: RequestBody | null;
  /** Content type of the body; empty if the caller stated none. */
  readonly contentType: string;
  readonly facts: RequestFacts;
  /** The usage that the gateway requested in addition to the caller's request. */
  readonly usageOptIn: UsageOptIn | undefined;
}

/** A call without a body. */
export const BODILESS: Call = {
  body: null,
  contentType: "",
  facts: NO_FACTS,
  usageOptIn: undefined,
};

const NO_BYTES = new Uint8Array();

/**
 * Returns the bytes of a body, unpacked; empty without a body. @throws {Error} For a body that was
 * released
 */
export function bytesOf(body: RequestBody | null): Uint8Array {
  if (body === null) return NO_BYTES;
  if (body.content === null) throw new Error("Cannot read the body: it was released");
  return body.content;
}
