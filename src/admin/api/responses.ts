/**
 * Responses of the admin API: JSON, and errors.
 *
 * @module
 */
import { type ErrorContent, GatewayError, toErrorResponse } from "../../errors/gateway_error.ts";
import type { ByteSource, GatewayResponse } from "../../http/message.ts";
import { KeyStoreError, KeyStoreUnavailable } from "../../keys/key_store.ts";
import { UsageUnavailable } from "../../usage/counts.ts";
import { UsageRefusal } from "../../usage/query.ts";
import { UnknownKey } from "../key_administration.ts";
import { UnknownTeam } from "../team_administration.ts";

/** Creates a JSON response that must not be cached. */
export function toResponse(status: number, content: unknown): GatewayResponse {
  return {
    status,
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    },
    body: JSON.stringify(content),
  };
}

/** Content of a response that is created while it is sent. */
export class TextParts {
  readonly type: string;
  readonly #parts: AsyncIterator<string>;
  #first: IteratorResult<string> | undefined;

  private constructor(type: string, parts: AsyncIterator<string>, first: IteratorResult<string>) {
    this.type = type;
    this.#parts = parts;
    this.#first = first;
  }

  /**
   * Waits for the first part, so that a response that cannot begin is refused with an error.
   *
   * @throws {unknown} The first part's error
   */
  static async begin(type: string, parts: AsyncIterable<string>): Promise<TextParts> {
    const iterator = parts[Symbol.asyncIterator]();
    return new TextParts(type, iterator, await iterator.next());
  }

  /** Returns the text as a body. The body breaks off if a part throws. */
  toBody(): ByteSource {
    const encoder = new TextEncoder();
    return {
      read: async () => {
        const { done, value } = this.#first ?? await this.#parts.next();
        this.#first = undefined;
        return done ? undefined : encoder.encode(value);
      },
      cancel: () => void Promise.resolve(this.#parts.return?.()).catch(() => {}),
    };
  }
}

/** Creates a text response that is sent while it is created. */
export function toTextResponse(status: number, content: TextParts): GatewayResponse {
  const headers = {
    "content-type": content.type,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  };
  return { status, headers, body: content.toBody() };
}

/** Finds the code of an error. Messages of stores are meant for operators, so they are included. */
function toErrorContent(thrown: unknown): ErrorContent {
  if (GatewayError.is(thrown)) return thrown;
  if (thrown instanceof UsageRefusal) {
    const { param, message } = thrown;
    return new GatewayError("invalid_query", { param, detail: `${param}: ${message}` });
  }
  const withText = (code: ErrorContent["code"], { message }: Error): ErrorContent => ({
    code,
    message,
    param: null,
  });
  if (thrown instanceof UnknownKey) return withText("key_not_found", thrown);
  if (thrown instanceof UnknownTeam) return withText("team_not_found", thrown);
  if (thrown instanceof KeyStoreUnavailable) return withText("key_store_unavailable", thrown);
  if (thrown instanceof KeyStoreError) {
    return { ...withText("refused", thrown), param: thrown.param };
  }
  if (thrown instanceof UsageUnavailable) return withText("usage_unavailable", thrown);
  return new GatewayError("admin_failed", { cause: thrown });
}

/** Creates the response for any thrown value, from the table of errors. */
export function toFailureResponse(thrown: unknown): GatewayResponse {
  return toErrorResponse(toErrorContent(thrown));
}
