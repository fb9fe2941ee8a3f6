/**
 * The errors of the runtimes, as they were observed: each has one cause. Real faults are in
 * `tests/faults/causes_test.ts`.
 */
// runtimes: once
import assert from "node:assert/strict";
import { describe, it } from "@std/testing/bdd";
import { ERRORS } from "../../src/errors/codes.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { FAILURE_CAUSES, type FailureCause } from "../../src/errors/outcomes.ts";
import { toFailureCause, toUpstreamError } from "../../src/upstream/failure_cause.ts";
import { CallFailed } from "../../src/upstream/transport.ts";

const CODES: Readonly<Partial<Record<FailureCause, readonly string[]>>> = {
  dns: ["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "ENODATA", "ESERVFAIL"],
  refused: ["ECONNREFUSED"],
  unreachable: ["EHOSTUNREACH", "ENETUNREACH", "EHOSTDOWN", "ENETDOWN"],
  reset: ["ECONNRESET", "ECONNABORTED", "EPIPE"],
  closed: ["UND_ERR_SOCKET"],
  timeout: [
    "ETIMEDOUT",
    "UND_ERR_CONNECT_TIMEOUT",
    "UND_ERR_HEADERS_TIMEOUT",
    "UND_ERR_BODY_TIMEOUT",
  ],
  exhausted: ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EADDRNOTAVAIL"],
  tls: [
    "CERT_HAS_EXPIRED",
    "CERT_NOT_YET_VALID",
    "CERT_REVOKED",
    "CERT_UNTRUSTED",
    "DEPTH_ZERO_SELF_SIGNED_CERT",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    "ERR_TLS_CERT_ALTNAME_INVALID",
    "ERR_SSL_WRONG_VERSION_NUMBER",
    "HOSTNAME_MISMATCH",
    "INVALID_CA",
    "EPROTO",
  ],
  malformed: [
    "HPE_INVALID_CONSTANT",
    "UND_ERR_HEADERS_OVERFLOW",
    "Malformed_HTTP_Response",
    "Z_DATA_ERROR",
  ],
  unknown: ["ERR_INVALID_ARG_TYPE", "UND_ERR_ABORTED", "", "EACCES"],
};

const sent = "error sending request for url (https://refused.example/v1): client error";
const TEXTS: readonly (readonly [text: string, cause: FailureCause])[] = [
  [
    `${sent} (Connect): dns error: failed to lookup address information: Name or service not known`,
    "dns",
  ],
  [`${sent} (Connect): tcp connect error: Connection refused (os error 111)`, "refused"],
  [`${sent} (Connect): tcp connect error: No route to host (os error 113)`, "unreachable"],
  [`${sent} (Connect): tcp connect error: Network is unreachable (os error 101)`, "unreachable"],
  [
    `${sent} (Connect): invalid peer certificate: certificate expired: verification time 1795312966`,
    "tls",
  ],
  [`${sent} (Connect): invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))`, "tls"],
  [`${sent} (Connect): tls handshake eof`, "tls"],
  [`${sent} (Connect): received corrupt message of type InvalidContentType`, "tls"],
  [`${sent} (Connect): Connection reset by peer (os error 104)`, "reset"],
  ["Connection reset by peer (os error 104)", "reset"],
  [`${sent} (SendRequest): connection closed before message completed`, "closed"],
  [`${sent} (SendRequest): invalid HTTP version parsed`, "malformed"],
  ["error reading a body from connection", "unknown"],
];

describe("the cause of an error of a runtime", () => {
  for (const [cause, codes = []] of Object.entries(CODES)) {
    it(`${cause} by its code, alone and wrapped`, () => {
      for (const code of codes) {
        const error = Object.assign(new Error("x"), { code });
        const wrapped = new TypeError("fetch failed", { cause: error });
        for (const each of [error, wrapped]) assert.equal(toFailureCause(each), cause, code);
      }
    });
  }

  it("by the text of Deno's fetch, which has no code, and never by the URL in it", () => {
    for (const [text, cause] of TEXTS) {
      assert.equal(
        toFailureCause(new TypeError("fetch failed", { cause: new Error(text) })),
        cause,
        text,
      );
    }
  });

  it("by the failed look-up, with any code", () => {
    assert.equal(
      toFailureCause(Object.assign(new Error("x"), { code: "EBADRESP", syscall: "getaddrinfo" })),
      "dns",
    );
  });

  it("is the transport's cause if it has one, also within another error", () => {
    const low = Object.assign(new Error("x"), { code: "ECONNRESET" });
    assert.equal(toFailureCause(new CallFailed("tls", "x", { cause: low })), "tls");
    const garbled = new GatewayError("upstream_bad_response", { cause: low });
    assert.equal(toUpstreamError("upstream_disconnected", garbled).failureCause, "malformed");
  });

  it("is unknown for a value that is not an error, and for an error that is its own cause", () => {
    const circle = new Error("x");
    circle.cause = circle;
    for (const each of [undefined, null, "ECONNREFUSED", { code: "ECONNREFUSED" }, circle]) {
      assert.equal(toFailureCause(each), "unknown");
    }
  });

  it("is one of the table, and every error about a called provider has one", () => {
    for (const [code, { failureCause }] of Object.entries(ERRORS)) {
      const wasCalled = code.startsWith("upstream_") &&
        !["upstream_key_unavailable", "upstream_loop"].includes(code);
      assert.equal(failureCause !== undefined, wasCalled, code);
      assert.ok(failureCause === undefined || failureCause in FAILURE_CAUSES, code);
    }
  });
});
