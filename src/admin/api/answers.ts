/**
 * Answers of the admin API: JSON, and errors.
 *
 * @module
 */
import type { GatewayResponse } from "../../http/message.ts";

/** A refusal of the admin API. Its message is for the operator. */
export class AdminError extends Error {
  /** HTTP status. */
  readonly status: number;
  readonly code: string;
  /** The setting that is at fault. */
  readonly param: string | null;
  readonly headers: Readonly<Record<string, string>>;

  /**
   * @param status HTTP status
   * @param code Error code for programs
   * @param message For the operator: "Cannot <do what>: <state>", then what to do
   * @param details The setting that is at fault, and more headers
   */
  constructor(
    status: number,
    code: string,
    message: string,
    { param, headers = {} }: { param?: string; headers?: Record<string, string> } = {},
  ) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param ?? null;
    this.headers = headers;
  }
}

/**
 * Creates an answer in JSON that is not to be cached.
 *
 * @param status HTTP status
 * @param content Content of the body
 * @param headers Additional headers
 * @returns The answer
 */
export function toAnswer(
  status: number,
  content: unknown,
  headers: Readonly<Record<string, string>> = {},
): GatewayResponse {
  return {
    status,
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      ...headers,
    },
    body: JSON.stringify(content),
  };
}
