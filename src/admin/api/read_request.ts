/**
 * Reading of requests to the admin API: the query string and the body, checked by schemas.
 *
 * @module
 */
import * as v from "valibot";
import { describeIssue, formatMistake } from "../../config/issue.ts";
import { GatewayError } from "../../errors/gateway_error.ts";
import { type GatewayRequest, SMALL_BODY_BYTES } from "../../http/message.ts";
import { readAll } from "../../http/read_all.ts";
import type { RouteQuery } from "./route.ts";

/** Reads the whole body, up to a limit. Unread bytes would block the connection's next request. */
export async function readBytes({ headers, body }: GatewayRequest): Promise<Uint8Array> {
  const accept = (byteLength: number) => {
    if (byteLength > SMALL_BODY_BYTES) throw new GatewayError("body_too_large");
  };
  accept(Number(headers.get("content-length") ?? 0));
  return body === null ? new Uint8Array() : await readAll(body, { accept });
}

async function readJson(request: GatewayRequest): Promise<unknown> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await readBytes(request));
    const content: unknown = JSON.parse(text || "{}");
    // valibot also accepts an array as an object: one without settings.
    if (Array.isArray(content)) throw new TypeError("an array");
    return content;
  } catch (error) {
    throw GatewayError.is(error) ? error : new GatewayError("invalid_json");
  }
}

/**
 * Checks a value with a schema and returns the schema's output. @throws {GatewayError} For the
 * first mistake
 */
function check<Output>(
  schema: v.GenericSchema<unknown, Output>,
  given: unknown,
  code: "invalid_body" | "invalid_query",
): Output {
  const result = v.safeParse(schema, given);
  if (result.success) return result.output;
  const mistake = describeIssue(result.issues[0]);
  const { path: param } = mistake;
  throw new GatewayError(code, { detail: formatMistake(mistake), ...(param !== "" && { param }) });
}

/** Reads the query string of a URL. @throws {GatewayError} `invalid_query` */
export function readQuery<Query>({ schema }: RouteQuery<Query>, url: string): Query {
  return check(schema, Object.fromEntries(new URL(url).searchParams), "invalid_query");
}

/**
 * Reads the body of a route.
 *
 * @throws {GatewayError} `unsupported_media_type`, `body_too_large`, `invalid_json`, `invalid_body`
 */
export async function readJsonBody(
  schema: v.GenericSchema,
  request: GatewayRequest,
): Promise<unknown> {
  // This also prevents pages in a browser from writing here: for this type the browser sends a
  // preflight, which is not answered.
  if (!/^application\/json\s*(?:;|$)/i.test(request.headers.get("content-type") ?? "")) {
    throw new GatewayError("unsupported_media_type");
  }
  return check(schema, await readJson(request), "invalid_body");
}
