/**
 * Finds the cause of a failed call in the errors of the runtimes: in the error code, or in the text
 * of errors of Deno's fetch, which have no code.
 *
 * @module
 */
import { GatewayError } from "../errors/gateway_error.ts";
import type { FailureCause } from "../errors/outcomes.ts";
import { CallFailed } from "./transport.ts";

/**
 * Codes of the system, of OpenSSL (`X509_V_ERR_*`), of Node's fetch (`UND_ERR_*`, `HPE_*`) and of
 * Bun's.
 */
const BY_CODE: readonly (readonly [RegExp, FailureCause])[] = [
  [/^(?:ENOTFOUND|ENODATA|ESERVFAIL|EAI_\w+)$/, "dns"],
  [/^ECONNREFUSED$/, "refused"],
  [/^(?:EHOST|ENET)(?:UNREACH|DOWN)$/, "unreachable"],
  [/^(?:ECONNRESET|ECONNABORTED|EPIPE)$/, "reset"],
  [/^UND_ERR_SOCKET$/, "closed"],
  [/^(?:ETIMEDOUT|UND_ERR_\w+_TIMEOUT)$/, "timeout"],
  [/^(?:EMFILE|ENFILE|ENOBUFS|ENOMEM|EADDRNOTAVAIL)$/, "exhausted"],
  [
    /^(?:EPROTO|ERR_SSL_\w+|ERR_TLS_\w+|HOSTNAME_MISMATCH|INVALID_(?:CA|PURPOSE)|UNABLE_TO_\w+|\w*CERT\w*)$/,
    "tls",
  ],
  [/^(?:HPE_\w+|UND_ERR_(?:HEADERS_OVERFLOW|RES\w+)|Malformed_HTTP_Response|Z_\w+)$/, "malformed"],
];

/** Error texts of Deno's fetch, without the prefix that names the URL. */
const BY_TEXT: readonly (readonly [RegExp, FailureCause])[] = [
  [/^dns error/, "dns"],
  [/Connection refused/, "refused"],
  [/No route to host|unreachable/, "unreachable"],
  [/certificate|^tls |corrupt message/, "tls"],
  [/Connection reset|Broken pipe/, "reset"],
  [/closed before message complete/, "closed"],
  [/timed out/, "timeout"],
  [/Too many open files/, "exhausted"],
  [/^invalid HTTP|parsed$/, "malformed"],
];
const BEFORE_TEXT = /^.*?client error \(\w+\): (?:tcp connect error: )?/;
/** Maximum number of errors examined in a chain of causes: runtimes wrap an error once or twice. */
const MAX_DEPTH = 4;

/**
 * Finds the reason why a call failed.
 *
 * @returns The cause; `unknown` if the error does not show it
 */
export function toFailureCause(error: unknown): FailureCause {
  let each = error;
  for (let depth = 0; depth < MAX_DEPTH && each instanceof Error; depth++, each = each.cause) {
    if (each instanceof CallFailed) return each.failureCause;
    if (GatewayError.is(each) && each.failureCause !== undefined) return each.failureCause;
    const { code, syscall } = each as { code?: unknown; syscall?: unknown };
    if (syscall === "getaddrinfo") return "dns";
    // Node's fetch states no code for some of them.
    if (each.name === "HTTPParserError") return "malformed";
    const found = typeof code === "string"
      ? BY_CODE.find(([pattern]) => pattern.test(code))
      : findByText(each.message.replace(BEFORE_TEXT, ""));
    if (found !== undefined) return found[1];
  }
  return "unknown";
}

function findByText(text: string): (typeof BY_TEXT)[number] | undefined {
  return BY_TEXT.find(([pattern]) => pattern.test(text));
}

/** Converts the error of a transport or a body. */
export function toUpstreamError(
  code: "upstream_unreachable" | "upstream_disconnected",
  cause: unknown,
): GatewayError {
  return new GatewayError(code, { cause, failureCause: toFailureCause(cause) });
}
